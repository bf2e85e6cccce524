"""When not every rank can stop, none does: stragglers, dead ranks and uneven steps, with the clock in hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import pytest

from carbontui.client.pausing import holding, ranks
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.ranks import Ranks, Store
from carbontui.client.pausing.wire import DesiredLine

PREFIX = "job/"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Memory:
    """What a TCPStore does, in one process."""

    def __init__(self) -> None:
        self.cond = threading.Condition()
        self.kept: dict[str, bytes] = {}

    def set(self, key, value):
        with self.cond:
            self.kept[key] = value.encode()
            self.cond.notify_all()

    def get(self, key):
        with self.cond:
            return self.kept[key]

    def check(self, keys):
        with self.cond:
            return all(key in self.kept for key in keys)

    def wait(self, keys, timeout):
        with self.cond:
            self.cond.wait_for(lambda: all(key in self.kept for key in keys))

    def compare_set(self, key, expected, value):
        with self.cond:
            if key not in self.kept and expected == "":
                self.kept[key] = value.encode()
                self.cond.notify_all()
            return self.kept[key]

    def delete_key(self, key):
        with self.cond:
            return self.kept.pop(key, None) is not None

    def await_key(self, key: str, true: Callable[[str], bool] = lambda value: True) -> str:
        """The value, once there is one that will do."""
        with self.cond:
            assert self.cond.wait_for(
                lambda: PREFIX + key in self.kept and true(self.kept[PREFIX + key].decode()), 60
            ), f"{key} never came: {self.kept}"
            return self.kept[PREFIX + key].decode()


class Rank:
    """One rank: its gate, its thread, and a training thread that steps when told."""

    def __init__(self, rank: int, world: int, clock: Clock, memory: Memory) -> None:
        self.clock = clock
        self.gate = Gate(clock)
        self.ranks = Ranks(self.gate, rank, world, lambda: None, lambda timeout_s=30.0: Store(memory, PREFIX))
        self.gate.explicit.step()
        self.ranks.start()
        self.free = threading.Event()
        """Set while the training thread is in no step."""
        self.enough = False

    def train(self, until: int | None = None) -> None:
        """Step on and on (or until so many steps are done) in a thread of its own."""

        def loop() -> None:
            while not self.enough and (until is None or self.done() < until):
                self.free.clear()
                self.gate.explicit.step()
                self.free.set()
                self.free.wait(0.002)

        self.thread = threading.Thread(target=loop, daemon=True)
        self.thread.start()

    def done(self) -> int:
        return self.gate.counter.done()

    def goes_on(self) -> None:
        """Ten more steps are done."""
        goal = self.done() + 10
        pace = threading.Event()
        for _ in range(6000):
            if self.done() >= goal:
                return
            self.clock.now += 0.01
            pace.wait(0.01)
        raise AssertionError(f"held at {self.done()}: {self.gate.state}")

    def held(self) -> int:
        """Wait until the training thread stands; the step it stands at."""
        with self.gate.cond:
            assert self.gate.cond.wait_for(
                lambda: (o := self.ranks.barrier.order) is not None and o.arrived and self.gate.state == "paused", 60
            )
            return self.done()

    def end(self) -> None:
        self.enough = True
        self.ranks.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def join(clock: Clock, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rank]]:
    """join(rank, world=2): a rank that takes part."""
    monkeypatch.setattr(ranks, "RETRY_S", (0.05, 0.1))
    joined: list[Rank] = []

    def one(rank: int, world: int = 2) -> Rank:
        joined.append(Rank(rank, world, clock, memory))
        return joined[-1]

    yield one
    for rank in joined:
        rank.end()


def until_said(clock: Clock, memory: Memory, key: str, within_s: float) -> str:
    """Let time pass, second by second, until somebody has written the key."""
    end = clock.now + within_s
    while clock.now < end:
        clock.now += 1.0
        with memory.cond:
            if memory.cond.wait_for(lambda: PREFIX + key in memory.kept, 0.3):
                return memory.kept[PREFIX + key].decode()
    raise AssertionError(f"{key} never came: {memory.kept}")


def test_a_rank_that_does_not_move_while_another_stands_lets_everybody_run(join, clock, memory):
    first, late = join(0), join(1)
    late.gate.counter.arm(1 << 62)
    first.gate.accept(DesiredLine("pause", 1, 600.0))
    memory.await_key("vote/0/1", lambda vote: vote == "yes")
    assert memory.await_key("dec/0") == "commit"
    first.train()
    first.held()
    first.gate.accept(DesiredLine("run", 2, 600.0))  # so that nothing is proposed again
    assert until_said(clock, memory, "run/0", 10) == "late"
    first.goes_on()
    late.train()
    late.goes_on()


def test_a_rank_with_fewer_steps_than_the_others_lets_them_run(join, clock, memory):
    """Uneven inputs: it voted for a step that it never reaches, and has left the loop."""
    first, short = join(0), join(1)
    first.gate.accept(DesiredLine("pause", 1, 600.0))
    assert memory.await_key("dec/0") == "commit"
    at = json.loads(memory.await_key("prop/0/1"))["at"]
    short.train(until=at - 1)
    short.thread.join(30)
    short.end()
    first.train()
    assert first.held() == at
    first.gate.accept(DesiredLine("run", 2, 600.0))
    assert until_said(clock, memory, "run/0", 10) == "late"
    first.goes_on()


def test_ranks_that_never_come_to_one_step_are_told_of_and_go_on(join, clock, memory, capfd):
    """Within 15 s of asking, and tried again only now and then."""
    first, gone = join(0), join(1)
    gone.gate.counter.arm(1 << 62)
    first.train()
    first.gate.accept(DesiredLine("pause", 1, 600.0))
    asked = clock.now
    while "cannot_hold" not in first.gate.facts and clock.now < asked + 15:
        clock.now += 0.5
        with memory.cond:
            memory.cond.wait(0.1)
    assert first.gate.facts["cannot_hold"] == "ranks"
    assert "do not reach a common step" in capfd.readouterr().err
    first.gate.accept(DesiredLine("run", 2, 600.0))
    until_said(clock, memory, "run/2", 10)
    first.goes_on()


def test_a_rank_far_ahead_refuses_until_the_step_lies_before_it(join, clock, memory):
    """Counts that differ (a rank that skips none where another skips some): a no, a wider margin, one step for all."""
    first, ahead = join(0), join(1)
    ahead.train(until=60)
    ahead.thread.join(30)
    first.gate.accept(DesiredLine("pause", 1, 600.0))
    assert memory.await_key("dec/0") == "abort"
    first.train()
    first_held = first.held()
    ahead.train()
    assert ahead.held() == first_held > 60
    first.gate.accept(DesiredLine("run", 2, 600.0))
    first.goes_on()
    ahead.goes_on()


def test_a_dead_rank_is_no_reason_to_stop(join, clock, memory):
    """It does not vote: after two seconds nobody stops, and the next try waits."""
    first = join(0)
    first.train()
    first.gate.accept(DesiredLine("pause", 1, 600.0))
    memory.await_key("prop/0/1")
    clock.now += ranks.VOTE_S + 0.1
    assert memory.await_key("dec/0") == "abort"
    first.gate.accept(DesiredLine("run", 2, 600.0))
    first.goes_on()


def proposed(memory: Memory, at: int) -> None:
    """What a coordinator says, in a test that plays it."""
    memory.set(PREFIX + "prop/0/1", json.dumps({"at": at, "kind": "hold", "not_before": None}))
    assert memory.await_key("vote/0/1") == "yes"


def test_a_coordinator_that_never_decides_cannot_decide_later(join, clock, memory):
    second = join(1)
    proposed(memory, 40)
    second.train()
    with second.gate.cond:
        assert second.gate.cond.wait_for(lambda: (o := second.ranks.barrier.order) is not None and o.arrived, 60)
    clock.now += ranks.DECISION_S + 0.1
    assert memory.await_key("dec/0") == "abort"
    second.goes_on()
    assert memory.compare_set(PREFIX + "dec/0", "", "commit") == b"abort"


def test_a_coordinator_that_dies_during_the_pause_lets_go(join, clock, memory):
    second = join(1)
    proposed(memory, 40)
    memory.set(PREFIX + "dec/0", "commit")
    second.train()
    assert second.held() == 40
    memory.set(PREFIX + "beat/0", str(clock.now))
    memory.await_key("at/0/1")
    for _ in range(60):  # the beat may be heard only now, and counts from then on
        clock.now += holding.FAIL_OPEN_S + 0.1
        with memory.cond:
            if memory.cond.wait_for(lambda: PREFIX + "run/0" in memory.kept, 0.2):
                break
    assert memory.await_key("run/0") == "silence"
    second.goes_on()


def test_a_proposal_lies_as_far_ahead_as_the_speed_before_the_order_asks(clock, memory):
    """The order ends the measurement of the speed: 1000 steps/s were known, and nothing is known any more."""
    gate, known, asked = Gate(clock), [1000.0], threading.Event()

    def speed() -> float | None:
        asked.set()
        return known[0] if gate.seen_gen == 0 else None

    one = Ranks(gate, 0, 2, speed, lambda timeout_s=30.0: Store(memory, PREFIX))
    one.start()
    try:
        assert asked.wait(60)
        gate.accept(DesiredLine("pause", 1, 600.0))
        assert json.loads(memory.await_key("prop/0/1"))["at"] >= 20
    finally:
        one.stop()
