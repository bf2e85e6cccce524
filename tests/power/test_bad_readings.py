"""A driver that reports what cannot be true, loses boards and finds them: nothing of it is shown, learned or obeyed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim

from carbontui.power.agent.core import Agent
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.messages import DesiredPower, Reading, Report
from carbontui.power.metering.meter import Meter
from carbontui.power.metering.rapl import Host


class Bench:
    """The agent of one job on simulated boards and on their clock, with a meter at its end."""

    def __init__(self, sim: Sim, tmp_path: Path) -> None:
        self.sim = sim
        self.meter = Meter()
        self.reports: list[Report] = []
        clock = lambda: sim.get("clock_s")  # noqa: E731
        backend = NvmlBackend(clock)
        self.agent = Agent(
            self._receive, backend, Host(), LeaseStore(tmp_path / "leases"), "job", clock=clock, wall=clock
        )
        self.agent.open()
        self.uuids = tuple(info.uuid for info in backend.devices())
        self.gen = 0

    def _receive(self, message: object) -> None:
        if isinstance(message, Report):
            self.reports.append(message)
            for sample in message.samples:
                self.meter.add(sample)

    def seconds(self, count: int, watts: float | None = None) -> None:
        """The agent's life: each second a look, a tick and the supervisor's repeated wish."""
        self.gen += 1
        for _ in range(count):
            self.sim.advance(1)
            self.agent.wish(DesiredPower(gen=self.gen, limit_w=watts, watch=self.uuids))
            self.agent.sample()
            self.agent.tick()

    @property
    def readings(self) -> list[Reading]:
        return [report.readings.devices[0] for report in self.reports]

    @property
    def reading(self) -> Reading:
        return self.readings[-1]

    def joules_since(self, start_j: float, metered_j: float) -> float:
        """Relative error of what was metered since, against the truth."""
        truth = self.sim.get("energy_j") - start_j
        return (self.meter.joules(self.uuids[0]) - metered_j) / truth - 1


@pytest.fixture
def bench(machine_with: Callable, tmp_path: Path) -> Callable[..., Bench]:
    def make(devices: int = 1, **settings: float) -> Bench:
        sim = machine_with(devices, frozen=True)
        sim.load(1.0)
        for key, value in settings.items():
            sim.set(key, value)
        sim.advance(3)
        return Bench(sim, tmp_path)

    return make


def test_garbage_watts_are_not_shown_and_do_not_give_up_a_cap(bench: Callable[..., Bench]) -> None:
    job = bench()
    job.seconds(5)
    job.sim.set("garbage_w", 3300)
    job.seconds(5)
    job.seconds(25, watts=400)
    assert job.sim.get("limit_mw") == 400_000 and job.sim.get("locked_mhz") == 0
    assert all((reading.power_w or 0) <= 700 for reading in job.readings)
    assert job.reading.power_w is None
    assert job.reading.why["power_w"] == "the driver reports 3700 W, more than a GPU of 700 W can draw"
    assert job.reading.caps["limit"].support == "yes" and job.reading.caps["power"].support == "not_supported"
    job.sim.set("garbage_w", 0)
    job.seconds(5, watts=400)
    assert job.reading.power_w == pytest.approx(400, abs=15) and not job.reading.why


@pytest.mark.parametrize("counter", [1, 0])
def test_no_watts_are_no_watts_and_the_energy_goes_on(bench: Callable[..., Bench], counter: int) -> None:
    job = bench(has_counter=counter)
    job.seconds(20)
    start_j, metered_j = job.sim.get("energy_j"), job.meter.joules(job.uuids[0])
    job.sim.set("power_zero", 1)
    job.seconds(20)
    assert job.reading.power_w is None and "0 W, which no powered GPU draws" in job.reading.why["power_w"]
    job.sim.set("power_zero", 0)
    job.seconds(20)
    assert job.joules_since(start_j, metered_j) == pytest.approx(0, abs=0.02)
    assert counter or job.meter.by_method(job.uuids[0])["gap"] > 19 * 600, "and what was not read is labelled so"


def test_a_power_reading_that_comes_and_goes_costs_no_energy(bench: Callable[..., Bench]) -> None:
    job = bench(has_counter=0)
    job.seconds(5)
    start_j, metered_j = job.sim.get("energy_j"), job.meter.joules(job.uuids[0])
    for _ in range(10):
        for has in (0, 1):
            for key in ("has_power", "has_average", "has_instant"):
                job.sim.set(key, has)
            job.seconds(3)
    assert job.joules_since(start_j, metered_j) == pytest.approx(0, abs=0.02)


def test_a_limit_outside_the_boards_range_is_not_adopted(bench: Callable[..., Bench]) -> None:
    job = bench()
    job.seconds(3, watts=400)
    for garbage in (4_000_000, 1_000):
        job.sim.set("limit_garbage_mw", garbage)
        job.seconds(5, watts=400)
        assert job.reading.limit_w is None and "limit of" in job.reading.why["limit_w"]
    job.sim.set("limit_garbage_mw", 0)
    job.seconds(3, watts=400)
    assert (job.reading.limit_w, job.reading.limit_found_w) == (400.0, 700.0)
    job.seconds(1)
    assert job.sim.get("limit_mw") == 700_000


@pytest.mark.parametrize("away_s", [2, 15, 60])
@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("way", ["calls", "handle", "all but its name", "driver", "power calls", "reset"])
def test_a_board_that_comes_back_is_counted_through_and_capped_within_five_seconds(
    bench: Callable[..., Bench], way: str, capped: bool, away_s: int
) -> None:
    job = bench(2)
    job.seconds(10, watts=400 if capped else None)
    start_j, metered_j = job.sim.get("energy_j"), job.meter.joules(job.uuids[0])
    if way == "driver":
        job.sim.driver(loaded=False)
    elif way == "power calls":
        job.sim.fault("nvmlDeviceGetPower*", 999)
    else:
        job.sim.set("lost", {"calls": 1, "handle": 2, "all but its name": 3, "reset": 2}[way])
    job.seconds(away_s, watts=400)
    if way == "driver":
        job.sim.driver(reload=True)
    elif way == "power calls":
        job.sim.fault("nvmlDeviceGetPower*", count=0)
    else:
        job.sim.set("reset_board" if way == "reset" else "lost", 0)
    job.seconds(5, watts=400)
    assert not job.reading.lost and job.reading.caps["limit"].support == "yes"
    assert (job.sim.get("limit_mw"), job.reading.limit_found_w) == (400_000, 700.0)
    assert not job.reports[-1].readings.notices, "nothing says that it does not answer"
    if way in ("calls", "all but its name"):
        assert job.joules_since(start_j, metered_j) == pytest.approx(0, abs=0.02)
    job.seconds(1)
    assert job.sim.get("limit_mw") == 700_000


def test_a_board_that_was_reset_gets_its_cap_again_and_its_absence_is_not_guessed(bench: Callable[..., Bench]) -> None:
    job = bench()
    job.seconds(10, watts=400)
    job.sim.set("lost", 2)
    job.seconds(15, watts=400)
    metered_j = job.meter.joules(job.uuids[0])
    job.sim.set("reset_board", 1)
    assert job.sim.get("limit_mw") == 700_000
    job.seconds(10, watts=400)
    assert job.sim.get("limit_mw") == 400_000 and job.reading.limit_found_w == 700.0
    assert job.meter.joules(job.uuids[0]) - metered_j < 10 * 700
    job.seconds(1)
    assert job.sim.get("limit_mw") == 700_000


def test_a_board_that_answered_in_part_at_the_start_is_capped_once_it_does(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    job = bench()
    job.sim.fault("nvmlDeviceGetPower*", 999)
    job = Bench(job.sim, tmp_path)
    job.seconds(15, watts=400)
    job.sim.fault("nvmlDeviceGetPower*", count=0)
    job.seconds(10, watts=400)
    assert (job.sim.get("limit_mw"), job.reading.limit_found_w) == (400_000, 700.0)
    job.seconds(1)
    assert job.sim.get("limit_mw") == 700_000


@pytest.mark.parametrize("lost", [2, 3])
def test_a_board_that_was_away_at_the_start_is_found_later(bench: Callable[..., Bench], tmp_path: Path, lost) -> None:
    job = bench(2)
    job.sim.set("lost", lost, device=1)
    job = Bench(job.sim, tmp_path)
    job.seconds(5)
    assert len(job.reports[-1].readings.devices) == 1 and len(job.reports[-1].readings.absent) == 1
    job.sim.set("lost", 0, device=1)
    job.seconds(90)
    assert len(job.reports[-1].readings.devices) == 2 and not job.reports[-1].readings.absent
