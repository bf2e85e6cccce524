"""Boards of a job whose script names none: those with a process of the job, by what the driver lists."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim

from carbontui.power.agent.core import Agent
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.messages import DesiredPower, Done, Outcome, Readings, Report
from carbontui.power.metering.rapl import Host


@pytest.fixture
def process() -> Iterator[Callable[[], int]]:
    """Starts processes that do nothing, in sessions of their own; returns the pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        started.append(subprocess.Popen(["sleep", "600"], start_new_session=True))
        return started[-1].pid

    yield start
    for one in started:
        one.kill()
        one.wait()


class Bench:
    """The agent of a job that names no board."""

    def __init__(self, sim: Sim, tmp_path: Path) -> None:
        self.sim = sim
        self.readings = Readings()
        self.outcomes: list[Outcome] = []
        clock = lambda: sim.get("clock_s")  # noqa: E731
        backend = NvmlBackend(clock)
        self.agent = Agent(
            self._receive, backend, Host(), LeaseStore(tmp_path / "leases"), "job", clock=clock, wall=clock
        )
        self.agent.open()

    def _receive(self, message: object) -> None:
        if isinstance(message, Report):
            self.readings = message.readings
        elif isinstance(message, Done):
            self.outcomes += message.outcomes

    def seconds(
        self, count: int, own: tuple[int, ...], watts: float | None = None, known: tuple[str, ...] = ()
    ) -> None:
        for _ in range(count):
            self.sim.advance(1)
            self.agent.wish(DesiredPower(gen=1 if watts is None else 2, limit_w=watts, own_pids=own, known=known))
            self.agent.sample()
            self.agent.tick()

    @property
    def watched(self) -> list[int]:
        return [reading.index for reading in self.readings.devices if reading.watched]

    def limits(self) -> list[float]:
        return [self.sim.get("limit_mw", i) for i in range(len(self.readings.devices))]


def test_boards_without_a_process_of_the_job_are_neither_counted_nor_capped(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, own = machine_with(4, frozen=True), process()
    board = Bench(sim, tmp_path)
    board.seconds(3, (own,))
    assert board.watched == [0, 1, 2, 3], "any of them may become its own"
    sim.process(own, device=1, level=1.0)
    sim.process(own, device=2, level=1.0)
    board.seconds(5, (own,))
    assert board.watched == [1, 2] and board.readings.by_process
    board.seconds(3, (own,), 400)
    assert board.limits() == [700_000, 400_000, 400_000, 700_000]


def test_a_cap_set_early_is_taken_from_boards_that_are_not_the_jobs(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, own = machine_with(2, frozen=True), process()
    board = Bench(sim, tmp_path)
    board.seconds(3, (own,), 400)
    assert board.limits() == [400_000, 400_000]
    sim.process(own, device=1, level=1.0)
    board.seconds(5, (own,), 400)
    assert board.limits() == [700_000, 400_000]


def test_a_job_that_is_unloaded_keeps_its_boards(machine_with: Callable, tmp_path: Path, process: Callable) -> None:
    sim, own, again = machine_with(2, frozen=True), process(), process()
    sim.process(own, device=1, level=1.0)
    board = Bench(sim, tmp_path)
    board.seconds(15, (own,))
    assert board.watched == [1]
    board.seconds(15, ())
    assert board.watched == [1], "between two starts"
    sim.process(again, device=0, level=1.0)
    board.seconds(15, (again,))
    assert board.watched == [0]


def test_a_training_that_ended_unseen_had_the_boards_of_the_predecessor(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, own = machine_with(2, frozen=True), process()
    sim.process(own, device=1, level=1.0)
    board = Bench(sim, tmp_path)
    board.seconds(15, (own,))
    (mine,) = (reading.uuid for reading in board.readings.devices if reading.watched)
    heir = Bench(sim, tmp_path / "heir")
    heir.seconds(3, (), known=(mine,))
    assert heir.watched == [1] and heir.readings.by_process


def test_a_job_that_opens_no_board_counts_none_after_a_while(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, own, stranger = machine_with(2, frozen=True), process(), process()
    sim.process(stranger, device=1, level=0.5)
    board = Bench(sim, tmp_path)
    board.seconds(35, (own,), 400)
    assert board.watched == [1], "one that is used may be its own under another number"
    assert board.limits() == [700_000, 700_000] and board.outcomes[-1].code in ("foreign", "given_back")


def test_hidden_processes_on_more_boards_than_the_job_has_processes_forbid_limits(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, own, stranger = machine_with(2, frozen=True), process(), process()
    for device, pid in enumerate((own, stranger)):
        sim.set("pids_hidden", 1, device)
        sim.process(pid, device=device, level=0.5)
    board = Bench(sim, tmp_path)
    board.seconds(5, (own,), 400)
    assert board.limits() == [700_000, 700_000]
    assert {outcome.code for outcome in board.outcomes[-2:]} == {"foreign"}


def test_in_a_container_of_its_own_a_hidden_process_is_the_jobs(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, own = machine_with(1, frozen=True), process()
    sim.set("pids_hidden", 1)
    sim.process(own, level=0.5)
    board = Bench(sim, tmp_path)
    board.seconds(5, (own,), 400)
    assert board.watched == [0] and board.limits() == [400_000]


def test_a_job_whose_processes_are_named_late_is_found_at_once(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, own = machine_with(2, frozen=True), process()
    sim.process(own, device=1, level=1.0)
    board = Bench(sim, tmp_path)
    board.seconds(2, ())
    assert board.watched == [0, 1]
    board.seconds(3, (own,))
    assert board.watched == [1]
