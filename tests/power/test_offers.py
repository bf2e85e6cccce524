"""What `run` would offer on a machine and the plan then made there are of one mind."""

from __future__ import annotations

import json

import pytest
from house import until
from nvml_machine import machine_with  # noqa: F401
from test_power_job import capped_house  # noqa: F401

TERMS = ("--zone", "DE", "--work", "8h", "--budget", "2x")


def saved(done: dict[str, float | None]) -> float:
    return 1.0 - done["gco2_g"] / done["run_now_g"]


def compared(house) -> tuple[float, float]:
    """Shares of CO2 saved: as offered before, as planned of a job that runs."""
    offer = json.loads(house.cli("solve", *TERMS, "--json", check=True).stdout)
    now = next(one for one in offer["baselines"] if one["name"] == "run now")
    job = house.start(*TERMS)

    def planned():
        status = job.status()
        return status["account"]["whole"] if status["at_end"] and status["certificate"] else None

    return 1.0 - offer["gco2"] / now["gco2"], saved(until(planned, what="a plan", every=0.5))


def test_without_a_gpu(house):
    offered, planned = compared(house)
    assert offered == pytest.approx(planned, abs=0.01)


@pytest.mark.parametrize("capped_house", ["root", "capd"], indirect=True)
def test_with_caps(capped_house):
    offered, planned = compared(capped_house[0])
    assert offered == pytest.approx(planned, abs=0.04), "a plan that waits without caps would save 15 %"
    assert planned > 0.3
