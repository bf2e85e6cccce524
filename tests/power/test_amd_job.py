"""Whole jobs on AMD boards, on NVIDIA and AMD in one machine, and where amdsmi is there without being of use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from amd_machine import AmdMachine, amd, board  # noqa: F401
from house import House, Job, until
from nvml_machine import machine_with  # noqa: F401


def shown(house: House, *options: str, name: str = "t") -> Job:
    """A job that trains, with its boards in its status."""
    job: Job = house.start(*options, name=name)
    job.until_steps()
    until(lambda: job.status().get("gpus"), what="the boards in status")
    return job


@pytest.fixture
def amd_house(house, amd: Callable[..., AmdMachine], tmp_path: Path):
    """make(boards...) -> (house, machine): jobs of this house see these boards, through amdsmi on PYTHONPATH."""

    def make(*boards: dict) -> tuple[House, AmdMachine]:
        machine = amd(*boards)
        for name in ("AMDSMI_STATE", "PYTHONPATH", "CARBONTUI_CAPD"):
            house.env[name] = os.environ[name]
        for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
            house.env.pop(name, None)
        return house, machine

    return make


def test_a_job_on_amd_boards_is_metered_capped_and_given_back(amd_house: Callable) -> None:
    house, machine = amd_house(board(0), board(1))
    house.env["HIP_VISIBLE_DEVICES"] = "1"
    job = shown(house)
    (gpu,) = job.status()["gpus"]
    assert gpu["name"] == "AMD Instinct MI300X" and gpu["power_w"] == 720.0 and gpu["uuid"] == "GPU-cf1182f2988c0a4d"
    assert job.status()["provenance"]["gpus.0.power_w"]["how"] == "measured"
    assert not machine.get("writes", 1), "nothing is written before a cap is wanted"
    house.cli("cap", "400W", job.id, check=True)
    assert (machine.cap_w(0), machine.cap_w(1)) == (750.0, 400.0)
    house.cli("stop", "--now", "--yes", job.id, check=True)
    assert machine.cap_w(1) == 750.0
    status = job.status()
    assert status["energy_gpu_kwh"] > 0


def test_nothing_is_written_for_who_only_looks(amd_house: Callable) -> None:
    house, machine = amd_house(board(0))
    assert "AMD Instinct MI300X" in house.cli("doctor").stdout
    job = shown(house, "--no-probe", "--budget", "3x", "--work", "1h")
    plain = shown(house, "--no-cap", name="plain")
    assert not machine.get("writes")
    house.cli("cap", "400W", job.id, check=True)
    assert machine.get("writes") == 1 and machine.cap_w() == 400.0, "the cap itself"
    for each in (job, plain):
        house.cli("stop", "--now", "--yes", each.id, check=True)
    assert machine.cap_w() == 750.0


def test_nvidia_and_amd_boards_of_one_machine_are_numbered_through(amd_house: Callable, machine_with: Callable) -> None:
    house, machine = amd_house(board(0))
    sim = machine_with()
    sim.load(1.0)
    house.env |= sim.env()
    job = shown(house)
    until(lambda: len(job.status()["gpus"]) == 2, what="both boards")
    gpus = job.status()["gpus"]
    assert [(gpu["index"], gpu["name"]) for gpu in gpus] == [(0, "NVIDIA H100 80GB HBM3"), (1, "AMD Instinct MI300X")]
    house.cli("cap", "400W", job.id, check=True)
    assert sim.get("limit_mw") == 400_000 and machine.cap_w() == 400.0
    house.cli("stop", "--now", "--yes", job.id, check=True)
    assert sim.get("limit_mw") == 700_000 and machine.cap_w() == 750.0


@pytest.mark.parametrize("how", ["raises", "no boards"])
def test_amdsmi_without_boards_is_as_good_as_none(amd_house: Callable, how: str) -> None:
    house, machine = amd_house(board(0))
    if how == "raises":
        house.env["AMDSMI_BROKEN"] = "KeyError"
    else:
        with machine.state() as state:
            state["boards"] = []
    job: Job = house.start()
    job.until_steps()
    until(lambda: job.status()["power_w"], what="watts")
    logs = "".join(path.read_text() for path in house.root.rglob("carbontui.log"))
    doctor = house.cli("doctor")
    assert job.status()["gpus"] == [] and logs
    assert not {"Traceback", "amdsmi"} & set((logs + doctor.stdout + doctor.stderr).split())
