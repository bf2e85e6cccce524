"""Two real jobs on a simulated NVML under one site budget: limits, a boost, a refused one, and a job nobody steers."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from house import until

sys.path.insert(0, str(Path(__file__).parents[2] / "power"))
from nvml_machine import machine_with  # noqa: F401

pytestmark = pytest.mark.timeout(300)


@pytest.mark.long
def test_two_jobs_share_a_budget_and_make_room_for_a_boost(
    house,
    machine_with,  # noqa: F811
):
    sim = machine_with(2)
    for board in (0, 1):
        sim.load(1.0, device=board)
    house.env |= sim.env() | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    limits = lambda: tuple(sim.get("limit_mw", board) / 1000 for board in (0, 1))  # noqa: E731

    assert "no site budget" in house.cli("site", check=True).stdout
    assert house.cli("site", "--cap", "none").returncode == 2
    assert "site budget 860 W" in house.cli("site", "--cap", "860W", "--ramp", "5kW", check=True).stdout
    jobs = []
    for board in (0, 1):
        house.env["CUDA_VISIBLE_DEVICES"] = str(board)
        jobs.append(house.start("--work", "2h", "--zone", "DE", name=f"j{board}"))
    a, b = jobs
    a.until_steps()
    b.until_steps()
    until(lambda: limits() == (430.0, 430.0), 60, "the same limit on both boards")
    assert "430 W per GPU by the site budget of 860 W" in a.until_state("throttled")["reason"]["text"]
    assert "j0" in house.cli("site", check=True).stdout

    def told() -> bool:
        claims = json.loads(house.cli("site", "--json", check=True).stdout)["claims"]
        return len(claims) == 2 and all(claim["ahead"] and claim["ahead"]["planned"] for claim in claims)

    until(told, 60, "both jobs' plans in the ledger")

    sim.load(0.0, device=1)  # its kernels are the simulation's own: held, the board would seem to draw as before
    house.cli("boost", a.id, check=True)
    held = b.until_state("paused")
    assert "held: the site budget of 860 W has no room" in held["reason"]["text"]
    until(lambda: limits()[0] == 700.0, 60, "the boosted board's full limit")
    house.cli("resume", a.id, check=True)
    until(lambda: limits() == (430.0, 430.0), 60, "both limits again")
    b.until_state("throttled")
    sim.load(1.0, device=1)

    # nobody steers the first any more: it counts in full, and the second makes room
    pids = a.pids()
    for role in ("keeper", "supervisor"):
        os.kill(pids[role], signal.SIGKILL)
    b.until_state("paused", timeout=25)
    assert "counted in full" in house.cli("site", check=True).stdout
    os.kill(pids["child"], signal.SIGKILL)
    b.until_state("running", "throttled", timeout=60)

    house.cli("site", "--cap", "600W", "--ramp", "5kW", check=True)
    until(lambda: limits()[1] == 600.0, 60, "the lower limit")
    refused = house.cli("boost", b.id)
    assert refused.returncode == 4 and "a boost takes 700 W; the site budget of 600 W" in refused.stderr
    sim.set("permission", 2)
    house.cli("site", "--clear", check=True)
    assert "no site budget" in house.cli("site", check=True).stdout
    house.cli("stop", "--now", "--yes", b.id)
