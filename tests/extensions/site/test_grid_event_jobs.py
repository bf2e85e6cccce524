"""Real jobs on a simulated NVML asked by a grid event for a third of their watts; one has promised an hour."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from house import until

from carbontui import units

sys.path.insert(0, str(Path(__file__).parents[2] / "power"))
from nvml_machine import machine_with  # noqa: F401

pytestmark = pytest.mark.timeout(400)
JOBS = int(os.environ.get("GRID_EVENT_JOBS", "2"))
PROMISED = JOBS < 8
"""The simulated machine has eight boards at most."""
BOARDS = JOBS + PROMISED
LASTS_S = float(os.environ.get("GRID_EVENT_S", "25"))


@pytest.mark.long
def test_jobs_give_the_watts_that_are_asked_for_and_get_them_back(
    house,
    machine_with,  # noqa: F811
):
    sim = machine_with(BOARDS)
    house.env |= sim.env() | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CARBONTUI_HOST_W": "0"}
    jobs = []
    for board in range(BOARDS):
        sim.load(1.0, device=board)
        house.env["CUDA_VISIBLE_DEVICES"] = str(board)
        promised = ("--work", "1h", "--budget", "1.0x") if board == JOBS else ()
        jobs.append(house.start("--intensity", "300", *promised, pause=0.05, name=f"j{board}"))
    for job in jobs:
        job.until_steps()
        until(lambda job=job: job.status()["state"] == "running", 60, "its running")
    limits = lambda: [sim.get("limit_mw", board) / 1000 for board in range(BOARDS)]  # noqa: E731

    file = house.root / "event.json"
    begin = time.time() + 15
    asked = {"id": "dr1", "start": units.iso(begin), "duration_s": LASTS_S, "within_s": 20, "ramp_s": 5}
    file.write_text(json.dumps(asked | {"shed_w": 0.3 * 680 * JOBS}))
    told = house.cli("site", "--event", file, check=True).stdout
    assert "all of it can be shed" in told
    (shown,) = json.loads(house.cli("site", "--json", check=True).stdout)["events"]
    assert shown["state"] == "pending" and 0.3 * 680 * JOBS < shown["can_shed_w"] < 700 * JOBS

    until(lambda: jobs[0].status()["reason"]["code"] == "event", 60, "the event")
    assert "for the grid event dr1 until" in jobs[0].status()["reason"]["text"]
    until(lambda: json.loads(house.cli("site", "--json", check=True).stdout)["events"][0]["delivered_w"], every=1)
    assert not PROMISED or (limits()[-1] == 700.0 and jobs[-1].status()["state"] == "running")
    until(lambda: time.time() > begin + LASTS_S, LASTS_S + 60, "its end", every=0.5)
    until(lambda: set(limits()) == {700.0}, 60, "the limits of before")
    for job in jobs:
        house.cli("stop", "--now", "--yes", job.id)
    found = json.loads(house.cli("site", "--receipt", "dr1", "--json", check=True).stdout)
    assert found["state"] == "over" and found["baseline_method"] == "the plan in force at its start"
    assert found["steps_lost"] == 0 and found["unmetered_s"] == 0
    assert found["reached_s"] is not None and found["reached_s"] <= 20
    assert found["baseline_w"] == pytest.approx(680 * BOARDS, rel=0.05)
    capped = {one["name"]: one["capped_s"] for one in found["jobs"]}
    assert capped.pop(f"j{JOBS}", 0) == 0 and all(LASTS_S - 10 < seconds <= LASTS_S for seconds in capped.values())
    if "GRID_EVENT_JOBS" in os.environ:
        print(json.dumps(found, indent=1), [job.steps() for job in jobs])
    report = json.loads(house.cli("report", jobs[0].id, "--json", check=True).stdout)
    assert report["split"] is None or report["split"]["event_g"] > 0
    by_state = {part["name"]: part["seconds"] for part in report["by_state"]}
    assert by_state["event"] == pytest.approx(LASTS_S, abs=10)
    lines = house.cli("site", "--receipt", "dr1", check=True).stdout
    assert "steps lost 0" in lines and found["sha256"] in lines
