"""`run --resubmit` on a real Slurm: a successor goes on where its time limit, or dirty hours, had it unloaded."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import sys

import pytest
from house import until
from outcomes import SCRIPT, weights

from carbontui.job.files import store

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(300)]

DIRTY = """\
import os, sys, time, json
from datetime import datetime, timedelta, timezone
import carbontui
from carbontui.client import marker
lives = open(sys.argv[1], "a", buffering=1)
lives.write(f"{time.time()} {sys.argv[2]}\\n")
for step in range(30):
    time.sleep(0.03)
    carbontui.step()
if os.environ.get("CARBONTUI_RESUME") != "1":
    clean = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=15)
    lives.write(f"{clean.timestamp()} clean\\n")
    marker.write(30, clean.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
"""


def submitted(cluster, house, line: str, *options: str) -> str:
    env = {**house.env, "PYTHONPATH": "", "CARBONTUI_PUE": "1"}  # rows are joules before it
    return cluster.submit(f"{sys.executable} -m carbontui.cli run --work 10h --resubmit -- {line}\n", *options, env=env)


def jobs(cluster) -> dict[str, str]:
    rows = cluster.run("squeue", "-h", "-t", "all", "-o", "%i|%k").split("\n")
    return {row.partition("|")[0]: row.partition("|")[2] for row in rows if row}


@pytest.fixture
def one(cluster):
    if cluster.kind != "linuxproc":
        pytest.skip("the same with any process tracking")
    return cluster


def test_it_waits_in_the_queue_for_its_clean_hours_and_goes_on_there(one, house, tmp_path):
    (tmp_path / "train.py").write_text(DIRTY)
    lives = tmp_path / "lives"
    first = submitted(one, house, shlex.join([sys.executable, str(tmp_path / "train.py"), str(lives), "a b"]))
    until(lambda: one.state(first) == "CANCELLED", 60, "the end of the first")
    told = one.output(first)
    assert "continues as Slurm job" in told
    (second,) = {job for job, comment in jobs(one).items() if f'"after": "{first}"' in comment}
    note = json.loads(jobs(one)[second].removeprefix("carbontui:"))
    assert note == {"chain": first, "number": 1, "after": first}
    until(lambda: one.state(second) == "COMPLETED", 150, "the end of the second")
    begun, clean, again = lives.read_text().splitlines()
    assert begun.endswith(" a b") and again.endswith(" a b")
    # Slurm begins a job in its own time, and never before
    assert 0 <= float(again.split()[0]) - float(clean.split()[0]) < 90
    assert "start 2 of the scheduler's job" in one.output(first), "the successor's output follows in the same file"
    assert len(list(house.home.glob("jobs/*/job.json"))) == 1


def test_a_successor_ends_a_training_cut_by_its_time_limit_bit_identically(one, house, tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    (folder / "may_end").touch()
    steps = 1500
    command = [sys.executable, str(tmp_path / "train.py"), str(folder), str(steps), "none"]
    first = submitted(one, house, shlex.join(command), "--time=2")
    until(lambda: one.state(first) == "CANCELLED", 115, "the end of the first before its limit")
    assert "continues as Slurm job" in one.output(first)
    (directory,) = [path.parent for path in house.home.glob("jobs/*/job.json")]
    before = store.snapshot(directory)
    got = lambda: (folder / "got").read_text().splitlines()  # noqa: E731
    until(lambda: any(line.startswith("weights") for line in got()), 150, "the end of the work")
    assert got()[-1] == f"weights {weights(steps)}"
    assert len([line for line in got() if line.startswith("life")]) >= 2
    counted = [line for line in got() if line.isdigit()]
    assert counted == [str(step) for step in range(1, steps + 1)], "no step lost, none made twice"

    # the account is that of one job over both: every joule of either is in the one journal, and in the sum
    assert len(list(house.home.glob("jobs/*/job.json"))) == 1
    after = until(lambda: (s := store.snapshot(directory)) and s.state == "done" and s, 30, "the account of the end")
    assert before.energy_wall_kwh > 0 and after.energy_wall_kwh > before.energy_wall_kwh
    assert after.step == steps

    def booked() -> float:
        with contextlib.closing(sqlite3.connect(f"file:{directory}/journal.db?mode=ro", uri=True)) as journal:
            return (
                float(journal.execute("select sum(joules) from energy where state != 'waiting'").fetchone()[0]) / 3.6e6
            )

    # the last rows come with the supervisor's leaving
    until(lambda: booked() == pytest.approx(store.snapshot(directory).energy_wall_kwh, rel=1e-4), 20, "the last rows")
