"""What boards, driver and platform do on their own: other limits, ranges of one value, errors, missing calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from drawn import drawn
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim

from carbontui.job.supervisor.core.view.notices import condition_notices
from carbontui.power.agent import view
from carbontui.power.agent.core import Agent
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.messages import DesiredPower, Readings, Report
from carbontui.power.metering.rapl import Host


class OneJob:
    """An agent on the simulation's clock."""

    def __init__(self, sim: Sim, tmp_path: Path) -> None:
        self.sim, self.readings, self.gen = sim, Readings(), 0
        self.outcomes: list[str] = []
        clock = lambda: sim.get("clock_s")  # noqa: E731
        store = LeaseStore(tmp_path / "leases")
        self.agent = Agent(self._receive, NvmlBackend(clock), Host(), store, "j", clock=clock, wall=clock)
        self.agent.open()

    def _receive(self, message: object) -> None:
        if isinstance(message, Report):
            self.readings = message.readings
        self.outcomes += [outcome.text for outcome in getattr(message, "outcomes", ())]

    def seconds(self, count: int, limit_w: float | None = None) -> None:
        self.gen += 1
        for _ in range(count):
            self.sim.advance(1.0)
            self.agent.wish(DesiredPower(gen=self.gen, limit_w=limit_w))
            self.agent.sample()

    @property
    def notices(self) -> list[str]:
        return [drawn(line) for line in condition_notices(self.readings.devices)]


def test_a_limit_that_the_platform_holds_lower_is_shown_beside_ours(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with(frozen=True)
    sim.load(1.0)
    job = OneJob(sim, tmp_path)
    job.seconds(2)
    assert job.readings.devices[0].enforced_w is None and job.notices == []
    sim.set("enforced_mw", 450_000)
    job.seconds(14, 600.0)
    (reading,) = job.readings.devices
    assert (reading.limit_w, reading.enforced_w) == (600.0, 450.0) and reading.power_w <= 452
    assert job.notices == ["GPU 0 is held at 450 W by the platform; its limit is 600 W"]
    assert any("now 600 W, held at 450 W by the platform" in row.why for row in view.table(job.readings))
    job.seconds(8, 400.0)
    assert job.readings.devices[0].enforced_w is None, "ours is lower"
    job.seconds(2)
    assert sim.get("limit_mw") == 700_000


@pytest.mark.parametrize("span", [(700_000, 700_000), (0, 0)])
def test_a_range_of_one_value_is_no_range(machine_with: Callable, tmp_path: Path, span: tuple[int, int]) -> None:
    sim = machine_with(frozen=True)
    sim.load(1.0)
    sim.set("limit_min", span[0])
    sim.set("limit_max", span[1] or 700_000)
    if not span[1]:
        sim.fault("nvmlDeviceGetPowerManagementLimitConstraints", 13)
    job = OneJob(sim, tmp_path)
    job.seconds(30, 400.0)
    why = job.readings.devices[0].caps["power_limit"].why
    assert why == ("its power limit is fixed at 700 W" if span[1] else "this GPU names no range for its power limit")
    assert sim.get("writes") == 0 and (job.readings.devices[0].power_w or 999) <= 410, "its clock does it"


def test_a_limit_rounded_to_whole_steps_is_told_as_it_is(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with(frozen=True)
    job = OneJob(sim, tmp_path)
    job.agent.backend.set_limit_mw = lambda _uuid, mw: sim.set("limit_mw", mw // 25_000 * 25_000)
    job.seconds(2, 410.0)
    assert job.outcomes == ["this GPU takes 400 W, not 410 W"]
    assert job.readings.devices[0].limit_found_w == 700.0
    job.seconds(2)
    assert sim.get("limit_mw") == 700_000


CALLS = (
    *("nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"),
    *("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementLimitConstraints"),
    *("nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetArchitecture"),
    *("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetClockInfo", "nvmlDeviceGetName"),
    *("nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    *("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetTotalEccErrors"),
    *("nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlDeviceGetMigMode"),
    *("nvmlSystemGetDriverVersion", "nvmlDeviceSetPowerManagementLimit"),
)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_missing_costs_its_figure_alone(
    machine_with: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    sim = machine_with(frozen=True)
    sim.load(1.0)
    monkeypatch.delattr(pynvml, call)
    job = OneJob(sim, tmp_path)
    job.seconds(12, 400.0)
    job.seconds(2)
    (reading,) = job.readings.devices
    counted = reading.caps["energy"].support == "yes"
    assert (counted or reading.power_w is not None) and reading.name and not reading.lost
    assert sim.get("limit_mw") == 700_000
