"""Clock locks on the simulated NVML with its clock in hand: the second actuator, where a power limit is of no use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim
from own_lease import new_record

from carbontui.job.supervisor.core.rules.calibration import in_force_w
from carbontui.power.backends.nvml import NvmlBackend
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.curves.calibration import (
    Calibration,
    CalibrationInput,
    CalibrationSpec,
    Finished,
    GivenUp,
    Pause,
    Resume,
    TryLimit,
)
from carbontui.power.curves.curve import Curve
from carbontui.power.limit.leases import LeaseStore, stale_leases
from carbontui.power.limit.limiter import Limiter
from carbontui.power.limit.steering import Steering
from carbontui.power.messages import Outcome, Reading, Sample
from carbontui.power.metering.meter import Meter

NO_PERMISSION, NOT_SUPPORTED = 4, 3


class Bench:
    """One board that its job keeps busy, and the limiter that caps it; time is the simulation's."""

    def __init__(self, sim: Sim, store: LeaseStore) -> None:
        self.sim, self.store = sim, store
        sim.load(1.0)
        sim.advance(3)
        self.lines: list[str] = []
        self.backend = NvmlBackend()
        self.backend.open()
        self.limiter = Limiter(self.backend, store, "job", self.lines.append)
        (info,) = self.backend.devices()
        self.uuid = info.uuid
        self.limiter.know(info)
        self.limiter.probe(self.uuid)
        self.sample()

    @property
    def power_w(self) -> float:
        return self.backend.sample(self.uuid).power_w or 0.0

    def sample(self) -> Outcome | None:
        self.sim.advance(1)
        return self.limiter.observe(self.uuid, self.backend.sample(self.uuid), self.sim.get("clock_s"))

    def until_told(self, looks: int = 20) -> Outcome:
        """The first thing that happens by itself."""
        return next(outcome for _ in range(looks) if (outcome := self.sample()) is not None)

    def looks(self, count: int) -> list[Outcome]:
        return [outcome for _ in range(count) if (outcome := self.sample()) is not None]

    def cap(self, watts: float) -> Outcome:
        now_s = self.sim.get("clock_s")
        return self.limiter.apply(self.uuid, watts, allow_raise=False, power_w=self.power_w, now_s=now_s)

    def standing(self) -> tuple[float, float]:
        """What the board was left with: limit in watts, locked clock (0: none)."""
        return self.sim.get("limit_mw") / 1000, self.sim.get("locked_mhz")


@pytest.fixture
def bench(machine_with: Callable, tmp_path: Path) -> Callable[..., Bench]:
    def make(**settings: float) -> Bench:
        sim = machine_with(frozen=True)
        for key, value in settings.items():
            sim.set(key, value)
        return Bench(sim, LeaseStore(tmp_path / "leases"))

    return make


def test_a_limit_without_effect_goes_back_and_the_clock_does_it(bench: Callable[..., Bench]) -> None:
    board = bench(limit_works=0)
    assert board.cap(400).code == "applied"
    told = board.until_told()
    assert (told.ok, told.code, told.watts) == (True, "applied", 400)
    assert "its power limit has no effect" in told.text and "cannot be restored" in told.text
    limit_w, locked_mhz = board.standing()
    lease = board.store.read(board.uuid)
    assert limit_w == 700 and lease is not None and (lease.clocks_mhz, lease.before_mw) == (locked_mhz, 700_000)
    assert board.looks(12) == [] and 0.95 * 400 <= board.power_w <= 1.02 * 400
    assert board.limiter.boards[board.uuid].clocks_w == 400 and not board.limiter.boards[board.uuid].proving
    assert board.limiter.boards[board.uuid].shown().support == "yes"
    assert "cannot be restored" in board.limiter.notices[board.uuid]
    assert board.limiter.release(board.uuid).code == "given_back"
    assert board.standing() == (700, 0) and board.store.all() == [] and board.limiter.notices == {}


def test_a_cap_is_not_called_proven_before_the_watts_are_there(bench: Callable[..., Bench]) -> None:
    board = bench(limit_works=0)
    board.cap(300)
    proven_at_w = []
    for _ in range(30):
        board.sample()
        if not board.limiter.boards[board.uuid].proving:
            proven_at_w.append(board.power_w)
    assert proven_at_w and max(proven_at_w) <= 1.03 * 300


def test_the_same_wish_moves_no_clock_and_another_is_steered_to(bench: Callable[..., Bench]) -> None:
    board = bench(has_limit=0)
    assert board.cap(400).code == "applied"
    board.looks(12)
    locked_mhz = board.standing()[1]
    assert board.cap(400).code == "kept" and board.standing()[1] == locked_mhz
    board.cap(550)
    board.looks(25)
    assert 0.95 * 550 <= board.power_w <= 1.03 * 550, "a higher cap lifts the lock step by step"
    board.sim.load(0.0)
    locked_mhz = board.standing()[1]
    board.looks(20)
    assert board.standing()[1] == locked_mhz, "a parked board tells nothing about clocks"


def test_a_lock_is_proven_by_watts_that_came_down_and_anew_at_every_step() -> None:
    lock = Steering(400.0, 1500, 1980, 1980.0, 0.0)
    assert lock.sample(390.0, 1500.0, 1.0).proving, "too early to tell"
    over = lock.sample(450.0, 1500.0, 4.0)
    assert over.proving and over.sample(None, 1500.0, 5.0).proving
    held = over.sample(395.0, 1500.0, 5.0)
    assert not held.proving and held.at(1400, 6.0).proving


def test_without_watts_a_lock_cannot_be_steered_and_is_given_up(bench: Callable[..., Bench]) -> None:
    board = bench(has_limit=0, has_power=0, has_average=0, has_instant=0, has_fields=0, has_counter=0)
    board.cap(300)
    told = board.until_told()
    assert (told.ok, told.code) == (False, "no_effect") and "watts cannot be read" in told.text
    assert board.standing()[1] == 0 and not board.cap(300).ok


def test_a_lost_board_gets_no_command_that_cannot_work(bench: Callable[..., Bench]) -> None:
    board = bench()
    board.cap(400)
    board.sim.set("lost", 1)
    outcome = board.limiter.release(board.uuid)
    assert not outcome.ok and outcome.fix == "" and "reset of the GPU or a reboot" in outcome.text


def test_clocks_refused_after_a_limit_without_effect(bench: Callable[..., Bench]) -> None:
    board = bench(limit_works=0)
    board.sim.fault("nvmlDeviceSetGpuLockedClocks", NO_PERMISSION)
    board.cap(400)
    told = board.until_told()
    assert (told.ok, told.code) == (False, "no_effect")
    assert "under 400 W" in told.text and "only root lock clocks" in told.text and "-lgc 0,1518" in told.fix
    assert board.standing() == (700, 0) and board.store.all() == []
    again = board.cap(400)
    assert (again.ok, again.code, again.fix) == (False, "no_effect", told.fix)
    assert board.looks(10) == []


def test_clocks_without_effect_either(bench: Callable[..., Bench]) -> None:
    board = bench(limit_works=0, lock_works=0)
    board.cap(400)
    assert board.until_told().ok, "the lock was accepted"
    told = board.until_told()
    assert (told.ok, told.code) == (False, "no_effect") and "ran above" in told.text
    assert board.limiter.boards[board.uuid].clocks_cap().support == "no_effect"
    assert board.standing() == (700, 0) and board.store.all() == []
    assert board.cap(300).code == "no_effect"


def test_a_cap_that_no_clock_holds_is_given_up_with_its_reason(bench: Callable[..., Bench]) -> None:
    board = bench(has_limit=0)
    board.cap(140)  # at its lowest clock this board still draws 152 W
    told = board.until_told(60)
    assert (told.ok, told.code) == (False, "out_of_range") and "even at 297 MHz" in told.text
    assert board.standing()[1] == 0 and board.store.all() == []
    assert board.cap(400).ok, "another cap may hold"


def test_a_lock_that_someone_lifts_is_not_set_again(bench: Callable[..., Bench]) -> None:
    board = bench(has_limit=0)
    board.cap(400)
    board.looks(12)
    board.backend.lock_clocks(board.uuid, 1700)  # an admin's nvidia-smi -lgc
    told = board.until_told()
    assert told.code == "outside" and "changed outside" in board.limiter.notices[board.uuid]
    assert board.looks(10) == [] and board.standing()[1] == 1700, "neither fought nor lifted: it is not ours"
    assert board.store.all() == []


def test_the_lease_names_a_lock_before_it_is_set(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    board = bench(has_limit=0)
    lock, on_disk = board.backend.lock_clocks, []

    def noted(uuid: str, mhz: int | None) -> None:
        lease = board.store.read(uuid)
        on_disk.append((mhz, lease and lease.clocks_mhz))
        lock(uuid, mhz)

    monkeypatch.setattr(board.backend, "lock_clocks", noted)
    board.cap(400)
    board.looks(10)
    assert len(on_disk) > 1 and all(mhz == named for mhz, named in on_disk), "the first and every later one"

    def full(_lease: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(board.store, "write", full)
    told = board.cap(300)
    assert not told.ok and "No space left" in told.text and board.standing()[1] == on_disk[-1][0]


def test_no_clock_is_steered_by_the_watts_of_a_module(bench: Callable[..., Bench]) -> None:
    board = bench(has_limit=0, module_scope=1)
    told = board.cap(400)
    assert (told.ok, told.code) == (False, "not_supported") and "whole module" in told.text
    assert board.standing()[1] == 0 and board.store.all() == []


@pytest.mark.parametrize("code", [NO_PERMISSION, NOT_SUPPORTED])
def test_a_limit_refused_at_run_time_hands_over_once(bench: Callable[..., Bench], code: int) -> None:
    board = bench()
    board.sim.fault("nvmlDeviceSetPowerManagementLimit", code)
    told = board.cap(400)
    assert told.code == "applied" and "its power limit cannot be set" in told.text
    board.looks(12)
    assert board.power_w <= 1.03 * 400 and board.sim.get("writes") == 1, "the probe's write alone"


def test_permission_gone_for_both_is_said_once(bench: Callable[..., Bench]) -> None:
    board = bench()
    board.sim.set("permission", 2)
    told = board.cap(400)
    assert (told.ok, told.code) == (False, "no_permission") and "-pl 400" in told.fix
    assert board.cap(400) == told and board.store.all() == [] and stale_leases(board.store.directory) == ()
    assert board.lines == []


def test_permission_lost_under_a_lock_keeps_the_lease_and_names_the_command(bench: Callable[..., Bench]) -> None:
    board = bench(has_limit=0)
    board.cap(400)
    board.sim.set("permission", 2)
    told = board.until_told()  # steering is refused, and so is lifting
    assert (told.ok, told.code) == (False, "no_permission")
    assert board.standing()[1] > 0 and board.store.read(board.uuid) is not None
    assert board.limiter.notices[board.uuid].endswith("-rgc")
    board.sim.set("permission", 0)
    assert board.limiter.release(board.uuid).ok and board.standing()[1] == 0


def test_a_board_whose_limit_cannot_be_set_is_capped_by_its_clock(bench: Callable[..., Bench]) -> None:
    """Laptop parts name a range and refuse the call."""
    board = bench()
    board.sim.fault("nvmlDeviceSetPowerManagementLimit", NOT_SUPPORTED)
    fresh = Limiter(board.backend, board.store, "job", board.lines.append)
    fresh.know(board.backend.devices()[0])
    fresh.probe(board.uuid)
    assert (
        fresh.boards[board.uuid].shown().support == "unknown"
        and "clocks are locked" in fresh.boards[board.uuid].shown().why
    )
    told = fresh.apply(board.uuid, 400, allow_raise=False, power_w=680.0, now_s=0.0)
    assert told.code == "applied" and board.standing()[1] > 0
    fresh.release_all()
    assert board.standing() == (700, 0)


def test_the_capability_table_says_what_is_known_of_clock_locks(bench: Callable[..., Bench]) -> None:
    board = bench(limit_works=0)
    said = board.limiter.boards[board.uuid].clocks_cap()
    assert said.support == "yes" and "up to 1980 MHz; used only" in said.why and board.standing()[1] == 0, (
        "never probed"
    )
    board.cap(400)
    board.until_told()
    assert board.limiter.boards[board.uuid].clocks_cap().support == "yes"
    board.limiter.release(board.uuid)
    denied = bench(permission=2)
    assert denied.limiter.boards[denied.uuid].clocks_cap().support == "no_permission"


def test_a_monitor_locks_no_clock(bench: Callable[..., Bench]) -> None:
    board = bench(has_limit=0)
    watching = Limiter(board.backend, board.store, "job", board.lines.append, monitor=True)
    watching.know(board.backend.devices()[0])
    outcome = watching.apply(board.uuid, 400, allow_raise=False, power_w=680.0, now_s=0.0)
    assert (outcome.ok, outcome.code) == (False, "not_supported") and board.standing()[1] == 0


def left_by_a_dead_agent(board: Bench) -> None:
    """A lock that nobody lifted, on a board that has a power limit."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    lease = new_record(board.uuid, 5, 700_000, (400_000,), "dead", 1300)
    board.store.write(msgspec.structs.replace(lease, agent_pid=gone.pid, agent_start=1))
    board.backend.lock_clocks(board.uuid, 1300)


def test_a_lock_of_a_dead_agent_is_lifted_and_no_limit_is_written(bench: Callable[..., Bench]) -> None:
    board = bench()
    left_by_a_dead_agent(board)
    (stale,) = stale_leases(board.store.directory)
    assert stale.fix == f"sudo nvidia-smi -i {board.uuid} -rgc" and "1300 MHz" in stale.text
    writes = board.sim.get("writes")
    (outcome,) = board.limiter.restore_stale()
    assert outcome.code == "given_back" and board.standing() == (700, 0)
    assert board.sim.get("writes") == writes and board.store.all() == []


def test_a_successor_steers_on_from_the_lock_it_finds(bench: Callable[..., Bench]) -> None:
    board = bench(limit_works=0)
    left_by_a_dead_agent(board)
    successor = Limiter(board.backend, board.store, "next", board.lines.append)
    successor.know(board.backend.devices()[0])
    assert successor.apply(board.uuid, 400, allow_raise=False, power_w=420.0, now_s=board.sim.get("clock_s")).ok
    lease = board.store.read(board.uuid)
    assert lease is not None and lease.agent_pid == os.getpid() and lease.before_mw == 700_000
    assert 1200 < (lease.clocks_mhz or 0) < 1300, "a step from the lock that stood, not from the full clock"
    assert successor.release(board.uuid).ok and board.standing() == (700, 0)


def test_a_calibration_measures_no_cap_before_it_holds() -> None:
    board = {"uuid": "GPU-1", "name": "board", "limit_w": 700.0}
    assert in_force_w(Reading(**board)) == 700
    assert in_force_w(Reading(**board, clocks_w=400.0, proving=True)) == 0
    assert in_force_w(Reading(**board, clocks_w=400.0)) == 400, "its limit is the one that was found"


def calibrated(board: Bench) -> Curve:
    """The supervisor's part of a calibration: a look each second, and what is asked is done."""
    calibration = Calibration(
        CalibrationSpec(gpu="b", gpus=1, fingerprint="f", can_cap=True, limit_min_w=200.0, limit_found_w=700.0)
    )
    meter, steps, paused = Meter(), 0.0, False
    timed: tuple[float, int] | None = None
    for _ in range(2000):
        speed = board.sim.get("speed")
        board.sim.advance(1)
        steps += 10 * speed
        now_s, look = board.sim.get("clock_s"), board.backend.sample(board.uuid)
        if speed > 0:
            timed = (now_s - (steps - int(steps)) / (10 * speed), int(steps))
        meter.add(Sample(uuid=board.uuid, mono_s=now_s, wall_s=now_s, energy_uj=look.energy_uj, power_w=look.power_w))
        told = board.limiter.observe(board.uuid, look, now_s)
        assert told is None or told.ok, told
        reading = Reading(
            uuid=board.uuid,
            name="board",
            limit_w=(look.limit_mw or 0) / 1000,
            clocks_w=board.limiter.boards[board.uuid].clocks_w,
            proving=board.limiter.boards[board.uuid].proving,
        )
        action = calibration.next(
            CalibrationInput(
                mono_s=now_s,
                wall_s=now_s,
                step=int(steps),
                timed=timed,
                energy_j=meter.joules(),
                energy_mono_s=meter.counted_until_s([board.uuid], now_s),
                limit_w=in_force_w(reading),
                paused=paused,
            )
        )
        if isinstance(action, TryLimit):
            if action.watts_per_gpu is None:
                board.limiter.release(board.uuid)
            else:
                assert board.cap(action.watts_per_gpu).ok
        elif isinstance(action, Pause | Resume):
            paused = isinstance(action, Pause)
            board.sim.load(0.0 if paused else 1.0)
        elif isinstance(action, Finished):
            return action.curve
        assert not isinstance(action, GivenUp), action
    raise AssertionError("never finished")


def test_levels_learnt_under_clock_locks_are_the_boards_own(bench: Callable[..., Bench]) -> None:
    board = bench(limit_works=0)
    curve = calibrated(board)
    caps = [point for point in curve.points if point.kind == "cap"]
    assert len(caps) == 5 and curve.note == ""
    for point in caps:
        assert point.cap_w is not None and 0.95 * point.cap_w < point.power_w < 1.02 * point.cap_w
        true = SimulatedSpec(parked_w=118.0, full_w=680.0, linear_share=0.4, memory_share=0.3).speed(point.power_w)
        assert point.speed == pytest.approx(true, rel=0.03)
    assert board.standing() == (700, 0)
