"""Limits through a real agent on the simulated NVML: restored after every death, never above what was found."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nvml_machine import machine_with  # noqa: F401

from carbontui.power.agent import handle as handle_module
from carbontui.power.agent.handle import AgentHandle
from carbontui.power.agent.processes import restore_stale
from carbontui.power.limit.leases import LeaseStore, stale_leases
from carbontui.system import proc


@asynccontextmanager
async def agent(tmp_path: Path, lines: list[str] | None = None, **options: object) -> AsyncIterator[AgentHandle]:
    log = lines if lines is not None else []
    handle = AgentHandle(log=log.append, cwd=tmp_path, **{"job": "test", **options})  # type: ignore[arg-type]
    await handle.start()
    try:
        await until(lambda: bool(handle.readings.devices))
        yield handle
    finally:
        await handle.close()


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "never came true"
        await asyncio.sleep(0.01)


def wait_for(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.005)


async def test_cap_reads_back_and_is_given_back_on_close(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    sim.load(1.0)
    async with agent(tmp_path) as handle:
        reading = handle.readings.devices[0]
        assert (reading.limit_w, reading.limit_found_w, reading.caps["limit"].support) == (700.0, 700.0, "yes")
        (outcome,) = await handle.set_limit(400)
        assert (outcome.ok, outcome.code, outcome.watts) == (True, "applied", 400.0)
        assert sim.get("limit_mw") == 400_000
        await until(lambda: (handle.readings.devices[0].power_w or 999) <= 400)
        (outcome,) = await handle.set_limit(400)
        assert outcome.code == "kept"
        (outcome,) = await handle.set_limit(None)
        assert outcome.code == "given_back" and sim.get("limit_mw") == 700_000
        await handle.set_limit(300)
        (outcome,) = await handle.close()
        assert outcome.ok and sim.get("limit_mw") == 700_000
    assert LeaseStore().all() == []


async def test_never_above_what_was_found_without_allow_raise(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    sim.set("limit_mw", 500_000)
    async with agent(tmp_path) as handle:
        (outcome,) = await handle.set_limit(650)
        assert outcome.ok and sim.get("limit_mw") == 500_000
        (outcome,) = await handle.set_limit(650, allow_raise=True)
        assert outcome.code == "applied" and sim.get("limit_mw") == 650_000
        (outcome,) = await handle.set_limit(100)
        assert (outcome.ok, outcome.code) == (False, "out_of_range") and "200-500 W" in outcome.text
    assert sim.get("limit_mw") == 500_000


async def test_successor_takes_before_from_the_lease(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    async with agent(tmp_path) as handle:
        await handle.set_limit(400)
        first = handle.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: handle.pid not in (None, first))
        await until(lambda: LeaseStore().all()[0].agent_pid == handle.pid)
        assert LeaseStore().all()[0].before_mw == 700_000, "taken from the device, 400 W would be 'before' now"
        assert sim.get("limit_mw") == 400_000, "the wish still stands"
        await until(lambda: handle.readings.devices[0].limit_found_w == 700)
    assert sim.get("limit_mw") == 700_000


async def test_without_a_power_limit_the_clock_is_locked_and_let_go(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    sim.set("has_limit", 0)
    sim.load(1.0)
    async with agent(tmp_path) as handle:
        await until(lambda: (handle.readings.devices[0].power_w or 0) > 600)
        (outcome,) = await handle.set_limit(400)
        assert outcome.code == "applied" and "cannot be restored" in outcome.text
        assert LeaseStore().all()[0].clocks_mhz == sim.get("locked_mhz")
        await until(lambda: any("clocks are locked" in notice for notice in handle.readings.notices))
        (outcome,) = await handle.set_limit(None)
        assert outcome.code == "given_back" and sim.get("locked_mhz") == 0
    assert LeaseStore().all() == [] and sim.get("writes") == 0


def test_a_clock_lock_is_lifted_after_every_death(machine_with: Callable) -> None:
    sim = machine_with()
    sim.set("has_limit", 0)
    sim.load(1.0)
    process, agent_pid = doomed()
    assert sim.get("locked_mhz") > 0
    process.send_signal(signal.SIGSTOP)
    os.kill(agent_pid, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_for(lambda: gone(agent_pid))
    assert stale_leases()[0].fix.endswith("-rgc")
    assert restore_stale()[0].ok and sim.get("locked_mhz") == 0 and stale_leases() == ()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_agent_never_leaves_a_limit_behind(machine_with: Callable, number: int) -> None:
    sim = machine_with()
    process, agent_pid = doomed()
    process.send_signal(signal.SIGSTOP)  # nobody replaces the agent
    os.kill(agent_pid, number)
    if number == signal.SIGTERM:
        wait_for(lambda: sim.get("limit_mw") == 700_000)
        wait_for(lambda: gone(agent_pid))
    else:
        time.sleep(0.2)
        assert not gone(agent_pid) and sim.get("limit_mw") == 400_000, "a terminal's signals are not for it"
    process.kill()
    process.wait()
    wait_for(lambda: sim.get("limit_mw") == 700_000)
    assert stale_leases() == ()


SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from carbontui.power.agent.handle import AgentHandle
async def main():
    handle = AgentHandle(log=lambda line: None, cwd=Path("/"), job="doomed")
    await handle.start()
    (outcome,) = await handle.set_limit(float(sys.argv[1]) if sys.argv[1] else None)
    print(outcome.code, handle.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def gone(pid: int) -> bool:
    """Ended, even where nobody has reaped it yet."""
    return proc.start_time(pid) is None


def doomed(watts: str = "400") -> tuple[subprocess.Popen[str], int]:
    """A supervisor to be killed, and the pid of its agent, which has set `watts` ('': no limit)."""
    process = subprocess.Popen([sys.executable, "-c", SUPERVISOR, watts], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    code, pid = process.stdout.readline().split()
    assert code == "applied" or not watts
    return process, int(pid)


def test_killed_supervisor_the_agent_gives_back_and_leaves(machine_with: Callable) -> None:
    sim = machine_with()
    process, agent_pid = doomed()
    assert sim.get("limit_mw") == 400_000
    process.kill()
    process.wait()
    wait_for(lambda: sim.get("limit_mw") == 700_000)
    wait_for(lambda: gone(agent_pid))
    assert stale_leases() == ()


def test_stopped_supervisor_then_killed_agent_leaves_a_lease_that_mend_honours(machine_with: Callable) -> None:
    sim = machine_with()
    process, agent_pid = doomed()
    process.send_signal(signal.SIGSTOP)  # nobody replaces the agent
    os.kill(agent_pid, signal.SIGKILL)
    process.kill()
    process.wait()
    wait_for(lambda: gone(agent_pid))
    assert sim.get("limit_mw") == 400_000
    (stale,) = stale_leases()
    assert (stale.before_mw, stale.ours_mw, stale.job) == (700_000, (400_000,), "doomed")
    assert stale.fix == f"sudo nvidia-smi -i {stale.uuid} -pl 700"
    (outcome,) = restore_stale()
    assert outcome.code == "given_back" and sim.get("limit_mw") == 700_000
    assert stale_leases() == () and restore_stale() == ()


async def test_the_next_agent_mends_what_all_dead_ones_left(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    process, agent_pid = doomed()
    process.send_signal(signal.SIGSTOP)
    os.kill(agent_pid, signal.SIGKILL)
    process.kill()
    process.wait()
    await until(lambda: len(stale_leases()) == 1)
    async with agent(tmp_path) as handle:
        await until(lambda: sim.get("limit_mw") == 700_000)
        assert handle.readings.devices[0].limit_found_w == 700
    assert stale_leases() == ()


async def test_without_permission_the_reason_and_the_mend(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    sim.set("permission", 2)
    async with agent(tmp_path) as handle:
        cap = handle.readings.devices[0].caps["limit"]
        await until(lambda: handle.readings.devices[0].caps["limit"].support != "unknown")
        cap = handle.readings.devices[0].caps["limit"]
        assert cap.support == "no_permission" and "-pl 560" in cap.fix
        (outcome,) = await handle.set_limit(400)
        assert (outcome.ok, outcome.code) == (False, "no_permission") and outcome.fix == cap.fix
    assert sim.get("limit_mw") == 700_000 and sim.get("writes") == 0 and LeaseStore().all() == []


async def test_permission_lost_keeps_the_lease_and_prints_the_command(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    async with agent(tmp_path) as handle:
        await handle.set_limit(400)
        sim.set("permission", 2)
        (outcome,) = await handle.close()
        assert (outcome.ok, outcome.code) == (False, "no_permission")
        assert outcome.fix.startswith("sudo nvidia-smi -i GPU-") and outcome.fix.endswith("-pl 700")
    assert len(stale_leases()) == 1
    sim.set("permission", 0)
    assert restore_stale()[0].ok and sim.get("limit_mw") == 700_000


async def test_a_foreign_process_on_the_gpu_forbids_the_limit(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        sim.process(other.pid)
        async with agent(tmp_path) as handle:
            uuid = handle.readings.devices[0].uuid
            (outcome,) = await handle.set_limit(400)
            assert (outcome.ok, outcome.code) == (False, "foreign")
            assert f"pid {other.pid}, sleep" in outcome.text
            handle.watch((uuid,), own_pids=(other.pid,))
            (outcome,) = await handle.set_limit(400)
            # the wish stood when the process became ours: perhaps it was carried out already
            assert outcome.code in ("applied", "kept") and sim.get("limit_mw") == 400_000
    finally:
        other.kill()
        other.wait()
    assert sim.get("limit_mw") == 700_000


async def test_a_change_from_outside_is_adopted_not_fought(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    lines: list[str] = []
    async with agent(tmp_path, lines) as handle:
        await handle.set_limit(400)
        sim.set("limit_mw", 550_000)
        await until(lambda: any(outcome.code == "outside" for outcome in handle.outcomes.values()))
        assert sim.get("limit_mw") == 550_000
        assert any("changed outside to 550 W" in notice for notice in handle.readings.notices) or lines
        handle.watch(None, own_pids=(os.getpid(),))
        first = handle.pid
        assert first is not None
        killed_s = time.monotonic()
        os.kill(first, signal.SIGKILL)
        await until(lambda: handle.pid not in (None, first) and handle.readings.mono_s > killed_s)
        assert sim.get("limit_mw") == 550_000, "nor by the same wish told again"
        (outcome,) = await handle.set_limit(450)
        assert outcome.code == "applied"
    assert sim.get("limit_mw") == 550_000, "what the other wrote is what is restored"


async def test_a_limit_without_effect_is_found_out_and_the_clock_takes_over(
    machine_with: Callable, tmp_path: Path
) -> None:
    sim = machine_with()
    sim.set("limit_works", 0)
    sim.load(1.0)
    lines: list[str] = []
    async with agent(tmp_path, lines) as handle:
        uuid = handle.readings.devices[0].uuid
        await until(lambda: (handle.readings.devices[0].power_w or 0) > 600)
        (outcome,) = await handle.set_limit(400)
        assert (outcome.code, outcome.text) == ("applied", "")
        await until(lambda: handle.readings.devices[0].proving)
        await until(lambda: "its power limit has no effect" in handle.outcomes[uuid].text)
        assert handle.outcomes[uuid].ok and any("still drew 680 W under 400 W" in line for line in lines)
        assert sim.get("limit_mw") == 700_000 and sim.get("locked_mhz") > 0
        await until(lambda: handle.readings.devices[0].clocks_w == 400)
        await until(lambda: handle.readings.devices[0].limit_w == 700)
        (outcome,) = await handle.set_limit(400)
        assert outcome.code == "kept"
        (outcome,) = await handle.close()
        assert outcome.code == "given_back" and sim.get("locked_mhz") == 0
    assert LeaseStore().all() == []


async def test_a_second_job_on_the_gpu_only_watches(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    async with agent(tmp_path) as first, agent(tmp_path) as second:
        await first.set_limit(400)
        (outcome,) = await second.set_limit(300)
        assert (outcome.ok, outcome.code) == (False, "held")
        assert sim.get("limit_mw") == 400_000
        await first.set_limit(None)
        # the wish of the second stands, and is carried out once the first has let go
        await until(lambda: sim.get("limit_mw") == 300_000)
    assert sim.get("limit_mw") == 700_000


async def test_only_the_childs_gpus_are_touched(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with(2)
    async with agent(tmp_path) as handle:
        first, second = (reading.uuid for reading in handle.readings.devices)
        handle.watch((second,))
        (outcome,) = await handle.set_limit(400)
        assert outcome.uuid == second
        assert (sim.get("limit_mw", 0), sim.get("limit_mw", 1)) == (700_000, 400_000)
        handle.watch((first,))
        await until(lambda: sim.get("limit_mw", 0) == 400_000 and sim.get("limit_mw", 1) == 700_000)


async def test_mig_names_the_reason(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    sim.set("mig", 1)
    async with agent(tmp_path) as handle:
        (outcome,) = await handle.set_limit(400)
        assert (outcome.ok, outcome.code) == (False, "not_supported") and "MIG" in outcome.text
        reading = handle.readings.devices[0]
        assert reading.util is None and "MIG" in reading.why["util"]


async def test_monitor_never_writes(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    async with agent(tmp_path, monitor=True) as handle:
        (outcome,) = await handle.set_limit(400)
        assert not outcome.ok
    assert sim.get("writes") == 0


async def test_a_hung_driver_ages_the_reading_and_costs_the_agent_only(
    machine_with: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle_module.messages, "HUNG_S", 2.5)
    sim = machine_with()
    lines: list[str] = []
    async with agent(tmp_path, lines) as handle:
        await handle.set_limit(400)
        first, last = handle.pid, handle.readings.mono_s
        sim.fault("nvmlDeviceGetUtilizationRates", latency_ms=60_000)
        await until(lambda: handle.pid not in (None, first))
        assert handle.readings.age_s(time.monotonic()) > 2 and handle.readings.mono_s >= last
        assert any("the driver is not answering" in line for line in lines)
        sim.fault("nvmlDeviceGetUtilizationRates", count=0)
        await until(lambda: handle.readings.age_s(time.monotonic()) < 1)
        assert handle.readings.devices[0].limit_found_w == 700
    assert sim.get("limit_mw") == 700_000


def test_a_hung_getter_does_not_keep_the_limit(machine_with: Callable) -> None:
    sim = machine_with()
    process, agent_pid = doomed()
    sim.fault("nvmlDeviceGetUtilizationRates", latency_ms=60_000)
    time.sleep(1.2)  # the sampler is in the driver now
    process.kill()
    process.wait()
    wait_for(lambda: sim.get("limit_mw") == 700_000)
    wait_for(lambda: gone(agent_pid))


async def test_a_lost_gpu_is_named_and_the_other_goes_on(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with(2)
    async with agent(tmp_path) as handle:
        sim.set("lost", 1, device=0)
        await until(lambda: handle.readings.devices[0].lost)
        first, second = handle.readings.devices
        assert first.caps["power"].support == "lost" and "reboot" in first.caps["power"].fix
        assert second.power_w is not None and not second.lost


async def test_a_gpu_lost_before_the_start_is_named_too(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with(2)
    sim.set("lost", 1, device=0)
    async with agent(tmp_path) as handle:
        await until(lambda: bool(handle.readings.devices))
        assert [reading.index for reading in handle.readings.devices] == [1]
        assert any("GPU 0 does not answer" in text for text in handle.readings.notices)


async def test_a_driver_reload_is_opened_again(machine_with: Callable, tmp_path: Path) -> None:
    sim = machine_with()
    async with agent(tmp_path) as handle:
        sim.driver(reload=True)
        await until(lambda: "power_w" in handle.readings.devices[0].why)
        await until(lambda: handle.readings.devices[0].power_w is not None)


async def test_no_driver_at_all_still_reads_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("CARBONTUI_LEASE_DIR", str(tmp_path / "leases"))
    handle = AgentHandle(log=lambda line: None, cwd=tmp_path, job="test")
    await handle.start()
    await until(lambda: handle.readings.host.cpu_w is not None)
    if not handle.readings.devices:
        assert (handle.readings.backend, await handle.set_limit(300)) == ("none", ())
    await handle.close()
