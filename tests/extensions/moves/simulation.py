"""Two or three machines and one job, by the rules that keeper, supervisor and verbs use: no clock, process or ssh.

The network loses, delays, reorders and cuts; keepers, supervisors, verbs and machines die and come back; settings,
versions and clocks differ. What is judged: never two commands alive, and once all is repaired one lives within
the time that the rules promise.

python tests/extensions/moves/simulation.py 100000 [FIRST]
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections import Counter
from types import SimpleNamespace

from carbontui.job.files import places
from carbontui.job.files.places import At, Grant, HoldAnswer, Places, Stay
from carbontui.job.terms.child import Child

TICK_S = 5.0
"""Of keeper and supervisor: slower than theirs."""
CALL_S = 60.0
MOVE_S = 15.0
"""A verb that dies leaves the job held back for this long."""
FAULTS_S = 1500.0
KINDS = ("keeper", "supervisor", "machine", "cut", "verb")


class Node:
    """One machine. `known`, `arrived` and `exit` are files; the rest is lost with its process."""

    def __init__(self, world, name, dice):
        self.world, self.name, self.dice = world, name, dice
        self.rate, self.boot, self.booted_s = dice.uniform(0.998, 1.002), 0, -dice.uniform(0, 1e6)
        self.lease_s = dice.choice([120.0, 120.0, 200.0, 600.0])
        self.unload_s, self.start_s = dice.choice([2.0, 20.0, 60.0]), dice.choice([2.0, 20.0, 100.0])
        self.step_s = dice.choice([0.1, 1.0, 40.0])
        self.old = dice.random() < 0.2
        """Of a version that knows neither recalls nor who lives."""
        self.never = self.fails = False
        """Starts nothing, as what holds it up; or fails before its first step."""
        self.up, self.keeper, self.supervisor = True, None, False
        self.known = self.arrived = self.exit = self.child = None

    def at(self):
        return At((self.world.now_s - self.booted_s) * self.rate, f"{self.name}.{self.boot}")

    def begin(self):
        """A keeper starts, with its supervisor."""
        if self.up and self.keeper is None and self.known is not None and self.exit is None:
            known, watch = places.watching(self.known, self.at())
            self.keeper = SimpleNamespace(known=known, watch=watch, to=None, until_s=0.0, release=False, due_s=0.0)
            self.keeper.call, self.keeper.ended = None, None
            self.supervisor = True

    def keep(self, known):
        self.keeper.known = self.known = known

    def tick(self):
        if not self.up:
            return
        at = self.at()
        if self.child is not None:
            self._live(at)
        keeper = self.keeper
        if keeper is None:
            return
        self.supervisor = True
        if keeper.to is not None and self.world.now_s > keeper.until_s:
            keeper.to, keeper.release = None, False
        known = keeper.known
        if not known.holder and known.leased and known.left_s(at) <= 0.0:
            self.take_back(keeper.watch.recall or "its lease has ended")
        elif None is keeper.ended is keeper.call and self.world.now_s >= keeper.due_s and (keeper.to or known.peer):
            self.call()
        if self.child is not None and not keeper.known.may_run(at):
            self.child = None
        if keeper.ended is not None and self.child is None:
            self.exit, self.keeper, self.supervisor = {**keeper.ended, "moved": True}, None, False
        elif keeper.known.may_start(at) and self.child is None and not self.unloads and not self.never:
            self.child = SimpleNamespace(steps_s=self.world.now_s + self.start_s, leaves_s=None)

    @property
    def unloads(self):
        return self.keeper is not None and self.keeper.to is not None and self.keeper.to[1]

    def _live(self, at):
        """The command, and the supervisor's rule of when it is unloaded; without a keeper it ends what has outlived its
        lease."""
        now_s, child = self.world.now_s, self.child
        known = self.known if self.keeper is None else self.keeper.known
        outlived = self.supervisor and known.leased and known.left_s(at) <= 0.0
        if outlived or (child.leaves_s is not None and now_s >= child.leaves_s):
            self.child = None
            return
        if now_s < child.steps_s:
            return
        if self.fails:
            self.child, self.exit, self.keeper, self.supervisor = None, {"code": 3}, None, False
            return
        if not self.supervisor or child.leaves_s is not None:
            return
        quiet_s = self.dice.uniform(0, self.step_s)
        left_s = known.left_s(at) - known.margin_s if known.leased else None
        terms = Child("running", lease_left_s=left_s, unload_most_s=known.lease_s * places.UNLOAD)
        if self.unloads or terms.lease_unloads(self.unload_s + 2 * quiet_s):
            child.leaves_s = now_s + self.unload_s + self.step_s - quiet_s

    def take_back(self, why):
        stay = Stay(self.name)
        self.keep(places.taken_back(self.keeper.known, stay))
        self.keeper.watch, self.keeper.due_s = places.WatchState(), 0.0
        self.world.count["taken back: " + why.split(" for ")[0]] += 1

    # --- a conversation: dial, greeting, grant, answer ---

    def call(self):
        keeper, world = self.keeper, self.world
        other = world.nodes[keeper.to[0] if keeper.to else keeper.known.peer]
        keeper.due_s = world.now_s + (keeper.known.lease_s * places.RENEWED if keeper.watch.settled else 3.0)
        call = keeper.call = object()
        world.after(CALL_S, self.close, keeper, call)
        world.send(self, other, self._dialled, keeper, call, other)

    def close(self, keeper, call):
        if keeper.call is call:
            keeper.call = None

    def _dialled(self, keeper, call, other):
        asked = other.at()
        leave = other.keeper is not None and other.keeper.release
        self.world.send(other, self, self._greeted, keeper, call, other, asked, leave)

    def _greeted(self, keeper, call, other, asked, leave):
        if self.keeper is not keeper or keeper.call is not call:
            return
        if keeper.to:
            grant = Grant(ping=True)
        else:
            known, keeper.watch, grant = places.grant(keeper.known, keeper.watch, self.at(), leave=leave)
            if self.old and grant.recall:  # which knows no recalls: it grants again
                keeper.watch = keeper.watch._replace(recall="", lives_s=self.at().now_s)
                known, keeper.watch, grant = places.grant(keeper.known, keeper.watch, self.at(), leave=leave)
            self.keep(known)
        self.world.send(self, other, self._granted, keeper, call, other, asked, grant)

    def _granted(self, keeper, call, other, asked, grant):
        old = other.old and grant.recall
        answer = HoldAnswer(ok=True) if old or (grant.ping and not grant.recall) else other.receive(grant, asked)
        if answer is not None:
            self.world.send(other, self, self._answer, keeper, call, grant, answer)

    def _answer(self, keeper, call, sent, answer):
        if self.keeper is not keeper or keeper.call is not call:
            return
        keeper.call = None
        if keeper.to:
            return
        known, keeper.watch, why, ended = places.answered(keeper.known, keeper.watch, sent, answer, self.at())
        if why:
            self.take_back(why)
        elif known != keeper.known:
            self.keep(known)
            keeper.due_s = keeper.due_s if keeper.watch.settled else 0.0
        keeper.ended = keeper.ended if ended is None else ended

    def receive(self, grant, asked):
        """As `carbontui receive ... hold`; None while an answer must wait."""
        if asked.boot != self.at().boot:
            return None
        arrived = self.arrived.token if self.arrived else 0
        verdict = places.received(self.known, arrived, grant, over=self.exit is not None)
        self.world.count[verdict] += 1
        if verdict in ("end", "leave"):
            self.arrived = None
            if self.known is not None and self.exit is None:
                if self.keeper is not None and not self.keeper.known.holder:
                    self.keeper, self.supervisor = None, False
                    return HoldAnswer(error="a watcher's keeper leaves")
                self.known = self.known._replace(holder=False, leased=False)
                self.keeper, self.supervisor, self.child = None, False, None
                self.exit = {"moved": True}
            left = verdict == "leave"
            return HoldAnswer(ok=True, back=left, left=left)
        if verdict == "own":
            return HoldAnswer(ok=True, own=True)
        if verdict == "refuse":
            return HoldAnswer(error="no such job", refused=True)
        right = places.granted(self.arrived if verdict == "install" else self.known, grant, asked)
        if right.leased and right.left_s(self.at()) <= 0.0:
            return HoldAnswer(error="late", refused=True)
        if verdict == "install":
            self.known, self.arrived, self.exit = right, None, None
            self.keeper, self.child = None, None
            self.begin()
        elif verdict == "over":
            failed = "code" in self.exit and self.exit["code"] != 0
            return HoldAnswer(ok=True, back=True) if failed else HoldAnswer(ok=True, over=self.exit)
        elif self.keeper is not None:
            if self.keeper.known.token == grant.token and self.keeper.known.holder:
                self.keep(places.granted(self.keeper.known, grant, asked))
        elif self.supervisor:
            return HoldAnswer(error="the supervisor takes it up")
        else:
            self.known = right
            self.begin()
        lives = self.child is not None or (self.keeper is not None and self.keeper.to is not None)
        return HoldAnswer(ok=True, lives=lives or self.old)


class World:
    bound_s = 0.0
    """Within which one must live again; 0: as the rules promise."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.now_s, self.queue, self.order = 0.0, [], itertools.count()
        self.count = Counter()
        self.nodes = {f"n{n}": Node(self, f"n{n}", self.dice) for n in range(1, self.dice.choice([2, 2, 3]) + 1)}
        self.cut, self.healed = set(), False
        self.two = ""
        first = self.nodes["n1"]
        first.known = places.NEVER_MOVED
        first.begin()
        self.calm = self.dice.random() < 0.2
        """Nothing breaks, but a machine that starts nothing."""
        for node in self.nodes.values():
            self.after(self.dice.uniform(0, TICK_S), self._tick, node)
        for _ in range(self.dice.randint(1, 3)):
            self.after(self.dice.uniform(0, FAULTS_S / 2), self.move)
        for _ in range(0 if self.calm else self.dice.randint(0, 6)):
            self.after(self.dice.uniform(0, FAULTS_S), self.fault, self.dice.choice(KINDS))
        if self.dice.random() < (0.7 if self.calm else 0.3):
            odd = self.nodes[self.dice.choice([name for name in self.nodes if name != "n1"])]
            odd.never, odd.fails = self.dice.choice([(True, False), (True, False), (False, True)])
            for node in self.nodes.values():  # an older version cannot say that nothing lives there
                node.old = False

    def after(self, s, act, *args):
        heapq.heappush(self.queue, (self.now_s + s, next(self.order), act, args))

    def send(self, one, other, act, *args):
        """A message: lost, late (and so overtaken), or dropped by a line that is cut."""
        lost = not self.healed and not self.calm and self.dice.random() < 0.05
        if lost or not (one.up and other.up) or frozenset((one.name, other.name)) in self.cut:
            return
        slow = not self.healed and not self.calm and self.dice.random() < 0.1
        boots = one.boot, other.boot
        self.after(
            self.dice.uniform(0, 150) if slow else self.dice.uniform(0, 2), self._arrive, one, other, boots, act, args
        )

    def _arrive(self, one, other, boots, act, args):
        if (one.boot, other.boot) == boots and other.up and frozenset((one.name, other.name)) not in self.cut:
            act(*args)

    def _tick(self, node):
        node.tick()
        self.after(TICK_S, self._tick, node)

    # --- the verb ---

    def move(self):
        here = next((node for node in self.nodes.values() if node.child is not None and node.keeper is not None), None)
        if here is None or here.keeper.to is not None or not here.keeper.known.holder:
            return
        there = self.nodes[self.dice.choice([name for name in self.nodes if name != here.name])]
        takes_s = here.unload_s + 2 * here.step_s
        if here.lease_s < places.least_lease_s(takes_s):
            self.count["move refused"] += 1
            return
        if there.known is not None and there.known.holder and there.exit is None:
            return
        release = here.known.leased
        verb = SimpleNamespace(here=here, there=there, keeper=here.keeper, release=release, staged=False, alive=True)
        verb.good = self.dice.random() < 0.15
        verb.due_s = self.now_s + 600
        self.verb = verb
        here.keeper.to, here.keeper.until_s = (there.name, False), self.now_s + MOVE_S
        self.after(self.dice.uniform(1, 60), self._unload, verb)
        self.after(3.0, self._beat, verb)

    def _beat(self, verb):
        if verb.alive and verb.here.keeper is verb.keeper and verb.keeper.to is not None and self.now_s < verb.due_s:
            verb.keeper.until_s = self.now_s + MOVE_S
            self.after(3.0, self._beat, verb)

    def _unload(self, verb):
        if verb.alive and verb.here.keeper is verb.keeper and verb.keeper.to is not None:
            verb.keeper.to = (verb.there.name, True)
            verb.keeper.release = verb.release
            self.after(1.0, self._copy, verb)

    def _copy(self, verb):
        keeper, here, there = verb.keeper, verb.here, verb.there
        if not verb.alive or here.keeper is not keeper or keeper.to is None or self.now_s > verb.due_s:
            return
        reachable = there.up and frozenset((here.name, there.name)) not in self.cut
        if not reachable or here.exit is not None:
            keeper.to, keeper.release = None, False
        elif here.child is not None or (verb.release and keeper.known.leased and verb.staged):
            self.after(1.0, self._copy, verb)
        elif not verb.staged:
            token = keeper.known.token + 1
            stays = (*(keeper.known.places or (Stay(here.name),)), Stay(there.name))
            there.arrived = Places(token, holder=False, leased=False, peer=here.name, places=stays)
            verb.staged = True
            self.after(self.dice.uniform(1, 60), self._copy, verb)
        elif keeper.known.may_run(here.at()):
            self.count["handed over"] += 1
            terms = {"lease_s": here.lease_s, "margin_s": here.lease_s * places.MARGIN, "start_s": here.start_s}
            stays = keeper.known.places or (Stay(here.name),)
            here.keep(places.handed_over(keeper.known, here.at(), peer=there.name, places=stays, call=("x",), **terms))
            keeper.watch = places.WatchState(here.at().now_s, step=5, for_good=verb.good)
            keeper.to, keeper.release, keeper.due_s = None, False, 0.0

    # --- what breaks ---

    def fault(self, kind):
        node = self.dice.choice(list(self.nodes.values()))
        self.count[kind] += 1
        later = self.dice.uniform(0, 400)
        if kind == "keeper" and node.supervisor:
            node.keeper = None
            self.after(later, self._restart, node)
        elif kind == "supervisor" and node.keeper is not None:
            node.supervisor = False
        elif kind == "machine":
            node.up, node.keeper, node.supervisor, node.child = False, None, False, None
            node.boot += 1
            self.after(later, self._boot, node)
        elif kind == "cut":
            pair = frozenset(self.dice.sample(sorted(self.nodes), 2))
            self.cut.add(pair)
            self.after(later * 2, self.cut.discard, pair)
        elif kind == "verb" and getattr(self, "verb", None):
            self.verb.alive = False

    def _boot(self, node):
        if node.up:
            return
        node.up, node.booted_s = True, self.now_s
        self.after(self.dice.uniform(1, 60), self._restart, node)

    def _restart(self, node):
        if node.keeper is None and node.up:
            node.begin()

    # --- what must hold ---

    def living(self):
        return [node.name for node in self.nodes.values() if node.child is not None]

    def over(self):
        """Its command has ended, or it has gone for good to a machine that cannot start it."""
        return any(node.exit and "moved" not in node.exit for node in self.nodes.values())

    def run_until(self, end_s):
        while self.queue and self.queue[0][0] <= end_s and not self.two:
            self.now_s, _, act, args = heapq.heappop(self.queue)
            act(*args)
            living = self.living()
            if len(living) > 1:
                self.two = f"two live at {self.now_s:.0f} s: {living}"
        self.now_s = end_s

    def judged(self):
        """'' if all held, else what did not."""
        self.run_until(FAULTS_S + 1.0)
        self.healed = True
        self.cut.clear()
        for node in self.nodes.values():
            self._boot(node)
            self._restart(node)
        if getattr(self, "verb", None):
            self.verb.alive = False
        watched = [node.known for node in self.nodes.values() if node.known is not None]
        bound_s = (
            self.bound_s or max(known.patience_s + 2 * known.whole_s for known in watched) + 4 * CALL_S + 2 * MOVE_S
        )
        bound_s += max(node.start_s + node.unload_s + node.step_s for node in self.nodes.values())
        end_s = self.now_s + bound_s
        while self.now_s < end_s and not self.two:
            self.run_until(self.now_s + TICK_S)
            if self.living() and self.now_s > FAULTS_S + 100:
                break
        if self.two:
            return self.two
        stuck = [node for node in self.nodes.values() if node.never and node.known and node.known.holder]
        for_good = [node for node in stuck if not node.known.leased]
        if not self.living() and not self.over() and not for_good:
            rest = {n.name: (n.known, n.exit, n.keeper and n.keeper.watch) for n in self.nodes.values()}
            return f"none lives {bound_s:.0f} s after all was repaired: {rest}"
        return ""


def main():
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    total, bad = Counter(), 0
    for seed in range(first, first + count):
        world = World(seed)
        if why := world.judged():
            bad += 1
            print(seed, why, flush=True)
        total += world.count
    print(f"{count} schedules from {first}: {bad} in which a rule did not hold")
    print(dict(sorted(total.items())))


if __name__ == "__main__":
    main()
