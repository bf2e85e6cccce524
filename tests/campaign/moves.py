"""Moves between two machines (two sshd) while keepers, helpers, supervisors, verbs, machines die, the wire is cut
in each phase, the disk there is full: one training of torch, whose every step says where it was made, and its weights.

python tests/campaign/moves.py [--moves 30] [--seed 7] [--kinds plain,cut]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "extensions" / "moves")]

from house import until
from machines import ALONE, LEASE_S, SOCKETS, WHY, Machine, Machines, machines  # noqa: F401

TRAIN = (
    ALONE
    + """\
import hashlib
import torch
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
saved = carbontui.Checkpoint("run.pt", model=model, optimizer=optimizer)
step = saved.resume()
carbontui.report(total=total)
while step < total and not os.path.exists(common + ".end"):
    x = torch.randn(8, 16)
    loss = model(x).square().mean() + (model(x) - x[:, :4]).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
    marks.write(f"{socket.gethostname()} {step} {digest} {time.time()}\\n")
    time.sleep(pause)
    carbontui.step()
"""
)
PHASES = ("checked", "unloading", "copying", "handed", "started")
KINDS = (
    *("plain", "plain", "plain"),
    *(f"cut {phase}" for phase in PHASES),
    *(f"verb {phase}" for phase in PHASES[:4]),
    *(f"keeper-here {phase}" for phase in PHASES[:4]),
    *(f"helper-here {phase}" for phase in PHASES[:4]),
    "helper-there started",
    *("supervisor-here unloading", "supervisor-there started", "keeper-there started", "both-there started"),
    *("training-there started", "dies-there handed", "dies-there started", "dies-here handed", "dies-here started"),
    *("full checked", "full copying", "long-cut started"),
)


@dataclass
class Found:
    """What the moves have come to."""

    moves: int = 0
    there: int = 0
    stayed: int = 0
    taken_back: int = 0
    two: int = 0
    wrong: int = 0
    """Steps whose weights are not those of staying."""
    steps: int = 0
    repeated: int = 0
    away_s: list[float] = field(default_factory=list)
    """Between the last step before and the first one after a plain move."""
    account: float = 0.0
    """Energy of all places, of the account's."""
    faults: list[str] = field(default_factory=list)


class Campaign:
    def __init__(self, all: Machines, dice: random.Random, found: Found) -> None:
        self.all, self.dice, self.found = all, dice, found
        self.job = all.start(steps=10**7, pause=0.02, script=TRAIN)
        self.here, self.there = all.all
        self.full: subprocess.Popen[bytes] | None = None

    def holder(self) -> Machine | None:
        """The machine of the last step, if its job directory says so as well."""
        for machine in self.all.all:
            known, over = machine.record(self.job, "places.json"), machine.record(self.job, "exit.json")
            if known.get("holder", True) and machine.pid(self.job, "child") and not over:
                return machine
        return None

    def log(self, machine: Machine) -> str:
        with contextlib.suppress(OSError):
            return (machine.state / "jobs" / self.job / "carbontui.log").read_text()
        return ""

    def phase(self, name: str, before: int, verb: subprocess.Popen[str]) -> None:
        """Until the move has come to this phase, or is over."""
        said = {
            "checked": lambda: (self.there.state / "incoming" / self.job).exists(),
            "unloading": lambda: "being moved to" in self.log(self.here)[before:],
            "copying": lambda: "child unloaded" in self.log(self.here)[before:],
            "handed": lambda: "handed over" in self.log(self.here)[before:],
            "started": lambda: "handed over" in self.log(self.here)[before:] and self.there.pid(self.job, "child"),
        }[name]
        due = time.monotonic() + 60
        while not said() and verb.poll() is None and time.monotonic() < due:
            time.sleep(0.005)
        time.sleep(self.dice.uniform(0, 0.4))

    def fault(self, kind: str) -> None:
        """Does it; what is broken is mended by `mend`."""
        if kind in ("cut", "long-cut"):
            self.there.sshd.stop()
        elif kind.startswith("helper"):
            one = self.here if kind == "helper-here" else self.there
            self.all_of(f"moves.helper\0{one.state}/jobs/{self.job}".encode())
        elif kind == "keeper-here":
            self.here.kill(self.job, "keeper")
        elif kind == "supervisor-here":
            self.here.kill(self.job, "supervisor")
        elif kind in ("keeper-there", "supervisor-there", "training-there"):
            self.there.kill(self.job, {"training-there": "child"}.get(kind, kind.partition("-")[0]))
        elif kind == "both-there":
            self.there.kill(self.job, "keeper", "supervisor")
        elif kind == "dies-there":
            self.there.die()
        elif kind == "dies-here":
            self.here.die()
        elif kind == "full":
            (self.there.home / "run" / "ballast").write_bytes(b"")
            with contextlib.suppress(OSError), (self.there.home / "run" / "ballast").open("wb") as file:
                while True:
                    file.write(b"x" * 65536)
                    file.flush()

    def mend(self, kind: str) -> None:
        """As a user would: machines are booted, keepers that are gone restarted."""
        if kind == "long-cut":
            time.sleep(1.4 * LEASE_S)
        elif kind == "verb":
            time.sleep(16)  # until its lease is over the job is still being moved
        elif kind == "cut":
            time.sleep(self.dice.uniform(0, 5))
        elif kind.startswith("dies"):
            time.sleep(self.dice.choice([0.0, 1.4 * LEASE_S]))
        with contextlib.suppress(OSError):
            (self.there.home / "run" / "ballast").unlink()
        for machine in self.all.all:
            machine.boot()
            if machine.record(self.job, "job.json") and not machine.record(self.job, "exit.json"):
                machine.cli("restart", self.job)

    def one(self, kind: str) -> None:
        what, _, phase = kind.partition(" ")
        count, before = len(self.all.marks()), len(self.log(self.here))
        line = [
            self.here.sshd.ssh,
            "x",
            f"cd {self.here.home}/run && carbontui move {self.job} {self.there.name} --yes",
        ]
        if what == "verb":
            line[-1] = line[-1].replace("carbontui", "exec carbontui")
        verb = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if phase:
            self.phase(phase, before, verb)
            if what == "verb":
                self.all_of(b"move\0" + self.job.encode())
            else:
                self.fault(what)
            if what != "full":
                self.mend(what)
        try:
            out, err = verb.communicate(timeout=3 * LEASE_S)
        except subprocess.TimeoutExpired:
            verb.kill()
            out, err = verb.communicate()
            self.found.faults.append(f"{kind}: the verb hangs: {out} {err}")
        if verb.returncode not in (0, 1, -9, 255, 137, 3) or "Traceback" in err or len(err.splitlines()) > 1:
            self.found.faults.append(f"{kind}: exit {verb.returncode}: {err}")
        if what == "full":  # the disk is full until the verb has ended
            self.mend(what)
        self.settle(kind)
        after = self.all.marks()[count:]
        now = self.holder()
        assert now is not None
        if not phase and now is self.there:
            times = [float(one[3]) for one in after if one[0] != "TWO"]
            self.found.away_s.append(max(b - a for a, b in zip(times, times[1:], strict=False)))
        if "taken back" in self.log(self.here)[before:]:
            self.found.taken_back += 1
        print(
            f"{kind:28} exit {verb.returncode}: {self.here.name} -> {now.name}; {(err or out).strip()[-110:]}",
            flush=True,
        )
        self.found.moves += 1
        self.found.there += now is self.there
        self.found.stayed += now is self.here
        self.here, self.there = now, next(one for one in self.all.all if one is not now)

    def add_up(self) -> None:
        """The account beside the sum of the places, as the holder's status has both."""
        status = self.here.status(self.job)
        if status.get("places") and status["energy_wall_kwh"]:
            known = [place["energy_wall_kwh"] for place in status["places"]]
            print(known, status["energy_wall_kwh"], status["gco2_g"], status["moves_cost"], flush=True)
            self.found.account = sum(kwh or 0.0 for kwh in known) / status["energy_wall_kwh"]

    def all_of(self, words: bytes) -> None:
        """Kill whoever has these words in its command line: the verb."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if words in (entry / "cmdline").read_bytes() and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)

    def settle(self, kind: str) -> None:
        """Until one place trains, and the others know it."""

        def settled() -> bool:
            now = self.holder()
            if now is None:
                return False
            marks = self.all.marks()
            last = marks[-1]
            if last[0] != now.name or time.time() - float(last[3]) > 2:
                return False
            others = [one for one in self.all.all if one is not now]
            return all(one.record(self.job, "exit.json") or not one.pid(self.job, "child") for one in others)

        try:
            until(settled, 4 * LEASE_S, f"{kind}: one place that trains", every=0.2)
        except AssertionError:
            logs = "\n".join(
                f"--- {one.name} {one.record(self.job, 'places.json')}\n{self.log(one)[-3000:]}" for one in self.all.all
            )
            raise AssertionError(f"{kind}: nobody trains\n{logs}") from None
        self.all.until_steps(20)


def judge(all: Machines, found: Found, folder: Path) -> None:
    """Every step beside those of the same training that stays."""
    marks = all.marks()
    found.two = sum(one[0] == "TWO" for one in marks)
    steps = [one for one in marks if one[0] != "TWO"]
    last = max(int(one[1]) for one in steps)
    found.steps, found.repeated = last, len(steps) - last
    (folder / "train.py").write_text(TRAIN)
    words = [sys.executable, "train.py", str(last), "0", str(folder / "stay")]
    subprocess.run(words, cwd=folder, check=True, env={**os.environ, "PYTHONPATH": str(TESTS.parent)})
    stayed = {one.split()[1]: one.split()[2] for one in (folder / "stay.marks").read_text().splitlines()}
    found.wrong = sum(stayed[one[1]] != one[2] for one in steps)


def moved(moves: int, seed: int, kinds: tuple[str, ...] = KINDS) -> Found:
    found, dice = Found(), random.Random(seed)
    with machines(disk_mb=48) as all:
        campaign = Campaign(all, dice, found)
        order = [kind for _ in range(moves // len(kinds) + 1) for kind in dice.sample(kinds, len(kinds))][:moves]
        for kind in order:
            campaign.one(kind)
        campaign.add_up()
        folder = all.root / "stayed"
        folder.mkdir()
        judge(all, found, folder)
    return found


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--moves", type=int, default=30)
    ask.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    ask.add_argument("--kinds", default=",".join(KINDS))
    given = ask.parse_args()
    print("seed", given.seed, SOCKETS)
    print(moved(given.moves, given.seed, tuple(given.kinds.split(","))))


if __name__ == "__main__":
    main()
