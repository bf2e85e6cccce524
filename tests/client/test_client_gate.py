"""Counting, leases and duty with a clock in hand."""

from __future__ import annotations

import math
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbontui.client.pausing.counter import FAR, SPAN, Counter
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.holding import Duty
from carbontui.client.pausing.wire import DesiredLine


def counting(limit: int = FAR) -> tuple[Counter, list[int]]:
    slow: list[int] = []
    counter = Counter(lambda: slow.append(counter.done()), threading.RLock())
    counter.arm(limit)
    return counter, slow


@given(st.lists(st.tuples(st.integers(1, 1000), st.booleans()), max_size=60), st.integers(0, 3000))
@settings(max_examples=150, deadline=None)
def test_every_step_counts_and_the_limit_is_never_passed_unseen(steps, limit):
    counter, slow = counting(limit)
    total = 0
    for n, watched in steps:
        total += n
        before = len(slow)
        if watched:
            counter.watch()
        counter.step(n)
        assert counter.done() == total
        assert len(slow) == before + (total >= limit)


def test_a_limit_far_ahead_is_met_exactly():
    counter, slow = counting(10 * SPAN + 7)
    for _ in range(10 * SPAN + 6):
        counter.step()
    assert slow == []
    counter.step()
    assert slow == [10 * SPAN + 7]


def test_the_step_after_a_look_is_timed_and_no_other():
    now = [7.0]
    counter = Counter(lambda: None, threading.RLock(), lambda: now[0])
    counter.arm(FAR)
    counter.step()
    assert counter.watch() is None
    for now[0] in (8.5, 9.0, 9.5):
        counter.step()
    assert counter.watch() == (2, 8.5)
    assert counter.watch() == (2, 8.5), "no step since"


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, 10**30])
def test_nonsense_counts_do_not_stop_the_count(nonsense):
    counter, _ = counting()
    counter.step(nonsense)  # type: ignore[arg-type]
    before = counter.done()
    counter.step(-5)
    for _ in range(3 * SPAN):
        counter.step()
    assert before + 3 * SPAN - 5 <= counter.done() < 2**53


@pytest.mark.skipif(sys.version_info < (3, 10), reason="the interpreter switches threads inside a step there")
def test_threads_lose_no_step():
    counter, _ = counting()
    threads = [threading.Thread(target=lambda: [counter.step() for _ in range(50_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.done() == 200_000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_that_ends_lets_go():
    clock = Clock()
    gate = Gate(clock)
    gate.accept(DesiredLine("pause", 1, 15.0))
    assert gate.shown_state() == "asked"
    assert gate.tick() == 115.0
    clock.now = 114.9
    assert gate.level() == "pause"
    clock.now = 115.0
    gate.tick()
    assert gate.level() is None and gate.shown_state() == "running"
    gate.explicit.step()  # would block for ever


def test_a_step_waits_until_told_and_acknowledges_once():
    gate = Gate()
    acks: list[tuple[int, int]] = []
    gate.on_ack = lambda gen, step: acks.append((gen, step))
    held = threading.Event()
    gate.on_change = lambda: held.set() if gate.state == "paused" else None
    gate.explicit.step()
    gate.accept(DesiredLine("pause", 7, 60.0))
    thread = threading.Thread(target=gate.explicit.step)
    thread.start()
    assert held.wait(10)
    gate.accept(DesiredLine("pause", 7, 60.0))
    gate.accept(DesiredLine("run", 8, 60.0))
    thread.join(10)
    assert not thread.is_alive()
    assert acks == [(7, 2), (8, 2)]


def test_the_first_explicit_step_replaces_the_hooks_count():
    gate = Gate()
    gate.hooked.step()
    gate.hooked.step()
    assert gate.counter.done() == 2
    gate.explicit.step()
    gate.hooked.step()
    assert gate.counter.done() == 1
    gate.explicit.step()
    assert gate.step_total() == 2


def test_a_keyboard_interrupt_passes_and_leaves_the_gate_open():
    gate = Gate()
    gate.explicit.step()

    def interrupted() -> None:
        raise KeyboardInterrupt

    gate.quiesce = interrupted
    gate.accept(DesiredLine("pause", 1, 60.0))
    with pytest.raises(KeyboardInterrupt):
        gate.explicit.step()
    assert gate.state == "running"


def test_a_fault_of_ours_is_not_the_trainings():
    gate = Gate()

    def no_thread() -> None:
        raise RuntimeError("can't start new thread")

    gate.on_first = no_thread
    for _ in range(1000):
        gate.explicit.step()
    assert gate.counter.done() == 1000


@given(st.floats(0.05, 0.95), st.floats(0.01, 5.0))
@settings(max_examples=60, deadline=None)
def test_duty_gives_the_share_asked_for_in_whole_steps(share, step_s):
    duty, now = Duty(), 0.0
    duty.set(share, now)
    ran = rested = 0.0
    for _ in range(int(400 / step_s)):
        now += step_s
        ran += step_s
        rest = duty.due(now)
        if rest:
            duty.rest(now)
            now += rest
            rested += rest
            duty.wake(now)
    cycle = max(2.0, step_s / share + step_s)
    assert ran / (ran + rested) == pytest.approx(share, abs=cycle / (ran + rested))


def test_duty_debt_outlives_a_change_of_share_but_not_its_end():
    duty = Duty()
    duty.set(0.5, 0.0)
    duty.set(0.25, 0.6)  # owes 0.6
    assert duty.due(0.7) == 0.0
    assert duty.due(1.0) == pytest.approx(0.6 + 0.4 * 3)
    duty.set(None, 1.0)
    assert duty.due(9.0) == 0.0
