"""What `run` would offer on a machine and the plan then made there are of one mind."""

from __future__ import annotations

import json

import pytest
from amd_machine import amd, board  # noqa: F401
from house import until
from nvml_machine import machine_with  # noqa: F401
from test_amd_job import amd_house  # noqa: F401
from test_power_job import BOTH, capped_house  # noqa: F401

WORK = ("--work", "8h", "--budget", "4x")
ZONES = ("DE", "BR-CS", "US-TEX-ERCO", "IN-NO", "JP-TK", "AU-NSW", "US-CAL-CISO", "GB")
WAITS = (0, 1)
"""The levels of a problem that do not run: unloaded, paused."""


def plans_as_offered(house, within: float = 0.01) -> list[str]:
    """The constant levels that were offered, once a job that waits is planned to save as much as the offer said."""
    for zone in ZONES:  # one where it waits at this hour: of a job that runs the watts are measured, which idles here
        terms = ("--zone", zone, *WORK)
        offer = json.loads(house.cli("solve", *terms, "--json", check=True).stdout)
        if offer["levels"][0] in WAITS:
            break
    else:
        pytest.skip("no zone's plan waits at this hour")
    now = next(one for one in offer["baselines"] if one["name"] == "run now")
    offered, job = 1.0 - offer["gco2"] / now["gco2"], house.start(*terms)

    def planned() -> bool:
        whole = job.status()["account"]["whole"]
        return bool(whole and whole["run_now_g"]) and abs(whole["avoided_g"] / whole["run_now_g"] - offered) < within

    until(planned, what=f"a plan that saves {offered:.0%}", every=0.5)
    return [one["name"] for one in offer["baselines"] if one["name"].startswith("constant")]


def test_without_a_gpu(house):
    assert plans_as_offered(house) == ["constant full"]


@BOTH
def test_with_caps_which_it_expects_while_it_waits(capped_house):
    house, sim = capped_house
    sim.load(0.0, context=False)  # idle, as where a job waits: else above idle it would draw nothing
    assert len(plans_as_offered(house)) > 1  # caps


@pytest.mark.parametrize("capped_house", ["capd"], indirect=True)
def test_without_permission_there_are_no_caps(capped_house):
    house, sim = capped_house
    sim.load(0.0, context=False)
    house.env["CARBONTUI_CAPD"] = str(house.root / "none")
    assert plans_as_offered(house) == ["constant full"]


def test_on_amd_boards(amd_house):
    house, _ = amd_house(board(0, level=0.0), board(1, level=0.0))
    assert len(plans_as_offered(house)) > 1
