"""AMD boards through a stand-in for amdsmi: joules, limits and words, whatever the library answers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from amd_machine import AmdMachine, amd, board  # noqa: F401
from test_limits_live import agent, until, wait_for

from carbontui.power.agent import processes, view
from carbontui.power.agent.boards import boards_of, hip_visible
from carbontui.power.agent.core import Agent
from carbontui.power.backends.amd import AmdBackend
from carbontui.power.backends.base import DeviceError
from carbontui.power.limit.leases import LeaseStore, stale_leases
from carbontui.power.messages import DesiredPower, Readings, Report
from carbontui.power.metering.meter import Meter
from carbontui.power.metering.rapl import Host
from carbontui.system import proc

SEEDS = range(24)
FAULTS = ("none", "factor", "stuck", "unit", "no counter")


class AmdJob:
    """An agent on the machine's clock, and what its meter makes of it."""

    def __init__(self, machine: AmdMachine, tmp_path: Path, own: int = 0) -> None:
        self.machine, self.own, self.meter, self.readings = machine, own, Meter(), Readings()
        self.agent = Agent(
            self._receive, AmdBackend(), Host(), LeaseStore(tmp_path / "leases"), "j", clock=self._now, wall=self._now
        )
        self.agent.open()

    def _now(self) -> float:
        with self.machine.state() as state:
            return float(state["clock_s"])

    def _receive(self, message: object) -> None:
        if isinstance(message, Report):
            self.readings = message.readings
            for sample in message.samples:
                if sample.uuid.startswith("GPU-"):
                    self.meter.add(sample)

    def second(self, limit_w: float | None = None, seconds: float = 1.0) -> None:
        self.machine.advance(seconds)
        own = (self.own,) if self.own else ()
        self.agent.wish(DesiredPower(gen=2 if limit_w else 1, own_pids=own, limit_w=limit_w))
        self.agent.sample()


@pytest.mark.parametrize("seed", SEEDS)
def test_joules_are_right_and_never_said_to_be_counted_by_a_wrong_counter(
    amd: Callable[..., AmdMachine], tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    fault = FAULTS[seed % len(FAULTS)]
    field = draw.choice(("average_socket_power", "current_socket_power"))
    machine = amd(board(0, field=field, level=draw.uniform(0.5, 1.0)), frozen=True)
    if fault == "factor":
        machine.set(counter_factor=draw.choice((draw.uniform(0.2, 0.6), draw.uniform(1.4, 2.0))))
    elif fault == "unit":
        machine.set(counter_factor=draw.choice((0.01, 100.0)))
    elif fault == "stuck":
        machine.set(counter_stuck=True)
    elif fault == "no counter":
        machine.set(errors={"energy": draw.choice((2, 3, 40))})
    job = AmdJob(machine, tmp_path)
    job.second()
    begun = machine.true_j()
    for second in range(300):
        if second % 90 == 80:
            machine.set(level=draw.uniform(0.1, 0.3))
        elif second % 90 == 0:
            machine.set(level=draw.uniform(0.5, 1.0))
        job.second(seconds=draw.uniform(0.75, 1.25))
    (reading,) = job.readings.devices
    joules = job.meter.by_method(reading.uuid)
    assert sum(joules.values()) == pytest.approx(machine.true_j() - begun, rel=0.01), (fault, joules)
    assert ("counter" in joules) == (fault == "none"), (fault, joules)


def test_a_board_says_what_it_is_and_what_it_does_not_tell(amd: Callable[..., AmdMachine], tmp_path: Path) -> None:
    machine = amd(board(0), board(1, no_watts=True, errors={"energy": 2, "activity": 2, "vram": 2}), frozen=True)
    job = AmdJob(machine, tmp_path)
    job.second()
    whole, dumb = job.readings.devices
    assert whole.name == "AMD Instinct MI300X" and whole.uuid == "GPU-cf1182f2988c0a4c" and whole.maker == "amd"
    assert (whole.power_w, whole.power_kind, whole.limit_w, whole.temp_c) == (720.0, "unspecified", 750.0, 61.0)
    assert (whole.util, whole.memory_total_b) == (1.0, 192 << 30) and job.readings.driver == "6.10.5"
    assert dumb.power_w is None and dumb.caps["energy"].support == dumb.caps["power"].support == "not_supported"
    assert "nothing is counted without watts" in dumb.caps["energy"].why and dumb.util is None
    assert not any("NVML" in row.why or "NVIDIA" in row.why for row in view.table(job.readings))


@pytest.mark.parametrize("odd_reads", [0, "N/A"])
def test_the_dies_of_a_package_share_its_watts_once(
    amd: Callable[..., AmdMachine], tmp_path: Path, odd_reads: object
) -> None:
    pair = {"name": "AMD Instinct MI250X", "field": "average_socket_power", "range_uw": [0, 560_000_000]}
    boards = [
        board(n, cap_uw=560_000_000, default_uw=560_000_000, **pair, **({"second": n - 1} if n % 2 else {}))
        for n in range(4)
    ]
    for one in boards:
        one["odd_reads"] = odd_reads
    machine = amd(*boards, frozen=True)
    job = AmdJob(machine, tmp_path)
    for _ in range(30):
        job.second()
    assert [reading.power_w for reading in job.readings.devices] == [560.0, 560.0]
    assert job.meter.joules() == pytest.approx(2 * 560.0 * 29, rel=0.01)
    infos = AmdBackend()
    infos.open()
    found = infos.devices()
    assert hip_visible({"HIP_VISIBLE_DEVICES": "1,2"}, found) == tuple(info.uuid for info in found)
    assert hip_visible({"HIP_VISIBLE_DEVICES": "1"}, found) == (found[0].uuid,)
    assert boards_of((found[1].dies[1],), found) == (found[1].uuid,), "each die has its own name"


def test_variables_of_rocm_choose_the_boards(amd: Callable[..., AmdMachine]) -> None:
    amd(*(board(n, hip_id=(n + 1) % 3) for n in range(3)), frozen=True)
    backend = AmdBackend()
    backend.open()
    a, b, c = (info.uuid for info in backend.devices())
    found = backend.devices()
    assert hip_visible({}, found) == (c, a, b), "numbered as HIP does"
    assert hip_visible({"HIP_VISIBLE_DEVICES": "0"}, found) == (c,)
    assert hip_visible({"CUDA_VISIBLE_DEVICES": "1"}, found) == (a,)
    assert hip_visible({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "2"}, found) == (b,)
    assert hip_visible({"ROCR_VISIBLE_DEVICES": f"{b},0", "HIP_VISIBLE_DEVICES": "1"}, found) == (c,)
    assert hip_visible({"ROCR_VISIBLE_DEVICES": "2,7,0"}, found) == (b,)
    assert hip_visible({"HIP_VISIBLE_DEVICES": ""}, found) == ()
    letters = b.removeprefix("GPU-").encode().hex()
    torch_says = f"GPU-{letters[:8]}-{letters[8:12]}-{letters[12:16]}-{letters[16:20]}-{letters[20:]}"
    assert boards_of((torch_says,), found) == (b,), "as torch writes them"


def test_a_board_that_was_lost_at_the_start_is_capped_once_it_is_back(
    amd: Callable[..., AmdMachine], tmp_path: Path
) -> None:
    machine = amd(board(0, errors=dict.fromkeys(("power", "energy", "cap", "clock"), 31)), frozen=True)
    job = AmdJob(machine, tmp_path, own=os.getpid())
    job.second(seconds=15)
    machine.set(errors={}, processes=[{"pid": os.getpid(), "mem": 60 << 30, "gfx": 1.0}])
    for _ in range(3):
        job.second(400.0)
    assert machine.get("cap_uw") == 400_000_000
    job.agent.leave()
    assert machine.get("cap_uw") == 750_000_000


def test_two_programs_on_one_board_each_have_their_part(amd: Callable[..., AmdMachine], tmp_path: Path) -> None:
    ours, other = (subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2))
    try:
        parts = [{"pid": ours.pid, "mem": 40 << 30, "gfx": 0.6}, {"pid": other.pid, "mem": 40 << 30, "gfx": 0.2}]
        machine = amd(board(0, processes=parts), frozen=True)
        job = AmdJob(machine, tmp_path, own=ours.pid)
        for _ in range(30):
            job.second()
        (reading,) = job.readings.devices
        assert reading.share == pytest.approx(0.75, abs=0.06) and reading.foreign_pids == (other.pid,)
        machine.set(processes=parts[:1])
        for _ in range(12):
            job.second()
        assert job.readings.devices[0].share is None
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_a_cap_that_is_taken_without_effect_is_replaced_by_the_clock(
    amd: Callable[..., AmdMachine], tmp_path: Path
) -> None:
    machine = amd(board(0, cap_works=False), frozen=True)
    job = AmdJob(machine, tmp_path)
    for _ in range(40):
        job.second(500.0)
    (reading,) = job.readings.devices
    assert machine.cap_w() == 750.0, "given back"
    assert reading.clocks_w == 500.0 and (reading.power_w or 999) <= 510 and machine.get("lock_mhz")
    job.second()
    assert machine.get("lock_mhz") == 0


@pytest.mark.parametrize("how", ["refuses lower", "no range", "fixed"])
def test_a_board_that_takes_no_cap_is_capped_by_its_clock(
    amd: Callable[..., AmdMachine], tmp_path: Path, how: str
) -> None:
    fields = {
        "refuses lower": {"refuses_lower": True},
        "no range": {"range_uw": ["N/A", "N/A"]},
        "fixed": {"range_uw": [750_000_000, 750_000_000]},
    }[how]
    machine = amd(board(0, **fields), frozen=True)
    job = AmdJob(machine, tmp_path)
    for _ in range(40):
        job.second(500.0)
    (reading,) = job.readings.devices
    assert machine.cap_w() == 750.0 and (reading.power_w or 999) <= 510, reading.caps
    if how == "fixed":
        assert reading.caps["power_limit"].why == "its power limit is fixed at 750 W"
    job.second()
    assert machine.get("lock_mhz") == 0


SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from carbontui.power.agent.handle import AgentHandle

async def main():
    handle = AgentHandle(log=lambda line: None, cwd=Path(sys.argv[1]), job=sys.argv[2])
    await handle.start()
    while not handle.readings.devices:
        await asyncio.sleep(0.01)
    await handle.set_limit(float(sys.argv[3]))
    print(handle.pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await handle.close()

asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.timeout(240)
def test_limits_are_back_after_every_death(amd: Callable[..., AmdMachine], tmp_path: Path) -> None:
    """Twenty ends, drawn by seed: of the supervisor, of its agent, of both at once, by request."""
    machine = amd(board(0), board(1, range_uw=[750_000_000, 750_000_000]))
    draw, back = random.Random(7), []
    for n in range(20):
        words = [str(tmp_path), f"job{n}", str(draw.choice((300, 450, 600)))]
        supervisor = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert supervisor.stdin is not None and supervisor.stdout is not None
        agent_pid = int(supervisor.stdout.readline())
        assert machine.cap_w() < 750 and machine.get("lock_mhz", 1)
        how = draw.choice(("asked", "supervisor", "agent", "both", "terminated"))
        if how in ("agent", "both"):
            os.kill(agent_pid, 9)
        if how in ("supervisor", "both"):
            supervisor.kill()
        elif how == "terminated":
            supervisor.terminate()
        else:
            supervisor.stdin.close()
        supervisor.wait()
        wait_for(lambda pid=agent_pid: not proc.exists(pid))
        processes.restore_stale()
        back.append((how, machine.cap_w(0), machine.get("lock_mhz", 1), len(stale_leases())))
    assert [found[1:] for found in back] == [(750.0, 0, 0)] * 20, back


async def test_without_permission_the_maker_s_own_command_is_the_mend(
    amd: Callable[..., AmdMachine], tmp_path: Path
) -> None:
    machine = amd(board(0, denied=True))
    async with agent(tmp_path) as handle:
        await until(lambda: handle.readings.devices[0].caps["limit"].support == "no_permission")
        fix = handle.readings.devices[0].caps["limit"].fix
        assert "amd-smi set --gpu 0000:c1:00.0 --power-cap 600" in fix and "nvidia" not in fix.lower()
    assert not machine.get("writes")
    machine.set(denied=False)
    async with agent(tmp_path) as handle:
        await handle.set_limit(400)
        machine.set(denied=True)
        (outcome,) = await handle.close()
    assert outcome.fix == "sudo amd-smi set --gpu 0000:c1:00.0 --power-cap 750"
    assert stale_leases()[0].fix == outcome.fix


@pytest.mark.parametrize("error", ["OSError", "KeyError", "AttributeError"])
def test_an_import_that_raises_is_no_amd_board_and_prints_nothing(
    amd: Callable[..., AmdMachine], monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    amd()
    monkeypatch.setenv("AMDSMI_BROKEN", error)
    mend = subprocess.run(processes.command("--mend"), capture_output=True, text=True, check=True)
    assert (mend.stdout, mend.stderr) == ("[]", "")
    with pytest.raises(DeviceError) as found:
        AmdBackend().open()
    assert found.value.code == 12


def test_rocm_without_boards_and_without_a_driver_are_silent(amd: Callable[..., AmdMachine]) -> None:
    machine = amd()
    with machine.state() as state:
        state["boards"] = []
    backend = AmdBackend()
    backend.open()
    assert backend.devices() == ()
    with machine.state() as state:
        state["errors"] = {"init": 34}
    with pytest.raises(DeviceError) as found:
        AmdBackend().open()
    assert found.value.code == 12


def test_a_function_that_a_version_does_not_have_costs_its_field_alone(
    amd: Callable[..., AmdMachine], tmp_path: Path
) -> None:
    machine = amd(frozen=True)
    import amdsmi

    kept = {"machine", "settle", "amdsmi_get_processor_handles", "amdsmi_get_power_info"}
    for name in [name for name in dir(amdsmi) if name.startswith(("amdsmi_", "AmdSmi")) and name not in kept]:
        delattr(amdsmi, name)
    amdsmi.amdsmi_init = lambda *_: None
    job = AmdJob(machine, tmp_path)
    job.second()
    (reading,) = job.readings.devices
    assert reading.power_w == 720.0 and reading.caps["limit"].support == "not_supported"
    assert sys.modules["amdsmi"] is amdsmi
