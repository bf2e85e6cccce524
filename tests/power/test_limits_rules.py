"""Rules of limits that need no process: the order of writes, the dead-man, leases of other boots, the owner's epoch."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import msgspec
import pytest
from own_lease import new_record

from carbontui.power.agent.core import Agent
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, RawReading
from carbontui.power.limit import board as steps
from carbontui.power.limit import leases
from carbontui.power.limit.leases import LeaseRecord, LeaseStore, is_stale, stale_leases
from carbontui.power.limit.limiter import Limiter
from carbontui.power.messages import DEAD_MAN_S, DesiredPower, Outcome
from carbontui.power.metering.rapl import Host
from carbontui.text.boards import limit_command

UUID = "GPU-fake"


class FakeBoard(Backend):
    """One board that notes what the lease on disk said at each write."""

    name, driver = "fake", "1"

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.now_mw = 700_000
        self.writes: list[tuple[int, LeaseRecord | None]] = []
        self.refuse: int | None = None
        self.rounding = 0

    def devices(self) -> tuple[DeviceInfo, ...]:
        return (DeviceInfo(uuid=UUID, name="Fake", index=0, limit_min_mw=200_000, limit_max_mw=700_000),)

    def sample(self, uuid: str) -> RawReading:
        return RawReading(power_w=300.0, kind="avg1s", limit_mw=self.now_mw)

    def limit_mw(self, uuid: str) -> int:
        return self.now_mw

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        if self.refuse is not None:
            raise DeviceError(self.refuse, "refused")
        self.writes.append((milliwatts, self.store.read(uuid)))
        self.now_mw = milliwatts - self.rounding


@pytest.fixture
def store(tmp_path: Path) -> LeaseStore:
    return LeaseStore(tmp_path / "leases")


@pytest.fixture
def board(store: LeaseStore) -> FakeBoard:
    return FakeBoard(store)


def limiter(board: FakeBoard, store: LeaseStore) -> Limiter:
    made = Limiter(board, store, "job", lambda line: None)
    made.know(board.devices()[0])
    return made


def cap(made: Limiter, watts: float, now_s: float = 0.0):
    return made.apply(UUID, watts, allow_raise=False, power_w=300.0, now_s=now_s)


def seen(made: Limiter, watts: float, now_s: float, *, limit_mw: int = 400_000, reasons: int = 0):
    return made.observe(UUID, RawReading(power_w=watts, kind="avg1s", limit_mw=limit_mw, reasons=reasons), now_s)


def test_the_lease_is_on_disk_before_the_first_write(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    assert cap(made, 400).ok
    assert cap(made, 300).ok
    (first, lease1), (second, lease2) = board.writes
    assert (first, second) == (400_000, 300_000)
    assert lease1 is not None and (lease1.before_mw, lease1.ours_mw) == (700_000, (400_000,))
    # until the second write is known to have happened, either value may be ours
    assert lease2 is not None and (lease2.before_mw, lease2.ours_mw) == (700_000, (400_000, 300_000))


def test_without_a_lease_nothing_is_written(
    board: FakeBoard, store: LeaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = limiter(board, store)

    def full(_lease: LeaseRecord) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write", full)
    outcome = cap(made, 400)
    assert not outcome.ok and "No space left" in outcome.text and board.writes == []
    assert made.active() == () and made.notices == {}


def test_a_disk_that_fills_up_between_the_writes_forgets_nothing(
    board: FakeBoard, store: LeaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = limiter(board, store)
    cap(made, 400)
    write, calls = store.write, []

    def only_once(lease: LeaseRecord) -> None:
        calls.append(lease)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        write(lease)

    monkeypatch.setattr(store, "write", only_once)
    assert cap(made, 300).code == "applied"
    on_disk = store.read(UUID)
    assert on_disk is not None and on_disk.ours_mw == (400_000, 300_000)
    assert made.release(UUID).code == "given_back" and board.now_mw == 700_000 and store.all() == []


def test_a_driver_that_rounds_is_not_taken_for_someone_else(board: FakeBoard, store: LeaseStore) -> None:
    board.rounding = 400
    made = limiter(board, store)
    assert cap(made, 400).watts == pytest.approx(399.6)
    assert seen(made, 390, 4.0, limit_mw=board.now_mw, reasons=4) is None
    assert made.release(UUID).code == "given_back"


def test_the_same_wish_writes_once(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 400)
    assert cap(made, 400).code == "kept" and len(board.writes) == 1


def test_someone_else_owning_the_lease_stops_writes(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 400)
    taken = msgspec.structs.replace(store.read(UUID), epoch=99)
    store.write(taken)
    outcome = cap(made, 300)
    assert not outcome.ok and board.now_mw == 400_000


def test_a_lease_of_another_boot_is_dropped(board: FakeBoard, store: LeaseStore) -> None:
    store.write(msgspec.structs.replace(new_record(UUID, 1, 500_000, (400_000,), "old"), boot_id="another"))
    assert stale_leases(store.directory) == ()
    made = limiter(board, store)
    assert made.boards[UUID].found_w == 700.0
    made.restore_stale()
    assert store.all() == [] and board.writes == []


def dead_owner() -> tuple[int, int]:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid, 12345


def test_a_stale_lease_restores_only_a_value_that_is_ours(board: FakeBoard, store: LeaseStore) -> None:
    pid, started = dead_owner()
    lease = msgspec.structs.replace(new_record(UUID, 3, 700_000, (400_000,), "old"), agent_pid=pid, agent_start=started)
    store.write(lease)
    assert is_stale(lease) and stale_leases(store.directory)[0].before_mw == 700_000
    board.now_mw = 350_000  # someone has set another value since
    (outcome,) = limiter(board, store).restore_stale()
    assert outcome.code == "outside" and board.now_mw == 350_000 and store.all() == []


def test_an_owner_in_another_pid_namespace_is_known_by_its_lock(board: FakeBoard, store: LeaseStore) -> None:
    pid, started = dead_owner()  # as it looks from here
    lease = new_record(UUID, 3, 700_000, (400_000,), "hidden")
    store.write(msgspec.structs.replace(lease, agent_pid=pid, agent_start=started, pidns=lease.pidns + 1))
    lock = store.lock(UUID)
    assert lock is not None and stale_leases(store.directory) == ()
    os.close(lock)
    assert [stale.job for stale in stale_leases(store.directory)] == ["hidden"]


def test_a_live_owner_is_never_mended_away(board: FakeBoard, store: LeaseStore) -> None:
    store.write(new_record(UUID, 1, 700_000, (400_000,), "mine"))
    board.now_mw = 400_000
    assert stale_leases(store.directory) == ()
    limiter(board, store).restore_stale()
    assert board.now_mw == 400_000


def test_not_permitted_to_give_back_keeps_the_lease_and_names_the_command(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 400)
    board.refuse = 4
    outcome = made.release(UUID)
    assert (outcome.ok, outcome.fix) == (False, f"sudo nvidia-smi -i {UUID} -pl 700")
    assert store.read(UUID) is not None and outcome.fix in made.notices[UUID]
    board.refuse = None
    assert made.release(UUID).ok and store.all() == [] and made.notices == {}


def test_permission_dropped_while_running_is_said_once_and_nothing_is_forgotten(
    board: FakeBoard, store: LeaseStore
) -> None:
    lines: list[str] = []
    made = Limiter(board, store, "job", lines.append)
    made.know(board.devices()[0])
    cap(made, 400)
    board.refuse = 4
    first, second = cap(made, 300), cap(made, 300)
    assert (first.code, second.code) == ("no_permission", "no_permission")
    assert sum("not restored" in line for line in lines) == 1
    kept = store.read(UUID)
    store.write(msgspec.structs.replace(kept, agent_pid=dead_owner()[0]))
    assert "at 400 or 300 W" in stale_leases(store.directory)[0].text
    store.write(kept)
    assert store.read(UUID) is not None and board.now_mw == 400_000
    board.refuse = None
    assert made.release(UUID).code == "given_back" and board.now_mw == 700_000


def test_a_board_that_draws_less_than_its_cap_proves_nothing(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 400)  # it drew 300 W, as while the job was paused
    assert [seen(made, 300, t) for t in (4.0, 5.0, 6.0, 7.0)] == [None] * 4 and not made.boards[UUID].proving
    # now it is put to work, and draws what it likes
    happened = [seen(made, 450, t) for t in (60.0, 61.0, 62.0)]
    assert [outcome and outcome.code for outcome in happened] == [None, None, "no_effect"]
    assert made.boards[UUID].shown().support == "no_effect" and board.now_mw == 700_000
    assert "450 W under 400 W" in made.boards[UUID].shown().why


def test_a_cap_that_must_bind_is_proven_or_given_up(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 250)
    assert seen(made, 300, 2.0, limit_mw=250_000) is None and made.boards[UUID].proving, "control loops take a while"
    happened = [seen(made, 300, t, limit_mw=250_000) for t in (4.0, 5.0, 6.5)]
    assert happened[-1] is not None and happened[-1].code == "no_effect" and board.now_mw == 700_000
    assert cap(made, 250).code == "no_effect" and board.now_mw == 700_000, "not tried again and again"


def test_a_cap_that_was_seen_to_hold_is_not_judged_by_a_later_burst(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 250)
    assert seen(made, 249, 4.0, limit_mw=250_000) is None and not made.boards[UUID].proving
    assert [seen(made, 290, t, limit_mw=250_000) for t in (60.0, 61.0, 63.0)] == [None] * 3


def test_a_pause_between_two_bursts_proves_no_cap(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 250)
    assert seen(made, 80, 4.0, limit_mw=250_000) is None and made.boards[UUID].proving
    happened = [seen(made, 300, t, limit_mw=250_000) for t in (5.0, 6.0, 7.5)]
    assert happened[-1] is not None and happened[-1].code == "no_effect"


def test_watts_of_a_whole_module_judge_no_limit_of_its_gpu(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 250)
    looks = (RawReading(power_w=450.0, kind="module", limit_mw=250_000) for _ in range(6))
    assert [made.observe(UUID, look, 4.0 + t) for t, look in enumerate(looks)] == [None] * 6
    assert board.now_mw == 250_000 and not made.boards[UUID].proving


def test_a_board_that_names_its_cap_as_the_reason_is_believed(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 250)
    assert [seen(made, 270, t, limit_mw=250_000, reasons=4) for t in (4.0, 5.0, 6.5, 9.0)] == [None] * 4


def test_a_board_held_by_a_higher_cap_than_ours_is_not_held_by_ours(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 250)
    looks = [seen(made, 447, t, limit_mw=250_000, reasons=4) for t in (4.0, 5.0, 6.5)]
    assert looks[-1] is not None and looks[-1].code == "no_effect" and board.now_mw == 700_000


def test_dead_man_and_return(board: FakeBoard, store: LeaseStore) -> None:
    clock = [1000.0]
    said: list[object] = []
    agent = Agent(said.append, board, Host(), store, "job", clock=lambda: clock[0])
    agent.open()
    wish = DesiredPower(gen=1, limit_w=400.0, watch=(UUID,), own_pids=(os.getpid(),))
    agent.wish(wish)
    assert board.now_mw == 400_000
    clock[0] += DEAD_MAN_S - 1
    agent.tick()
    assert board.now_mw == 400_000
    clock[0] += 2
    agent.tick()
    assert board.now_mw == 700_000, "no word for 30 s"
    agent.wish(wish)
    assert board.now_mw == 400_000, "the supervisor is back and still wants it"
    agent.leave()
    assert board.now_mw == 700_000
    assert any("nothing heard from the supervisor" in getattr(message, "text", "") for message in said)


def test_lease_directory_that_is_not_ours_is_refused(tmp_path: Path, board: FakeBoard) -> None:
    real = tmp_path / "elsewhere"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    store = LeaseStore(tmp_path / "link")
    outcome_store = Limiter(board, store, "job", lambda line: None)
    outcome_store.know(board.devices()[0])
    outcome = outcome_store.apply(UUID, 400, allow_raise=False, power_w=None, now_s=0.0)
    assert not outcome.ok and "not a plain directory" in outcome.text and board.writes == []


def test_leases_that_another_user_left_in_our_place_are_not_ours(
    store: LeaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = msgspec.structs.replace(new_record(UUID, 1, 100_000, (400_000,), "job"), agent_pid=2**22 + 1)
    store.write(lease)
    store.path("GPU-other").write_bytes(msgspec.json.encode(lease))
    assert [stale.uuid for stale in stale_leases(store.directory)] == [UUID], "a lease speaks for its own GPU alone"
    assert store.damaged("GPU-other")
    theirs = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: theirs)
    assert stale_leases(store.directory) == ()


def test_command_writes_whole_watts_without_a_tail() -> None:
    assert limit_command("nvidia", "GPU-1", 700_000).endswith("-pl 700")
    assert limit_command("nvidia", "GPU-1", 350_500).endswith("-pl 350.5")


@pytest.mark.parametrize(("outside_mw", "stands_mw"), [(250_000, 250_000), (500_000, 300_000)])
def test_a_limit_set_outside_between_two_caps_is_what_is_given_back(
    board: FakeBoard, store: LeaseStore, outside_mw: int, stands_mw: int
) -> None:
    made = limiter(board, store)
    cap(made, 400)
    made.release(UUID)
    board.now_mw = outside_mw
    assert cap(made, 300).ok and board.now_mw == stands_mw, "never above what stands there now"
    made.release(UUID)
    assert board.now_mw == outside_mw


def test_a_lease_that_cannot_be_read_is_neither_overwritten_nor_passed_over(
    board: FakeBoard, store: LeaseStore
) -> None:
    store.directory.mkdir(mode=0o700)
    lease = store.directory / f"{UUID}.json"
    lease.write_text('{"uuid": "GPU-fake", "before": 700}')
    board.now_mw = 400_000  # perhaps ours, and nobody knows what stood there before
    made = limiter(board, store)
    outcome = cap(made, 300)
    assert not outcome.ok and "then remove the file" in outcome.text
    assert board.writes == [] and lease.read_text().endswith("700}")
    (text,) = leases.damaged_leases(store.directory)
    assert str(lease) in text
    lease.unlink()
    assert cap(made, 300).ok and leases.damaged_leases(store.directory) == ()


def test_an_agent_that_died_between_lease_and_driver_changed_nothing_from_outside(
    board: FakeBoard, store: LeaseStore
) -> None:
    store.write(msgspec.structs.replace(new_record(UUID, 1, 700_000, (400_000,), "job"), agent_pid=2**22 + 1))
    told: list[Outcome] = []
    made = Limiter(board, store, "job", lambda line: None, tell=told.append)
    made.know(board.devices()[0])
    assert cap(made, 400).code == "applied" and board.now_mw == 400_000 and told == []
    assert made.release(UUID).code == "given_back" and board.now_mw == 700_000
    board.now_mw = 600_000
    assert cap(made, 400).code == "applied"
    assert [(o.code, o.watts) for o in told] == [("outside", 600.0)], "that one was changed by someone"


def test_a_cap_above_what_may_be_set_says_what_stands(board: FakeBoard, store: LeaseStore) -> None:
    made = limiter(board, store)
    cap(made, 400)
    board.now_mw = 500_000
    assert seen(made, 490.0, 1.0, limit_mw=500_000).code == "outside"
    outcome = cap(made, 620)
    assert (outcome.watts, made.boards[UUID].top_w) == (500.0, 500.0) and "500 W" in outcome.text
    board.now_mw = 650_000
    assert cap(made, 620).watts == 620.0, "raised again by its owner, below the start"
    assert made.release(UUID).ok and board.now_mw == 650_000
    board.now_mw = 690_000
    low = Limiter(board, store, "job", lambda line: None)
    low.know(board.devices()[0])
    board.now_mw = 700_000
    assert cap(low, 695).watts == 690.0, "never above the start without --allow-raise"


def test_a_step_only_asks_and_whatever_happens_the_original_limit_comes_back(store: LeaseStore) -> None:
    for seed in range(60):
        dice, fake = random.Random(seed), FakeBoard(store)
        made = limiter(fake, store)
        for at_s in range(40):
            fake.refuse = dice.choice([None, None, None, None, 4, 999])
            before = made.boards[UUID]
            reading = RawReading(power_w=dice.choice([None, 80.0, 300.0, 600.0]), kind="avg1s", limit_mw=fake.now_mw)
            now = leases.Now(float(at_s), fake.now_mw, reading.power_w)
            asked = (
                steps.cap(before, 400.0, now, allow_raise=False),
                steps.observe(before, reading, at_s),
                steps.restore(before, now),
            )
            assert asked[0] == steps.cap(before, 400.0, now, allow_raise=False) and made.boards[UUID] is before
            assert all(step.limit_mw in (None, 400_000, 700_000) for _, step in asked if isinstance(step, leases.Write))
            what = dice.randrange(3)
            if what == 0:
                cap(made, dice.choice([250, 400, 900]), at_s)
            elif what == 1:
                made.observe(UUID, reading, float(at_s))
            else:
                made.release(UUID)
            lease = store.read(UUID)
            assert fake.now_mw == 700_000 or (lease is not None and fake.now_mw in lease.ours_mw)
        fake.refuse = None
        made.release(UUID)
        assert fake.now_mw == 700_000 and store.all() == [] and made.active() == ()
