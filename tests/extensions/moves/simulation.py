"""Two or three machines and one job, by the rules of keeper, helper, supervisor and verbs: no clock, process or ssh.

The network loses, delays, reorders and cuts; keepers, helpers, supervisors, verbs and machines die and come back;
settings, versions and clocks differ. A keeper knows what the file said at its start and what its helper has said since,
which comes late or, when that dies, perhaps not at all. What is judged: never two commands alive, and once all is
repaired one lives within the time that the rules promise.

python tests/extensions/moves/simulation.py 100000 [FIRST]
"""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections import Counter
from types import SimpleNamespace

from carbontui.extensions.moves import lease
from carbontui.extensions.moves.lease import Grant, HoldAnswer
from carbontui.job.files import places
from carbontui.job.files.places import At, Places, Stay
from carbontui.job.keeper.permit import LOST_S
from carbontui.job.terms.child import Child

TICK_S = 5.0
"""Of keeper and supervisor: slower than theirs."""
CALL_S = 60.0
MOVE_S = 15.0
"""A verb that dies leaves the job held back for this long."""
FAULTS_S = 1500.0
KINDS = ("keeper", "helper", "supervisor", "machine", "cut", "verb")
WORD_S = 3.0
"""Until a word of the helper, or an order to it, arrives."""


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
        self.up, self.keeper, self.helper, self.supervisor, self.starts = True, None, None, False, 0
        self.known = self.arrived = self.exit = self.child = None

    def at(self):
        return At((self.world.now_s - self.booted_s) * self.rate, f"{self.name}.{self.boot}")

    def begin(self):
        """A keeper starts, with its supervisor."""
        if self.up and self.keeper is None and self.known is not None and self.exit is None:
            self.keeper = SimpleNamespace(permit=self.known.permit(), wanted=self.known != places.NEVER_MOVED)
            self.keeper.helper_s = self.keeper.heard_s = self.world.now_s
            self.helper, self.supervisor = None, True

    def gone(self):
        self.keeper = self.helper = None

    def assist(self):
        """The keeper starts a helper, which reads the file."""
        keeper, now_s = self.keeper, self.world.now_s
        if keeper.wanted and self.helper is None and now_s >= keeper.helper_s:
            known, watch = lease.watching(self.known, self.at())
            self.helper = SimpleNamespace(known=known, watch=watch, to=None, until_s=0.0, release=False, due_s=0.0)
            self.helper.call, self.helper.ended, self.helper.last_s = None, None, 0.0
            self.world.after(self.dice.uniform(0, TICK_S), self.help, self.helper)

    def keep(self, known):
        self.helper.known = self.known = known

    def say(self):
        """What the helper says is on disk, and arrives in order; of one that has died, perhaps."""
        helper, keeper = self.helper, self.keeper
        to, unloads = helper.to or ("", False)
        more = {"moving": to, "release": helper.release} if unloads else {}
        said = helper.known.permit(ended=helper.ended, **more)
        helper.last_s = max(helper.last_s, self.world.now_s + self.dice.uniform(0, WORD_S))
        self.world.after(helper.last_s - self.world.now_s, self.hear, keeper, helper, said)

    def hear(self, keeper, helper, said):
        if self.keeper is keeper and (self.helper is helper or (self.helper is None and self.dice.random() < 0.5)):
            keeper.permit, keeper.heard_s = said, self.world.now_s

    def order(self, act, *args):
        """What the keeper hands on to its helper."""
        self.keeper.wanted = True
        self.assist()
        helper = self.helper

        def arrive():
            if self.helper is helper:
                act(helper, *args)
                self.say()

        if helper is not None:
            self.world.after(self.dice.uniform(0, WORD_S), arrive)

    def help(self, helper):
        """A tick of the helper."""
        if self.helper is not helper:
            return
        at, now_s = self.at(), self.world.now_s
        if helper.to is not None and now_s > helper.until_s:
            helper.to, helper.release = None, False
        known = helper.known
        if not known.holder and known.leased and known.permit().left_s(at) <= 0.0:
            self.take_back(helper.watch.recall or "its lease has ended")
        elif None is helper.ended is helper.call and now_s >= helper.due_s and (helper.to or known.peer):
            self.call()
        self.say()
        self.world.after(TICK_S, self.help, helper)

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
        self.assist()
        if keeper.permit.moving and self.helper is None and self.world.now_s - keeper.heard_s > LOST_S:
            keeper.permit = self.known.permit()
        if self.child is not None and not keeper.permit.may_run(at):
            self.child = None
        if keeper.permit.ended is not None and self.child is None:
            self.exit, self.supervisor = {**keeper.permit.ended, "moved": True}, False
            self.gone()
        elif keeper.permit.may_start(at) and self.child is None and not self.never:
            self.child = SimpleNamespace(steps_s=self.world.now_s + self.start_s, leaves_s=None)
            self.starts += 1

    def _live(self, at):
        """The command, and the supervisor's rule of when it is unloaded; without a keeper it ends what has outlived its
        lease."""
        now_s, child = self.world.now_s, self.child
        known = self.known.permit() if self.keeper is None else self.keeper.permit
        outlived = self.supervisor and known.leased and known.left_s(at) <= 0.0
        if outlived or (child.leaves_s is not None and now_s >= child.leaves_s):
            self.child = None
            return
        if now_s < child.steps_s:
            return
        if self.fails:
            self.child, self.exit, self.supervisor = None, {"code": 3}, False
            self.gone()
            return
        if not self.supervisor or child.leaves_s is not None:
            return
        quiet_s = self.dice.uniform(0, self.step_s)
        left_s = known.left_s(at) - known.margin_s if known.leased else None
        terms = Child("running", lease_left_s=left_s, unload_most_s=known.lease_s * places.UNLOAD)
        if known.moving or terms.lease_unloads(self.unload_s + 2 * quiet_s):
            child.leaves_s = now_s + self.unload_s + self.step_s - quiet_s

    def take_back(self, why):
        stay = Stay(self.name)
        self.keep(lease.taken_back(self.helper.known, stay))
        self.helper.watch, self.helper.due_s = lease.WatchState(), 0.0
        self.world.count["taken back: " + why.split(" for ")[0]] += 1

    # --- a conversation: dial, greeting, grant, answer ---

    def other(self):
        return self.world.nodes.get(self.helper.to[0] if self.helper.to else self.helper.known.peer)

    def call(self):
        helper, world = self.helper, self.world
        other = self.other()
        helper.due_s = world.now_s + (helper.known.lease_s * lease.RENEWED if helper.watch.settled else 3.0)
        call = helper.call = object()
        world.after(CALL_S, self.close, helper, call)
        world.send(self, other, self._dialled, helper, call, other)

    def close(self, helper, call):
        if helper.call is call:
            helper.call = None

    def _dialled(self, helper, call, other):
        asked = other.at()
        leave = other.keeper is not None and other.keeper.permit.release
        self.world.send(other, self, self._greeted, helper, call, other, asked, leave)

    def _greeted(self, helper, call, other, asked, leave):
        if self.helper is not helper or helper.call is not call or self.other() is not other:
            return
        if helper.to:
            grant = Grant(ping=True)
        else:
            known, helper.watch, grant = lease.grant(helper.known, helper.watch, self.at(), leave=leave)
            if self.old and grant.recall:  # which knows no recalls: it grants again
                helper.watch = helper.watch._replace(recall="", lives_s=self.at().now_s)
                known, helper.watch, grant = lease.grant(helper.known, helper.watch, self.at(), leave=leave)
            self.keep(known)
        self.world.send(self, other, self._granted, helper, call, other, asked, grant)

    def _granted(self, helper, call, other, asked, grant):
        old = other.old and grant.recall
        answer = HoldAnswer(ok=True) if old or (grant.ping and not grant.recall) else other.receive(grant, asked)
        if answer is not None:
            self.world.send(other, self, self._answer, helper, call, grant, answer)

    def _answer(self, helper, call, sent, answer):
        if self.helper is not helper or helper.call is not call:
            return
        helper.call = None
        if helper.to:
            return
        known, helper.watch, why, ended = lease.answered(helper.known, helper.watch, sent, answer, self.at())
        if why:
            self.take_back(why)
        elif known != helper.known:
            self.keep(known)
            helper.due_s = helper.due_s if helper.watch.settled else 0.0
        helper.ended = helper.ended if ended is None else ended

    def receive(self, grant, asked):
        """As `carbontui receive ... hold`; None while an answer must wait."""
        if asked.boot != self.at().boot:
            return None
        arrived = self.arrived.token if self.arrived else 0
        verdict = lease.received(self.known, arrived, grant, over=self.exit is not None)
        self.world.count[verdict] += 1
        if verdict in ("end", "leave"):
            self.arrived = None
            left = verdict == "leave"
            if self.known is not None and self.exit is None:
                if self.keeper is not None and not self.keeper.permit.holder:
                    self.supervisor = False
                    self.gone()
                    return HoldAnswer(error="a watcher's keeper leaves")
                if self.keeper is not None:
                    if self.helper is None:
                        return HoldAnswer(error="the monitor process does not take it")
                    self.keep(self.known._replace(holder=False, leased=False))
                    self.helper.ended = {}
                    self.say()
                    if left:
                        return HoldAnswer(error="it has not ended there yet")
                else:
                    self.known = self.known._replace(holder=False, leased=False)
                    self.supervisor, self.child, self.exit = False, None, {"moved": True}
            if left and self.child is not None:
                return HoldAnswer(error="it has not ended there yet")
            return HoldAnswer(ok=True, back=left, left=left)
        if verdict == "own":
            return HoldAnswer(ok=True, own=True)
        if verdict == "refuse":
            return HoldAnswer(error="no such job", refused=True)
        right = lease.granted(self.arrived if verdict == "install" else self.known, grant, asked)
        if right.leased and right.permit().left_s(self.at()) <= 0.0:
            return HoldAnswer(error="late", refused=True)
        if verdict == "install":
            self.known, self.arrived, self.exit = right, None, None
            self.child = None
            self.gone()
            self.begin()
        elif verdict == "over":
            failed = "code" in self.exit and self.exit["code"] != 0
            return HoldAnswer(ok=True, back=True) if failed else HoldAnswer(ok=True, over=self.exit)
        elif self.keeper is not None and right.leased:
            self.order(self._renewed, grant, asked)
        elif self.helper is not None:
            self._renewed(self.helper, grant, asked)
            self.say()
        elif self.keeper is not None:
            return HoldAnswer(error="the monitor process does not take it")
        elif self.supervisor:
            return HoldAnswer(error="the supervisor takes it up")
        else:
            self.known = right
            self.begin()
        lives = self.child is not None or (self.keeper is not None and self.keeper.permit.moving != "")
        return HoldAnswer(ok=True, lives=lives or self.old)

    def _renewed(self, helper, grant, asked):
        if helper.known.token == grant.token and helper.known.holder:
            self.keep(lease.granted(helper.known, grant, asked))


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
        if here is None or here.keeper.permit.moving or not here.keeper.permit.holder:
            return
        if here.helper is not None and here.helper.to is not None:
            return
        there = self.nodes[self.dice.choice([name for name in self.nodes if name != here.name])]
        takes_s = here.unload_s + 2 * here.step_s
        if here.lease_s < lease.least_lease_s(takes_s):
            self.count["move refused"] += 1
            return
        if there.known is not None and there.known.holder and there.exit is None:
            return
        release = here.keeper.permit.leased
        verb = SimpleNamespace(here=here, there=there, keeper=here.keeper, release=release, staged=False, alive=True)
        verb.good = self.dice.random() < 0.15
        verb.due_s, verb.starts = self.now_s + 600, None
        self.verb = verb
        self._beat(verb, False)
        self.after(self.dice.uniform(1, 60), self._unload, verb)

    def _at_work(self, verb):
        return verb.alive and verb.here.keeper is verb.keeper and self.now_s < verb.due_s

    def _beat(self, verb, unload=None):
        if unload is not None:
            verb.unload = unload
        if self._at_work(verb):
            verb.here.order(self._moved, verb, verb.unload)
            if unload is None or not unload:
                self.after(3.0, self._beat, verb)

    def _moved(self, helper, verb, unload):
        if helper.known.holder:
            helper.to, helper.until_s = (verb.there.name, unload), self.now_s + MOVE_S
            helper.release = unload and verb.release

    def _unload(self, verb):
        if self._at_work(verb):
            self._beat(verb, True)
            self.after(1.0, self._copy, verb)

    def _copy(self, verb):
        keeper, here, there = verb.keeper, verb.here, verb.there
        if not self._at_work(verb):
            return
        reachable = there.up and frozenset((here.name, there.name)) not in self.cut
        ready = keeper.permit.moving and here.child is None
        if not reachable or here.exit is not None:
            verb.alive = False
        elif (not ready and verb.starts is None) or (verb.release and here.known.leased and verb.staged):
            self.after(1.0, self._copy, verb)
        elif not verb.staged:
            token = here.known.token + 1
            stays = (*(here.known.places or (Stay(here.name),)), Stay(there.name))
            there.arrived = Places(token, holder=False, leased=False, peer=here.name, places=stays)
            verb.staged, verb.starts = True, here.starts
            self.after(self.dice.uniform(1, 60), self._copy, verb)
        else:
            verb.alive = False
            if ready and here.starts == verb.starts:
                here.order(self._handed_over, verb)

    def _handed_over(self, helper, verb):
        here, there = verb.here, verb.there
        if (
            not (helper.to and helper.to[1])
            or self.now_s > helper.until_s
            or not helper.known.permit().may_run(here.at())
        ):
            return
        self.count["handed over"] += 1
        terms = {"lease_s": here.lease_s, "margin_s": here.lease_s * places.MARGIN, "start_s": here.start_s}
        stays = helper.known.places or (Stay(here.name),)
        here.keep(lease.handed_over(helper.known, here.at(), peer=there.name, segments=stays, call=("x",), **terms))
        helper.watch = lease.WatchState(here.at().now_s, step=5, for_good=verb.good)
        helper.to, helper.release, helper.due_s = None, False, 0.0

    # --- what breaks ---

    def fault(self, kind):
        node = self.dice.choice(list(self.nodes.values()))
        self.count[kind] += 1
        later = self.dice.uniform(0, 400)
        if kind == "keeper" and node.supervisor:
            node.gone()
            self.after(later, self._restart, node)
        elif kind == "helper" and node.helper is not None:
            node.helper, node.keeper.helper_s = None, self.now_s + later * self.dice.choice([0.0, 0.1, 0.5])
        elif kind == "supervisor" and node.keeper is not None:
            node.supervisor = False
        elif kind == "machine":
            node.up, node.supervisor, node.child = False, False, None
            node.gone()
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
            self.bound_s
            or max(lease.patience_s(known) + 2 * lease.whole_s(known) for known in watched) + 5 * CALL_S + 2 * MOVE_S
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
            rest = {
                n.name: (n.known, n.exit, n.keeper and n.keeper.permit, n.helper and n.helper.watch)
                for n in self.nodes.values()
            }
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
