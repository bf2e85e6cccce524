"""Signals of a real Slurm: the script's handler runs as often with carbontui as without, and its own save finishes.

Whether Slurm signals every process of a job, or only the one it started, depends on how it follows processes and on how
it is asked. The plain run says what is right in each case.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from pathlib import Path

import pytest
from house import until

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(300)]

SCRIPT = """\
import signal, sys, time
import carbontui
got = open(sys.argv[1], "a", buffering=1)
ending = []
def handle(number, frame):
    got.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGTERM:
        ending.append(number)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, handle)
for step in range(100_000):
    time.sleep(0.01)
    carbontui.step()
    if step == 20:
        got.write("steady\\n")
    if ending:
        time.sleep(1.0)
        got.write("saved\\n")
        sys.exit(0)
"""
WAYS = {
    "step": ("srun {command}", ["--signal=USR1"]),
    "batch": ("exec {command}", ["--batch", "--signal=USR1"]),
    "all": ("{command}", ["--full", "--signal=USR1"]),
    "cancel": ("{command}", []),
    "cancel of a step": ("srun {command}", []),
}
"""How the script stands in the job, and what scancel is told."""


class Submitted:
    """The script in a Slurm job, plain or under carbontui."""

    def __init__(self, cluster, house, folder: Path, line: str, *, plain: bool) -> None:
        folder.mkdir()
        self.cluster = cluster
        self.got = folder / "got"
        (folder / "train.py").write_text(SCRIPT)
        command = shlex.join([sys.executable, str(folder / "train.py"), str(self.got)])
        if not plain:
            command = f"{sys.executable} -m carbontui.cli run --work 1h -- {command}"
        root = Path(__file__).parents[2]
        env = {**house.env, "PYTHONPATH": str(root)} if plain else house.env
        self.id = cluster.submit(line.format(command=command) + "\n", "--export=ALL", env=env)

    def lines(self) -> list[str]:
        with contextlib.suppress(OSError):
            return self.got.read_text().splitlines()
        return []

    def until_steady(self) -> None:
        until(lambda: "steady" in self.lines(), 60, "a training at its steps")

    def signal(self, *how: str) -> None:
        self.cluster.run("scancel", *how, self.id, check=False)

    def end(self) -> None:
        self.signal("--full", "--signal=KILL")
        self.signal()
        until(lambda: self.cluster.state(self.id) not in ("RUNNING", "COMPLETING"), 60, "the end of the job")


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_runs_as_often_as_in_the_plain_run(cluster, house, tmp_path, way):
    line, how = WAYS[way]
    if cluster.kind == "pgid" and way not in ("step", "batch"):
        pytest.skip("the batch shell dies of it first, and the plain script is cut off or not: a race of Slurm's own")
    received = {}
    for plain in (True, False):
        job = Submitted(cluster, house, tmp_path / ("plain" if plain else "under"), line, plain=plain)
        job.until_steady()
        job.signal(*how)
        expected = "SIGUSR1" if how else "saved"
        until(lambda job=job, expected=expected: expected in job.lines(), 30, f"{expected} ({way}, plain={plain})")
        if not plain and not how:
            until(lambda job=job: job.cluster.state(job.id) == "CANCELLED", 30, "the end")
        time.sleep(1.5)  # a second delivery would come within the keeper's patience, half a second
        received[plain] = [name for name in job.lines() if name != "SIGCONT"]
        job.end()
    assert received[False] == received[True]
