"""Run-now: the same work with every lever undone; and every second since the start in its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbontui.account import elapsed
from carbontui.account.accounts import RunNow, kept, of_sum, run_now, to_kept, worst
from carbontui.account.elapsed import EXCLUDED, TimeSpent

FULL_W = 1000.0


def own_steps(known: TimeSpent) -> int:
    """Those of excluded times are not in the account."""
    return known.steps_done - known.steps_apart


def spent(*parts):
    """(state, seconds, watts of the devices, steps made) one after the other."""
    known, steps, at = TimeSpent(0.0), 0, 0.0
    for state, seconds, watts, made in parts:
        at, steps = at + seconds, steps + made
        known.drew(watts * seconds, state, gpu=True)
        known.advance(at, state, steps=steps, work_s=seconds * 0.5, paused=state == "waiting")
    return known


def of(*parts, rate=1.0, full_wall_w=FULL_W, pue=1.0):
    return run_now(spent(*parts), pue=pue, full_wall_w=full_wall_w, rate=rate)


def test_run_now_takes_the_jobs_own_time_at_full_speed_as_it_was():
    found = of(("starting", 100, 50.0, 0), ("running", 300, 400.0, 100), ("paused", 600, 80.0, 0))
    assert found.seconds == 400 and found.watts * found.seconds == pytest.approx(100 * 50 + 300 * 400)


def test_capped_work_is_done_at_full_speed_at_the_measured_reference():
    found = of(("throttled", 1000, 300.0, 400), rate=2.0)
    assert found == RunNow(200.0, FULL_W, True)
    assert of(("throttled", 1000, 300.0, 0)).seconds == 500.0, "without steps by the clock and the level's speed"
    assert of(("throttled", 1000, 300.0, 400), full_wall_w=None) is None


def test_held_time_and_coming_back_from_it_are_removed_with_their_energy():
    held = [("waiting", 60, 30.0, 0), ("paused", 60, 80.0, 0), ("unloaded", 60, 20.0, 0), ("switching", 60, 90.0, 0)]
    assert of(("running", 100, 500.0, 10), *held, pue=1.2) == RunNow(100.0, pytest.approx(600.0), True)


@pytest.mark.parametrize("reason", EXCLUDED)
def test_what_is_run_to_learn_about_the_work_is_in_nothing_of_the_account(reason):
    known = spent((reason, 50, 700.0, 20), ("running", 100, 500.0, 30))
    assert run_now(known, pue=1.0, full_wall_w=FULL_W, rate=1.0) == RunNow(100.0, 500.0, False)
    assert own_steps(known) == 30 and known.excluded[reason].steps == 20 and known.excluded[reason].gpu_j == 35_000


def test_the_steps_of_a_try_that_starts_over_are_not_taken_from_the_jobs_own():
    known = spent(("try", 50, 700.0, 20))
    known.advance(60.0, "waiting", steps=0)
    known.advance(90.0, "running", steps=15)
    assert own_steps(known) == 15 and known.excluded["try"].steps == 20


@pytest.mark.parametrize(("state", "acted"), [("running", False), ("starting", False), ("paused", True),
                                              ("throttled", True), ("unloaded", True), ("waiting", True)])  # fmt: skip
def test_a_lever_acted_only_where_time_was_spent_under_it(state, acted):
    assert spent(("running", 10, 1.0, 1), (state, 10, 1.0, 1)).lever_acted is acted
    assert not spent(("running", 10, 1.0, 1), (state, 0, 0.0, 0)).lever_acted


def test_a_start_that_nobody_holds_back_is_no_lever():
    known = TimeSpent(0.0)
    known.advance(2.0, "waiting", steps=0, paused=False)
    assert not known.lever_acted and known.by_state == {"waiting": 2.0}


states = st.sampled_from(["starting", "running", "throttled", "paused", "waiting", "switching", *EXCLUDED])
gaps = st.sampled_from([None, None, "no_supervisor", "stalled", "clock", "unread", "queue"])


@given(st.lists(st.tuples(states, st.floats(0, 1e5), gaps, st.integers(0, 1000)), max_size=30))
def test_every_second_since_the_start_is_in_a_state_a_gap_or_excluded(parts):
    known, at = TimeSpent(100.0), 100.0
    for state, seconds, gap, steps in parts:
        at += seconds
        known.advance(at, state, steps=steps, gap=gap)
    apart = sum(one.elapsed_s for one in known.excluded.values())
    assert known.metered_s + known.gap_s + apart == pytest.approx(at - 100.0, abs=1e-6)
    assert known.lived_s == pytest.approx(at - 100.0, abs=1e-6) and own_steps(known) >= 0


def test_a_successor_goes_on_with_the_time_and_a_journal_of_before_begins_one():
    from dataclasses import asdict

    known = spent(("try", 50, 700.0, 20), ("running", 100, 500.0, 30), ("paused", 10, 80.0, 0))
    assert elapsed.restored(asdict(known), TimeSpent(7.0)) == known
    assert elapsed.restored({**asdict(known), "of_another_version": 1}, TimeSpent(7.0)) == known
    assert elapsed.restored(None, TimeSpent(7.0)) == TimeSpent(7.0)


def test_run_now_is_read_from_the_journal_as_it_was_kept():
    for one in (RunNow(5.0, 7.0, False), None):
        assert kept(to_kept(one)) == one


def test_nothing_is_measured_that_came_out_of_an_estimate():
    assert worst("measured", "estimated") == "estimated" and worst("integrated", "measured") == "integrated"
    assert worst("forecast", "simulated", "default") == "simulated" and worst("simulated", "replay") == "replay"
    assert of_sum({"counter": 0.97, "model": 0.03}) == "measured", "sensors err by more than that"
    assert of_sum({"counter": 0.9, "model": 0.1}) == of_sum({"counter": 0.9, "gap": 0.1}) == "estimated"
    assert of_sum({}) == "estimated"
