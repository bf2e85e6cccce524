"""Limits that nobody restored: an orphaned agent is ended, a hanging driver waited for, a stranger's limit named."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import until
from later import together
from nvml_machine import machine_with  # noqa: F401
from test_limits_live import agent, doomed, gone
from test_limits_live import until as until_async

from carbontui import paths, protocol
from carbontui.commands.support import talk
from carbontui.power.agent import processes
from carbontui.power.agent.processes import restore_stale
from carbontui.power.limit.leases import LeaseStore, stale_leases
from carbontui.system import proc

pytestmark = together("doomed")  # its agents are found by the name of their job, all over the machine


@pytest.fixture
def orphan(machine_with: Callable) -> Iterator[tuple[object, int]]:
    """(sim, pid of an agent that is stopped and whose supervisor was killed); 400 W is set on its board."""
    sim = machine_with()
    process, agent_pid = doomed()
    os.kill(agent_pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    yield sim, agent_pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(agent_pid, signal.SIGKILL)


def test_an_orphaned_agent_is_named_stale_and_ended_by_who_restores(orphan: tuple) -> None:
    sim, agent_pid = orphan
    (stale,) = stale_leases()
    assert (stale.job, stale.ours_mw) == ("doomed", (400_000,))
    (outcome,) = restore_stale()
    assert outcome.ok and sim.get("limit_mw") == 700_000
    assert gone(agent_pid) and stale_leases() == ()


async def test_the_next_job_ends_an_orphaned_agent_and_takes_its_board_over(orphan: tuple, tmp_path: Path) -> None:
    sim, agent_pid = orphan
    async with agent(tmp_path) as handle:
        (outcome,) = await handle.set_limit(300)
        assert (outcome.ok, sim.get("limit_mw")) == (True, 300_000)
        assert gone(agent_pid) and handle.readings.devices[0].limit_found_w == 700
    assert sim.get("limit_mw") == 700_000


async def test_an_agent_that_hangs_and_holds_nothing_is_ended_by_the_next_of_its_job(
    machine_with: Callable, tmp_path: Path
) -> None:
    machine_with()
    process, agent_pid = doomed("")
    os.kill(agent_pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    try:
        assert stale_leases() == () and agent_pid in processes.orphans("doomed")
        async with agent(tmp_path, job="another"):
            pass
        assert not gone(agent_pid), "of another job"
        async with agent(tmp_path, job="doomed"):
            pass
        await until_async(lambda: gone(agent_pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent_pid, signal.SIGKILL)


async def test_an_agent_whose_supervisor_lives_is_left_alone_and_its_job_is_named(
    machine_with: Callable, tmp_path: Path
) -> None:
    sim = machine_with()
    process, agent_pid = doomed()
    try:
        async with agent(tmp_path) as handle:
            (outcome,) = await handle.set_limit(300)
            assert (outcome.code, outcome.text) == ("held", "job doomed holds this GPU's limit")
        assert not gone(agent_pid) and sim.get("limit_mw") == 400_000
    finally:
        process.kill()
        process.wait()
    until(lambda: sim.get("limit_mw") == 700_000, what="the limit found")


async def test_a_driver_that_hangs_at_the_end_is_waited_for(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    lines: list[str] = []
    async with agent(tmp_path, lines) as handle:
        await handle.set_limit(400)
        sim.fault("*", latency_ms=60_000)
        (outcome,) = await handle.close(timeout_s=0.5)
    assert (outcome.ok, outcome.watts) == (False, 400.0) and "not restored yet" in outcome.text
    assert outcome.fix.startswith("sudo nvidia-smi -i GPU-") and outcome.fix.endswith("-pl 700")
    assert sim.get("limit_mw") == 400_000
    sim.fault("*", count=0)
    await until_async(lambda: sim.get("limit_mw") == 700_000)
    await until_async(lambda: stale_leases() == ())


async def test_a_limit_that_no_lease_accounts_for_is_named_with_the_command(
    machine_with: Callable, tmp_path: Path
) -> None:
    sim = machine_with()
    process, agent_pid = doomed()
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(agent_pid, signal.SIGKILL)
    process.kill()
    process.wait()
    shutil.rmtree(paths.limit_lease_dir())  # the container's own
    assert stale_leases() == () and sim.get("limit_mw") == 400_000
    async with agent(tmp_path) as handle:
        uuid = handle.readings.devices[0].uuid
        await until_async(lambda: bool(handle.readings.notices))
        (notice,) = handle.readings.notices
        assert notice.startswith("its limit is 400 W, the driver's default 700 W")
        assert notice.endswith(f"sudo nvidia-smi -i {uuid} -pl 700")
        await handle.set_limit(300)
        await until_async(lambda: handle.readings.notices == ())
    assert sim.get("limit_mw") == 400_000, "what was found is restored: it may be an administrator's"


async def test_a_job_on_the_same_board_is_named_by_its_job(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    env = {**os.environ, "CARBONTUI_JOB": "7c1d"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env) as other:
        until(lambda: proc.variable(other.pid, "CARBONTUI_JOB"), what="its environment")
        sim.process(other.pid)
        async with agent(tmp_path) as handle:
            (outcome,) = await handle.set_limit(400)
            assert outcome.code == "foreign" and f"job 7c1d (pid {other.pid}) uses this GPU too" in outcome.text
        other.communicate(b"\n")


async def test_a_limit_changed_outside_is_logged_once(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    lines: list[str] = []
    async with agent(tmp_path, lines) as handle:
        await handle.set_limit(400)
        sim.set("limit_mw", 550_000)
        await until_async(lambda: any(outcome.code == "outside" for outcome in handle.outcomes.values()))
        await handle.refresh()
        assert sum("changed outside to 550 W" in line for line in lines) == 1
    assert LeaseStore().all() == []


async def test_a_low_limit_is_named_by_verbs_that_ask_no_driver_until_it_is_lifted(
    machine_with: Callable, tmp_path: Path
) -> None:
    sim = machine_with()
    sim.set("limit_mw", 400_000)
    async with agent(tmp_path) as handle:
        await handle.refresh()
        uuid = handle.readings.devices[0].uuid

    def job_of(board: str) -> protocol.Status:
        gpus = (protocol.Gpu(board, "H100", 300.0, 400.0, None),)
        why = protocol.Reason("plan", "")
        return protocol.Status(job="t", name="t", host="h", measured_at="", state="running", reason=why, gpus=gpus)

    statuses = [job_of("GPU-other"), job_of(uuid)]
    assert talk.low_limits(statuses[:1]) == [], "it is no board of that job"
    (text,) = talk.low_limits(statuses)
    assert "its limit is 400 W, the driver's default 700 W" in text
    sim.set("limit_mw", 700_000)
    async with agent(tmp_path):
        pass
    assert talk.low_limits(statuses) == []


def test_stop_fails_when_the_limit_stays(house, machine_with: Callable) -> None:
    sim = machine_with()
    sim.load(1.0)
    house.env |= sim.env()
    job = house.start()
    job.until_steps()
    until(lambda: job.status().get("gpus"), what="the board in status")
    house.cli("cap", "300W", job.id, check=True)
    sim.set("permission", 2)
    stopped = house.cli("stop", "--now", "--yes", job.id)
    assert stopped.returncode == 1 and "still set: GPU-51a0" in stopped.stderr and "at 300 W" in stopped.stderr
    assert sim.get("limit_mw") == 300_000
    sim.set("permission", 0)
    assert house.cli("doctor", "--repair").returncode == 0 and sim.get("limit_mw") == 700_000


def test_a_hanging_agent_and_a_killed_supervisor_leave_no_limit(house, machine_with: Callable) -> None:
    sim = machine_with()
    sim.load(1.0)
    house.env |= sim.env()
    job = house.start()
    job.until_steps()
    until(lambda: job.status().get("gpus"), what="the board in status")
    house.cli("cap", "300W", job.id, check=True)
    pids = job.status()["pids"]
    os.kill(pids["agent"], signal.SIGSTOP)
    os.kill(pids["supervisor"], signal.SIGKILL)
    stopped = house.cli("stop", "--now", "--yes", job.id)
    assert (stopped.returncode, sim.get("limit_mw")) == (0, 700_000), stopped.stderr
    assert gone(pids["agent"])
