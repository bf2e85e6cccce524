"""`compare --hosts`: two machines over real sshd, each with a state directory, jobs and a zone of its own."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from house import House, until
from sshd import WHY_NOT, Sshd, client

from carbontui import hooks, units
from carbontui.account.compare import HostFacts, better, moved
from carbontui.protocol import MovesCost

THERE = f"{sys.executable} -m carbontui.cli"


@pytest.fixture
def machines(house, tmp_path):
    """n2 in Sweden and n3 in Poland, both House and server; the house itself is in Germany."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    known, houses = {}, {}
    for name, zone in (("n2", "SE"), ("n3", "PL")):
        root = tmp_path / name
        root.mkdir()
        houses[name] = other = House(root, None)
        other.env["CARBONTUI_ZONE"] = zone
        (root / "sshd").mkdir()
        known[name] = Sshd(root / "sshd", {k: v for k, v in other.env.items() if k.startswith("CARBONTUI_")})
    ssh = client(tmp_path / "bin", known)
    house.env |= {"PATH": f"{ssh.removesuffix('/ssh')}:{house.env['PATH']}", "CARBONTUI_THERE": THERE}
    yield houses
    for name, other in houses.items():
        known[name].stop()
        other.end()


def test_each_machine_is_compared_by_its_own_grid_and_its_own_measured_speed(house, machines):
    drawn = (
        "--steps",
        200_000,
        "--boundary",
        "held",
        "--host-w",
        "100W",
    )  # a script that sleeps draws nothing above idle
    there = machines["n2"].start(*drawn, pause=0.02)
    job = house.start(*drawn, "--zone", "DE", pause=0.06)
    for one in (job, there):
        until(lambda one=one: (s := one.served()) and s.work_total_s and s.at_end, 60, "its work")
    rows = json.loads(house.cli("compare", job.id, "--hosts", "n2,n3", "--json", check=True).stdout)
    here, *others = rows
    by_name = {row["name"]: row for row in others}
    assert here["here"] and here["zone"] == "DE" and here["move"] is None and set(by_name) == {"n2", "n3"}
    assert others[0]["name"] == "n2" and by_name["n2"]["zone"] == "SE" and by_name["n3"]["zone"] == "PL"
    assert by_name["n2"]["gco2_g"] < here["gco2_g"] < by_name["n3"]["gco2_g"]
    assert by_name["n2"]["how"].startswith(f"measured there on job {there.id}") and by_name["n2"]["speed"] > 1.2
    assert "not measured there" in by_name["n3"]["how"] and by_name["n3"]["speed"] == 1.0
    for row in others:
        cost = row["move"]
        assert cost["s"] > 0 and cost["energy_wall_kwh"] > 0 and cost["gco2_g"] > 0
        assert units.from_iso(row["from"]) + cost["s"] + 1.0 < units.from_iso(row["done"])
    told = house.cli("compare", job.id, "--hosts", "n3,n2,n4", check=True).stdout
    assert "<- here" in told and "n2 in SE, from" in told
    assert (f"to move it: carbontui move {job.id} n2" in told) == ("moves" in hooks.own())
    assert "n4" in told, "a machine that does not answer is named"
    staying = house.cli("compare", job.id, "--hosts", "n3", check=True).stdout
    assert "staying is best" in staying
    alone = house.cli("compare", job.id, "--hosts", "n4")
    assert alone.returncode == 3 and len(alone.stderr.splitlines()) == 1


def test_a_job_that_is_over_has_nothing_left_to_move(house):
    (kept,) = (Path(__file__).parents[1] / "golden" / "job").glob("*/journal.db")
    shutil.copytree(kept.parent, house.home / "jobs" / kept.parent.name)
    done = house.cli("compare", kept.parent.name, "--hosts", "n2")
    assert done.returncode == 3 and "nothing of it is left" in done.stderr
    twice = house.cli("compare", kept.parent.name, "--hosts", "n2", "--zones")
    assert twice.returncode == 2 and "exclude each other" in twice.stderr


MOVE = MovesCost(energy_wall_kwh=0.1, gco2_g=30.0, bytes=10**9, s=900.0)


def host(mean_g, speed=1.0, watts=1000.0):
    return HostFacts("n2", "SE", 0.0, 3600.0, mean_g, speed, watts, "measured")


def test_it_moves_for_the_cleanest_hours_that_still_meet_the_deadline():
    grid = [100.0, 100.0, 100.0, 10.0, 10.0, 100.0]
    free = moved(host(grid), 7200.0, MOVE, now_s=0.0, deadline_s=6 * 3600.0)
    assert (free.from_s, free.done_s) == (3 * 3600.0 - 900.0, 5 * 3600.0)
    assert free.row.gco2_g == pytest.approx(2 * 10.0 + 30.0) and free.row.kwh == pytest.approx(2.1)
    tight = moved(host(grid), 7200.0, MOVE, now_s=0.0, deadline_s=8100.0)
    assert (tight.from_s, tight.done_s) == (0.0, 8100.0) and "after the deadline" not in tight.row.how
    late = moved(host(grid), 7200.0, MOVE, now_s=0.0, deadline_s=3600.0)
    assert "after the deadline" in late.row.how
    fast = moved(host([100.0], speed=2.0), 7200.0, MOVE, now_s=0.0, deadline_s=None)
    assert fast.done_s == 900.0 + 3600.0 and fast.row.kwh == pytest.approx(1.1)


def test_a_move_that_costs_more_than_it_saves_is_not_named():
    stay = moved(host([100.0]), 7200.0, MOVE, now_s=0.0, deadline_s=None)
    dear = moved(host([99.0]), 7200.0, MOVE, now_s=0.0, deadline_s=None)
    assert better([stay, dear], 0.05) is None and better([stay], 0.05) is None
    clean = moved(host([10.0]), 7200.0, MOVE, now_s=0.0, deadline_s=None)
    assert better([stay, dear, clean], 0.05) is clean
