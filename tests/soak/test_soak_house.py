"""The real processes under long disturbance: unloads by the plan, supervisors and viewers killed, nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import test_client_house
from house import until
from leaks import Leaks
from replayed import COUNTING, days, events, lives, start

STEPS, STEP_S = 1900, 0.02
VIEWERS, KILLS = 20, 6


def checksum(total: int) -> int:
    value = 1
    for done in range(1, total + 1):
        value = value * 6364136223846793005 % 2**61 + done
    return value


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_five_unloads_with_supervisors_and_viewers_killed(house):
    """A keeper that replaces a supervisor waits longer each time it lived under 30 s, hence a few kills, spread."""
    script = house.root / "count.py"
    script.write_text(COUNTING)
    argv = [sys.executable, str(script), str(STEPS), str(STEP_S), str(house.root / "state.json")]
    job = start(
        house, argv, grid=days(house.root / "grid.csv"), steps=STEPS, flat_s=STEPS * STEP_S * 1.15, budget="3.6x"
    )
    begun, viewers, kills, leaks = time.monotonic(), 0, 0, Leaks()
    while not (job.dir / "exit.json").exists():
        if viewers < VIEWERS:
            command = [sys.executable, "-m", "carbontui.cli", "log", "-f", job.id]
            viewer = subprocess.Popen(command, env=house.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                viewer.wait(2)
            viewer.kill()
            viewer.wait()
            viewers += 1
        else:
            time.sleep(1)
        leaks.sample(job.pids()["keeper"])
        pid = job.pids().get("supervisor")
        if kills < KILLS and pid and time.monotonic() - begun > 12 * (kills + 1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills += 1
    assert job.until_exit()["code"] == 0
    grown = leaks.check()
    until(lambda: "leaving" in (job.dir / "carbontui.log").read_text(), 30, "the books closed")
    unloads = len(lives(job)) - 1
    figures = {
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}",
        "wall_s": round(time.monotonic() - begun),
        "unloads": unloads,
        "supervisors_killed": kills,
        "supervisors_started": len(events(job, "supervisor")),
        "viewers_killed": viewers,
        "keeper_grew_by": grown,
        "acks": len(events(job, "ack")),
        "steps": job.snapshot()["step"],
        "weights_identical": f"weights {checksum(STEPS)}" in (job.dir / "run.log").read_text(),
    }
    print(json.dumps(figures))
    assert grown and unloads >= 5 and viewers == VIEWERS and kills == KILLS
    assert figures["weights_identical"] and figures["steps"] == STEPS


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_after_a_minute_without_a_word_the_keeper_starts_an_unloaded_job(house):
    begun = time.time()
    assert 60 <= test_client_house.left_alone(house, lambda: "2030-01-01T00:00:00Z", 150) - begun < 120
