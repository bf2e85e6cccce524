"""One training in a Slurm job, alone and under carbontui, and what becomes of it: the rows of results.md."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import time
from pathlib import Path

from house import until

STEPS = 100
"""A training makes more only until it is let end."""
EVENTS = ("USR1", "time limit", "preemption", "scancel", "requeue")
SCRIPT = """\
import json, os, signal, sys, time
import carbontui
folder, steps, handler = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "handler"
may_end = os.path.join(folder, "may_end")
state = os.path.join(folder, "state.json")
got = open(os.path.join(folder, "got"), "a", buffering=1)
done, value = 0, 1
if os.path.exists(state):
    done, value = json.load(open(state))
def save():
    part = state + ".part"
    json.dump([done, value], open(part, "w"))
    os.replace(part, state)
    got.write(f"saved {done}\\n")
carbontui.on_checkpoint(save)
caught = []
def handle(number, frame):
    got.write(f"handler {signal.Signals(number).name}\\n")
    caught.append(number)
if handler:
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, handle)
got.write(f"life {done}\\n")
while done < steps or not os.path.exists(may_end):
    time.sleep(0.03)
    done, value = done + 1, value * 6364136223846793005 % 2**61 + done + 1
    got.write(f"{done}\\n")
    carbontui.step()
    if caught:
        time.sleep(1.0)  # a checkpoint of some size
        save()
        if caught.pop() == signal.SIGTERM:
            sys.exit(0)
got.write(f"weights {value}\\n")
"""


def weights(steps: int) -> int:
    """What SCRIPT computes when nothing happens to it."""
    value = 1
    for done in range(1, steps + 1):
        value = value * 6364136223846793005 % 2**61 + done
    return value


class Run:
    """One training in a Slurm job of its own. `kind`: handler or none."""

    def __init__(self, cluster, house, folder: Path, event: str, kind: str, *, plain: bool) -> None:
        self.folder, self.cluster, self.event, self.kind, self.plain = folder, cluster, event, kind, plain
        folder.mkdir(parents=True)
        self.id = cluster.submit(f"srun {self.line(house)}\n", *self.options(), env=self.environment(house))

    def options(self) -> list[str]:
        limit = ["--time=1"] if self.event == "time limit" else []
        return ["--requeue", "--export=ALL", "--ntasks=1", *limit]

    def environment(self, house) -> dict[str, str]:
        return {**house.env, "PYTHONPATH": str(Path(__file__).parents[2])} if self.plain else house.env

    def command(self) -> list[str]:
        script = self.folder / "train.py"
        script.write_text(SCRIPT)
        return [sys.executable, str(script), str(self.folder), str(STEPS), self.kind]

    def line(self, house) -> str:
        command = shlex.join(self.command())
        return command if self.plain else f"{sys.executable} -m carbontui.cli run --requeue --work 1h -- {command}"

    # --- what happened ---

    def lines(self) -> list[str]:
        with contextlib.suppress(OSError):
            return (self.folder / "got").read_text().splitlines()
        return []

    def received(self, word: str) -> list[str]:
        return [line for line in self.lines() if line.startswith(word)]

    def stepped(self) -> list[int]:
        return [int(line) for line in self.lines() if line.isdigit()]

    def saved(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads((self.folder / "state.json").read_text())[0])
        return 0

    def until_steady(self) -> None:
        until(lambda: len(self.stepped()) >= 40, 120, f"steps ({self.event}, {self.kind}, plain={self.plain})")

    def until_over(self, timeout_s: float = 150) -> None:
        """The end of the Slurm job; one that waits to be started again is let start now."""
        if self.event not in ("time limit", "scancel"):
            (self.folder / "may_end").touch()

        def over() -> bool:
            state = self.cluster.state(self.id)
            if state == "PENDING" and self.received("life"):
                self.cluster.run("scontrol", "update", f"jobid={self.id}", "StartTime=now", check=False)
                time.sleep(1.0)
            return state not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "")

        until(over, timeout_s, f"the end ({self.event}, {self.kind}, plain={self.plain})")

    def outcome(self) -> dict[str, object]:
        """What a person sees of it, and what was lost: steps that were done and are not in a checkpoint."""
        shown = self.cluster.run("scontrol", "-o", "show", "job", self.id)
        facts = dict(re.findall(r"(\w+)=(\S*)", shown))
        done = self.stepped()
        ended = bool(self.received("weights"))
        repeated = len(done) - len(set(done))
        return {
            "state": facts["JobState"],
            # of a shell that says what its last command died of, or of one that is gone with it
            "exit": facts["ExitCode"].replace("143:0", "0:15"),
            "handler": len(self.received("handler")),
            "lives": len(self.received("life")),
            "lost": repeated + (0 if ended else max(done, default=0) - self.saved()),
            "weights": ended and self.right(),
        }

    def jobs(self, house) -> list[int]:
        """Of each job of carbontui that this Slurm job has been: how often it had been started again at last."""
        found = [json.loads(path.read_text()) for path in house.home.glob("jobs/*/spec.json")]
        return [spec["attempt"] for spec in found if spec["scheduler"].split()[-1:] == [self.id]]

    def right(self) -> bool:
        """Whether it ended with the weights of a run to which nothing happened."""
        return self.received("weights")[0] == f"weights {weights(self.stepped()[-1])}"


def strike(event: str, runs: list[Run]) -> None:
    """Have it happen to trainings at their steps."""
    for run in runs:
        run.until_steady()
        if event == "USR1":
            run.cluster.run("scancel", "--signal=USR1", run.id)
        elif event == "scancel":
            run.cluster.run("scancel", run.id)
        elif event == "requeue":
            run.cluster.run("scontrol", "requeue", run.id)
    if event == "preemption":
        cluster = runs[0].cluster
        higher = cluster.submit("sleep 3\n", "--partition=high", "--exclusive")
        until(lambda: cluster.state(higher) not in ("PENDING", "CONFIGURING"), 90, "the job that preempts")
