"""Whose watts: a board that several jobs use is split, a machine's CPUs too, and the parts add up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim
from test_ownership import process  # noqa: F401

from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.view import notices
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options
from carbontui.power.agent.core import Agent
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.limit.leases import LeaseStore
from carbontui.power.messages import DesiredPower, Readings, Report
from carbontui.power.metering.rapl import Host
from carbontui.power.metering.shares import CpuSeconds, CpuTime, board_share, cpu_share

GB = 2**30


class Job:
    """One job's agent on the simulation's clock, and its account of the boards' joules."""

    def __init__(self, sim: Sim, tmp_path: Path, name: str, own: int) -> None:
        self.sim, self.own, self.readings = sim, own, Readings()
        clock = lambda: sim.get("clock_s")  # noqa: E731
        folder = tmp_path / name
        folder.mkdir()
        words = dict.fromkeys(("dir", "cwd", "log", "socket"), str(folder))
        options = Options(job=name, name=name, argv=("true",), created_s=clock(), **words)
        self.account = Accounting(options, Clock(), Journal(folder / "j.db"), "boot")
        store = LeaseStore(tmp_path / "leases")
        self.agent = Agent(self._receive, NvmlBackend(clock), Host(), store, name, clock=clock, wall=clock)
        self.agent.open()

    def _receive(self, message: object) -> None:
        if isinstance(message, Report):
            self.readings = message.readings
            watched = frozenset(r.uuid for r in message.readings.devices if r.watched)
            boards = [sample for sample in message.samples if sample.uuid not in ("cpu", "dram")]
            self.account.meter_samples(boards, "running", watched)

    def second(self) -> None:
        self.agent.wish(DesiredPower(gen=1, own_pids=(self.own,)))
        self.agent.sample()

    @property
    def joules(self) -> float:
        return self.account.ledger.gpu_j


def run(sim: Sim, jobs: list[Job], seconds: int) -> None:
    for _ in range(seconds):
        sim.advance(1.0)
        for job in jobs:
            job.second()


@pytest.mark.parametrize("levels", [(0.7, 0.3), (0.5, 0.1), (0.45, 0.55)])
def test_two_jobs_on_one_board_each_count_their_own_part(
    machine_with: Callable, tmp_path: Path, process: Callable, levels: tuple[float, float]
) -> None:
    sim = machine_with(1, frozen=True)
    pids = [process(), process()]
    jobs = [Job(sim, tmp_path, f"job{n}", pid) for n, pid in enumerate(pids)]
    run(sim, jobs[:1], 2)
    sim.process(pids[0], level=levels[0], memory_b=40 * GB)
    run(sim, jobs, 30)  # the second imports its libraries meanwhile
    sim.process(pids[1], level=levels[1], memory_b=10 * GB)
    run(sim, jobs, 60)
    sim.process(pids[0], level=0.0, memory_b=40 * GB)  # parked
    run(sim, jobs, 30)
    truth = [sim.process_j(pid) for pid in pids]
    for job, true_j in zip(jobs, truth, strict=True):
        assert job.joules == pytest.approx(true_j, rel=0.10)
    assert sum(job.joules for job in jobs) == pytest.approx(sum(truth), rel=0.02)
    (reading,) = jobs[1].readings.devices
    assert reading.share is not None and 0.5 < reading.share < 1 and reading.foreign_pids == (pids[0],)


def test_three_jobs_on_two_boards_add_up(machine_with: Callable, tmp_path: Path, process: Callable) -> None:
    sim = machine_with(2, frozen=True)
    pids = [process(), process(), process()]
    jobs = [Job(sim, tmp_path, f"job{n}", pid) for n, pid in enumerate(pids)]
    for device, n, level, memory in ((0, 0, 0.8, 30), (0, 1, 0.2, 30), (1, 1, 0.3, 10), (1, 2, 0.6, 60)):
        sim.process(pids[n], device=device, level=level, memory_b=memory * GB)
    run(sim, jobs, 5)
    begun = [job.joules for job in jobs]
    true_begun = [
        sum(sim.process_j(pid, device=d) for d in on) for pid, on in zip(pids, ([0], [0, 1], [1]), strict=True)
    ]
    run(sim, jobs, 120)
    true = [sum(sim.process_j(pid, device=d) for d in on) for pid, on in zip(pids, ([0], [0, 1], [1]), strict=True)]
    counted = [job.joules - before for job, before in zip(jobs, begun, strict=True)]
    truth = [now - before for now, before in zip(true, true_begun, strict=True)]
    for mine, true_j in zip(counted, truth, strict=True):
        assert mine == pytest.approx(true_j, rel=0.10)
    assert sum(counted) == pytest.approx(sum(truth), rel=0.02)


def test_a_board_that_cannot_be_split_is_counted_whole_and_said(
    machine_with: Callable, tmp_path: Path, process: Callable
) -> None:
    sim = machine_with(1, frozen=True)
    sim.set("no_process_util", 1)
    own, stranger = process(), process()
    sim.process(own, level=0.5)
    sim.process(stranger, level=0.5)
    job = Job(sim, tmp_path, "job", own)
    run(sim, [job], 20)
    (reading,) = job.readings.devices
    assert reading.foreign_pids and reading.share is None
    assert any("are counted here" in drawn(line) for line in notices.board_notices([reading], 0.0))


parts = st.dictionaries(st.integers(1, 50), st.tuples(st.integers(0, 10**11), st.floats(0, 100)), min_size=1)


@settings(max_examples=200, deadline=None)
@given(parts, st.floats(0, 2000), st.floats(0, 2000))
def test_the_parts_of_a_board_add_up(users, power_w, idle_w) -> None:
    memory, kernels = {p: m for p, (m, _) in users.items()}, {p: k for p, (_, k) in users.items()}
    found = [board_share(power_w, idle_w, memory, kernels, frozenset({pid})) for pid in users]
    assert all(0 <= part <= 1 + 1e-9 for part in found) and sum(found) == pytest.approx(1.0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 8), min_size=1, max_size=6), st.floats(0, 8), st.floats(0, 16))
def test_the_parts_of_a_machine_add_up(jobs, others, idle) -> None:
    busy = sum(jobs) + others
    found = [cpu_share(CpuSeconds(busy + idle, busy, own), len(jobs)) for own in jobs]
    assert all(0 <= part <= 1 + 1e-9 for part in found) and sum(found) <= 1 + 1e-9
    if not others:
        assert sum(found) == pytest.approx(1.0)


def test_cpu_time_is_that_of_the_jobs_processes_and_of_their_dead_children() -> None:
    """Two real jobs, one of which burns its CPU in short-lived children; the machine is made up around them."""
    burn = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass"
    spin = f"input()\n{burn.format(0.2)}\nprint(1, flush=True)\ninput()"
    child = f"{sys.executable} -c '{burn.format(0.3)}'"
    shell = f"read x; {child}; {child}; echo 1; read y"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    one = subprocess.Popen([sys.executable, "-c", spin], **pipes)
    two = subprocess.Popen(["/bin/sh", "-c", shell], **pipes)
    busy = [0]
    clocks = [CpuTime(lambda: (1000 * busy[0], 100 * busy[0])) for _ in range(2)]
    for clock in clocks:
        clock.jobs_here.count = lambda: 1  # other tests' agents run on this machine
    try:
        for clock, job in zip(clocks, (one, two), strict=True):
            clock.part((job.pid,), 0.0)
        for job in (one, two):
            job.stdin.write("go\n")
            job.stdin.flush()
        for job in (one, two):
            assert job.stdout.readline() == "1\n"
        busy[0] = 1  # one second of CPU time was spent by all, of ten
        found = [clock.part((job.pid,), 20.0).share for clock, job in zip(clocks, (one, two), strict=True)]
    finally:
        for job in (one, two):
            job.kill()
            job.communicate()
    alone = [cpu_share(CpuSeconds(10, 1, own), 1) for own in (0.2, 0.6)]
    assert found == [pytest.approx(wanted, rel=0.12) for wanted in alone]


def test_under_a_batch_system_the_cpu_time_is_that_of_its_cgroup(tmp_path: Path) -> None:
    place = tmp_path / "cgroups" / "system.slice" / "slurmstepd.scope" / "job_7"
    place.mkdir(parents=True)
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n")
    ticks = [0]
    clock = CpuTime(lambda: (1000 * ticks[0], 400 * ticks[0]), str(tmp_path), tmp_path / "cgroups")
    clock.part((), -20.0)
    shares = []
    for spent in (5_000_000, 6_000_000):  # one of the four busy seconds
        (place / "cpu.stat").write_text(f"usage_usec {spent}\nuser_usec 1\n")
        shares.append(clock.part((11,), 20.0 * ticks[0]).share)
        ticks[0] += 1
    assert shares[0] is None  # what it had spent before is not of that time
    assert shares[1] == pytest.approx(cpu_share(CpuSeconds(10, 4, 1), 1))
