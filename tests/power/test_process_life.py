"""Processes on a board come, stop, go on and die: what the board shows, and what becomes of a limit of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from house import until
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim
from own_lease import new_record

from carbontui.power.agent.core import RETRY_S, Agent
from carbontui.power.agent.processes import restore_stale
from carbontui.power.backends.base import DeviceError, RawReading
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.limit.leases import LeaseStore, stale_leases
from carbontui.power.messages import DesiredPower, Done, Outcome
from carbontui.power.metering.rapl import Host
from carbontui.system import proc

GIB = 2**30
TIMEOUT = 10


@pytest.fixture
def process() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that do nothing, in sessions of their own; ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"], start_new_session=True))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


class Bench:
    """The agent of one job on one board, on the simulation's clock."""

    def __init__(self, sim: Sim, tmp_path: Path, own: int) -> None:
        self.sim, self.own = sim, own
        self.backend = NvmlBackend()
        self.store = LeaseStore(tmp_path / "leases")
        self.told: list[object] = []
        self.agent = Agent(self.told.append, self.backend, Host(), self.store, "job", clock=lambda: sim.get("clock_s"))
        self.agent.open()
        self.uuid = self.backend.devices()[0].uuid

    def wish(self, watts: float | None, gen: int = 1) -> None:
        self.agent.wish(DesiredPower(gen=gen, limit_w=watts, watch=(self.uuid,), own_pids=(self.own,)))

    def seconds(self, count: int, watts: float | None) -> None:
        """The agent's life: a look, a tick and the supervisor's repeated wish each second."""
        for _ in range(count):
            self.sim.advance(1)
            self.agent.sample()
            self.agent.tick()
            self.wish(watts)

    def outcomes(self) -> list[Outcome]:
        """What was told since the last call."""
        found = [outcome for message in self.told if isinstance(message, Done) for outcome in message.outcomes]
        self.told.clear()
        return found

    def sample(self) -> RawReading:
        return self.backend.sample(self.uuid)


def test_a_stopped_process_keeps_its_memory_and_draws_parked_watts(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, job = machine_with(frozen=True), process()
    sim.process(job.pid, memory_b=30 * GIB, level=1.0)
    sim.advance(3)
    board = Bench(sim, tmp_path, job.pid)
    seen = board.sample()
    assert (round(seen.power_w or 0), seen.memory_used_b, seen.util) == (680, 30 * GIB, 1.0)
    stop(job)
    sim.reap()
    sim.advance(3)
    seen = board.sample()
    assert (round(seen.power_w or 0), seen.memory_used_b, seen.util) == (118, 30 * GIB, 0.0)
    job.send_signal(signal.SIGCONT)
    until(lambda: sim.reap() or sim.get("power_w") == 680, what="kernels again")
    job.kill()
    job.wait()
    sim.reap()
    sim.advance(3)
    seen = board.sample()
    assert (round(seen.power_w or 0), seen.memory_used_b, seen.util) == (70, 0, 0.0)
    assert board.backend.processes(board.uuid) == {}


def test_a_process_whose_name_is_not_utf8_is_named_and_refuses_the_cap(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, job = machine_with(frozen=True), process()
    renames = "open('/proc/self/comm', 'wb').write(b'caf\\xe9 \\x1b[2J'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", renames], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline()
        sim.process(job.pid)
        sim.process(stranger.pid)
        board = Bench(sim, tmp_path, job.pid)
        board.wish(300)
        (outcome,) = board.outcomes()
        assert outcome.code == "foreign" and f"(pid {stranger.pid}, caf\ufffd ?[2J)" in outcome.text
        assert sim.get("limit_mw") == 700_000
        stranger.communicate(b"\n")


def test_kernels_in_flight_finish_after_a_stop_and_later_under_a_cap(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, job = machine_with(frozen=True), process()
    sim.process(job.pid)
    board = Bench(sim, tmp_path, job.pid)
    sim.submit(4.0)
    stop(job)
    sim.reap()
    sim.advance(3.9)
    assert sim.get("power_w") == 680, "the host is stopped, the queue is not"
    sim.advance(0.2)
    assert sim.get("power_w") == 118 and sim.get("queued_s") == 0
    before_j = sim.get("energy_j")
    sim.submit(4.0)
    board.wish(300)
    sim.advance(4.0)
    assert sim.get("queued_s") > 0.5 and sim.get("power_w") <= 300, "under a cap the same work takes longer"
    board.wish(None, gen=2)
    rest_s = sim.get("queued_s")
    sim.advance(rest_s)
    assert sim.get("queued_s") == pytest.approx(0, abs=1e-9), "and the rest goes on at full clock"
    assert sim.get("energy_j") - before_j < 4 * 300 + rest_s * 680 + 1


def test_a_foreign_process_takes_the_limit_away_and_its_end_brings_it_back(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, job = machine_with(frozen=True), process()
    sim.process(job.pid, level=1.0)
    sim.advance(3)
    board = Bench(sim, tmp_path, job.pid)
    board.wish(400)
    board.seconds(12, 400)
    assert sim.get("limit_mw") == 400_000
    board.outcomes()
    other = process()
    sim.process(other.pid, level=0.2)
    board.seconds(12, 400)
    (told,) = board.outcomes()
    assert (told.ok, told.code) == (False, "foreign") and f"pid {other.pid}, sleep" in told.text
    assert sim.get("limit_mw") == 700_000 and board.store.all() == []
    board.seconds(25, 400)
    assert board.outcomes() == [] and sim.get("limit_mw") == 700_000, "said once, and left alone while it is there"
    other.kill()
    other.wait()
    board.seconds(int(RETRY_S["foreign"]) + 2, 400)
    assert sim.get("limit_mw") == 400_000, "the cap is still wished"
    assert [outcome.code for outcome in board.outcomes()] == ["applied"]
    board.agent.leave()
    assert sim.get("limit_mw") == 700_000


def test_a_wish_that_ended_meanwhile_is_not_brought_back(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim, job, other = machine_with(frozen=True), process(), process()
    sim.process(job.pid, level=1.0)
    sim.process(other.pid)
    board = Bench(sim, tmp_path, job.pid)
    board.wish(400)
    assert [outcome.code for outcome in board.outcomes()] == ["foreign"]
    board.wish(None, gen=2)
    other.kill()
    other.wait()
    for _ in range(25):
        sim.advance(1)
        board.agent.sample()
        board.agent.tick()
        board.wish(None, gen=2)
    assert sim.get("limit_mw") == 700_000 and sim.get("writes") == 1, "the probe's alone"


def left_behind(uuid: str) -> None:
    """The lease of an agent that died while 400 W stood on a board found at 500 W."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    lease = new_record(uuid, 1, 500_000, (400_000,), "dead")
    LeaseStore().write(msgspec.structs.replace(lease, agent_pid=gone.pid, agent_start=1))


@pytest.mark.parametrize("persistence", [0, 1])
def test_a_driver_that_unloads_with_its_last_client_takes_the_limit_along(
    machine_with: Callable, process: Callable, persistence: int
) -> None:
    sim, job = machine_with(), process()
    sim.set("persistence", persistence)
    sim.process(job.pid)
    sim.set("limit_mw", 500_000)  # an admin's, before the job
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    uuid = client.stdout.readline().strip()
    assert sim.get("limit_mw") == 400_000
    left_behind(uuid)
    for one in (client, job):
        one.kill()
        one.wait()
    sim.reap()
    writes = sim.get("writes")
    if persistence:
        assert sim.get("limit_mw") == 400_000 and sim.get("memory_b") == 0
        assert restore_stale()[0].code == "given_back" and sim.get("limit_mw") == 500_000
    else:
        assert sim.get("limit_mw") == 700_000, "the driver forgot both values"
        (outcome,) = restore_stale()
        assert outcome.ok and outcome.code == "outside"
        assert (sim.get("limit_mw"), sim.get("writes")) == (700_000, writes), "nothing is written"
    assert stale_leases() == ()


CLIENT = """
import time
from carbontui.power.backends.nvml import NvmlBackend
backend = NvmlBackend()
backend.open()
uuid = backend.devices()[0].uuid
backend.set_limit_mw(uuid, 400_000)
print(uuid, flush=True)
time.sleep(600)
"""
HOLDER = """
import ctypes, sys
ctypes.CDLL(sys.argv[1]).nvmlsim_hold(20)
"""


def test_a_client_stopped_inside_the_driver_holds_up_no_reading(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with(frozen=True)
    sim.load(1.0)
    sim.advance(3)
    backend = NvmlBackend()
    backend.open()
    uuid = backend.devices()[0].uuid
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(sim.library)])
    try:
        until(lambda: refused(backend, uuid) == TIMEOUT, what="the holder in the lock")
        stop(holder)
        seen = backend.sample(uuid)
        assert seen.power_w == pytest.approx(680, abs=1) and seen.errors == ()
    finally:
        holder.kill()
        holder.wait()
    assert not proc.exists(holder.pid)
    assert refused(backend, uuid) is None, "the lock of a dead process is free again"


def refused(backend: NvmlBackend, uuid: str) -> int | None:
    try:
        backend.set_limit_mw(uuid, 600_000)
    except DeviceError as error:
        return error.code
    return None
