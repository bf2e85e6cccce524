"""Joules from the first to the last moment of a training, as status and the journal tell them, against the truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from house import until
from nvml_machine import machine_with  # noqa: F401

from carbontui import link, protocol
from carbontui.job.files import store
from carbontui.job.supervisor.record.energy_ledger import FirstCounts
from carbontui.power.messages import Sample
from carbontui.power.metering.meter import Meter

SCRIPT = """
import sys, time
print(time.monotonic(), flush=True)
time.sleep(float(sys.argv[1]))
print(time.monotonic(), flush=True)
"""
J_PER_KWH = 3.6e6


@pytest.mark.parametrize(("period_s", "duty"), [(0.0, 1.0), (0.25, 0.6)])
def test_a_short_job_is_counted_from_its_first_moment_to_its_last(
    house, machine_with: Callable, period_s: float, duty: float
) -> None:
    sim = machine_with()
    sim.load(1.0, period_s=period_s, duty=duty)
    house.env |= sim.env()
    script = house.root / "short.py"
    script.write_text(SCRIPT)
    job_id = house.cli("run", "--detach", "--", sys.executable, script, "4", check=True).stdout.strip()
    directory = house.home / "jobs" / job_id
    until(lambda: (found := store.load(directory)) and not found.live, 60, "the end of the job")
    began_s, ended_s = map(float, (directory / "run.log").read_text().split())
    status = json.loads((directory / "snapshot.json").read_text())
    mean_w = duty * 680 + (1 - duty) * 118
    # Python's own start and end, about 0.1 s, is the job's too
    assert status["energy_gpu_kwh"] * J_PER_KWH == pytest.approx(mean_w * (ended_s - began_s), rel=0.06)


def test_a_status_has_the_joules_up_to_the_moment_it_names(house, machine_with: Callable) -> None:
    sim = machine_with()
    sim.load(1.0)
    house.env |= sim.env()
    job = house.start()
    job.until_steps()
    until(lambda: job.status().get("gpus"), what="the board in status")
    socket = store.load(job.dir).socket

    def told() -> tuple[float, float]:
        status = link.ask(socket, protocol.StatusAsk(1)).status
        return status.energy_gpu_kwh * J_PER_KWH, sim.get("energy_j")

    first_j, first_truth_j = told()
    for _ in range(12):
        time.sleep(0.13)  # at ever another moment between two samples of the agent
        joules, truth_j = told()
        assert joules - first_j == pytest.approx(truth_j - first_truth_j, abs=0.25 * 680)


def test_a_board_without_a_counter_is_read_from_the_start_on_until_an_agent_is_there(
    machine_with: Callable, tmp_path: Path
) -> None:
    sim = machine_with()
    sim.set("has_counter", 0)
    sim.load(0.0)
    script = Path(__file__).parents[2] / "carbontui" / "power" / "backends" / "first_count.py"
    target = tmp_path / "first-count.json"
    process = subprocess.Popen([sys.executable, "-I", "-S", script, target], env={**os.environ, **sim.env()})
    (row,) = until(lambda: target.exists() and json.loads(target.read_text()), what="the first row")
    sim.load(1.0)
    until(lambda: json.loads(target.read_text())[0][4] > 2.0 * row[4], what="a mean that has risen")
    process.kill()
    process.wait()
    (_, start_s, wall_s, _, mean_mw) = json.loads(target.read_text())[0]
    sample = Sample(uuid=row[0], mono_s=start_s + 6, wall_s=wall_s + 6, power_w=118.0, kind="avg1s")
    meter = Meter()
    booked = [one for each in (*FirstCounts(tmp_path).before(sample), sample) for one in meter.add(each, unread=True)]
    assert booked[0].method == "gap" and booked[0].joules == pytest.approx(5 * mean_mw / 1000)


def test_the_first_count_names_every_board_and_nothing_without_a_driver(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with(2)
    sim.load(1.0)
    script = Path(__file__).parents[2] / "carbontui" / "power" / "backends" / "first_count.py"
    target = tmp_path / "first-count.json"
    subprocess.run([sys.executable, "-I", "-S", script, target], env={**os.environ, **sim.env()}, check=True)
    rows = json.loads(target.read_text())
    assert [row[0] for row in rows] == [
        "GPU-51a00000-7c1d-4e55-9d3a-000000000000",
        "GPU-51a00001-7c1d-4e55-9d3a-000000000001",
    ]
    counts = FirstCounts(tmp_path)
    sample = Sample(uuid=rows[0][0], mono_s=rows[0][1] + 1, wall_s=rows[0][2] + 1, energy_uj=10**9)
    (first,) = counts.before(sample)
    assert (first.mono_s, first.energy_uj) == (pytest.approx(rows[0][1]), rows[0][3] * 1000)
    assert counts.before(sample) == [], "once"
    late = msgspec.structs.replace(sample, uuid=rows[1][0], mono_s=rows[1][1] + 3600)
    assert counts.before(late) == [], "an hour between is nobody's start"
    bare = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "NVMLSIM"))}
    subprocess.run([sys.executable, "-I", "-S", script, target], env=bare, check=True)
    assert json.loads(target.read_text()) == []
