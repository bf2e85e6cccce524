"""Hours that a person has said the training must not run: what is meant, what is planned, what is decided."""

from dataclasses import replace

import pytest
from drawn import drawn, drawn_plan
from hypothesis import given
from hypothesis import strategies as st
from states import FULL, NOW_S, PAUSE, inputs, job_state, plan_of, rank

from carbontui import protocol
from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core.planning import finish, plan_request
from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.state import forbidden
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours
from carbontui.job.supervisor.core.view import status
from carbontui.job.terms.child import Child
from carbontui.plan.planner import solve
from carbontui.plan.problem import STANDS_STILL, problem_from_dict
from carbontui.protocol import Cmd
from carbontui.units import iso

H = 3600.0
SEEN = inputs(NOW_S + 100.0, ranks=(rank(),))


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def do(verb, state, **args):
    return commands.apply(state, Cmd(7, verb, args), SEEN, "ada@pts/1")


@pytest.mark.parametrize(
    ("text", "start_h", "end_h", "daily"),
    [  # from 08:01:40 on a Friday
        ("22:00-06:00", 14, 22, False),
        ("09:00 - 12:00", 1, 4, False),
        ("07:00-09:00", -1, 1, False),  # it has begun
        ("now-09:00", 100 / H, 1, False),
        ("sat 09:00-12:00", 25, 28, False),
        ("fri 07:00-09:00", -1, 1, False),
        ("fri 22:00-mon 06:00", 14, 70, False),
        ("daily 17:00-20:00", 9, 12, True),
        (f"{iso(NOW_S + H)}/{iso(NOW_S + 2 * H)}", 1, 2, False),
    ],
)
def test_hours_are_the_next_ones_that_are_meant(text, start_h, end_h, daily):
    found = forbidden.parse(text, NOW_S + 100.0)
    assert (found.start_s - NOW_S, found.end_s - NOW_S, found.daily) == (start_h * H, end_h * H, daily)


UNUSABLE = ["", "x", "9-12", "22:00", "22:00-", "25:00-26:00", "next-09:00", "a/b", "09:00-10:00-11:00"]
TOO_LATE = f"{iso(NOW_S + 9 * 86400)}/{iso(NOW_S)}"
TOO_LONG = f"{iso(NOW_S)}/{iso(NOW_S + 30 * 86400)}"


@pytest.mark.parametrize("text", [*UNUSABLE, TOO_LATE, TOO_LONG])
def test_what_cannot_be_hours_is_refused_with_the_forms(text):
    state = job_state()
    after, reply = do("forbid", state, hours=text)
    assert (
        after is state and reply.answer.exit_code and reply.answer.exit_code == 2 and repr(text) in drawn(reply.answer)
    )


@given(st.lists(st.tuples(st.floats(0, 40), st.floats(0.1, 12), st.booleans()), max_size=5), st.floats(0.1, 30))
def test_the_soonest_finish_waits_for_every_forbidden_second(windows, work_h):
    held = tuple(
        ForbiddenHours(NOW_S + a * H, NOW_S + (a + min(d, 3.0 if daily else d)) * H, daily) for a, d, daily in windows
    )
    done = forbidden.soonest_s(held, NOW_S, work_h * H)
    assert done - NOW_S - forbidden.between_s(held, NOW_S, done) == pytest.approx(work_h * H, abs=1e-3)
    assert forbidden.until_s(held, done - 1e-3) is None or done - NOW_S < 1


def test_within_them_it_stands_still_whatever_deadline_and_longest_pause_say():
    state = job_state(budget="1x", plan=plan_of(FULL, FULL), max_pause_s=60.0)
    state, reply = do("forbid", state, hours="08:00-09:00")
    assert not reply.answer.exit_code and "will not run 08:00 to 09:00" in drawn(reply.answer)
    assert "the budget cannot be met" in drawn(reply.answer)
    assert [type(effect).__name__ for effect in reply.effects] == ["Record", "Replan", "Keep"]
    for later_s in (0.0, 1800.0):
        seen = inputs(NOW_S + 100.0 + later_s, ranks=(rank(),))
        asked, decision = control.decide(replace(state, asked=replace(state.asked, still_since_s=NOW_S)), seen)
        assert asked.mode == "pause" and drawn(decision) == "forbidden hours until 09:00"
    after = inputs(NOW_S + H, ranks=(rank(),))
    assert control.decide(state, after)[0].mode == "run"
    waiting = inputs(NOW_S + 100.0, child=Child("waiting"))
    _, decision = control.decide(state, waiting)
    assert decision.state == "waiting" and decision.hold_until_s is not None
    # a person's later word outweighs the earlier one
    boosted, _ = do("boost", state)
    assert control.decide(boosted, SEEN)[0].mode == "run"


def test_the_plan_is_that_of_the_constrained_problem_and_says_what_it_costs():
    state, _ = do("forbid", job_state(budget="4x", plan=plan_of(FULL, FULL)), hours="09:00-10:00")
    request = plan_request.plan_request(state, SEEN)
    edges = [SEEN.now_s, *(SEEN.now_s + sum(request.setup.durations[: k + 1]) for k in range(20))]
    still = [k for k, level in request.ask.fixed.items() if level == STANDS_STILL]
    assert [(edges[k] - NOW_S) / H for k in still] == [1.0, 1.25, 1.5, 1.75]
    solved = solve(problem_from_dict(request.ask.problem), fixed=request.ask.fixed)
    running = [k for k, level in enumerate(solved.levels) if level >= 0 and request.setup.levels[level].speed > 0]
    assert not set(running) & set(still)
    assert finish.soonest_s(state, NOW_S, 2 * H) == NOW_S + 3 * H
    planned = replace(plan_of(FULL, FULL), free_gco2_g=0.0)
    view = drawn_plan(replace(state, plan=replace(planned, view=replace_g(planned.view, 38.0))), inputs(NOW_S))
    assert "Not running 09:00 to 10:00 costs 38" in view.explanation


def replace_g(view, grams):
    from msgspec import structs

    return structs.replace(view, gco2_g=grams)


def test_another_slot_is_asked_as_what_the_plan_does_not_do_there():
    state = job_state(budget="4x", plan=plan_of(FULL, PAUSE, FULL))
    for at_s, level in ((NOW_S + 200.0, STANDS_STILL), (NOW_S + 1000.0, "full")):
        request = plan_request.preview_request(state, SEEN, state.budget, None, at_s)
        ((slot, wanted),) = request.ask.fixed.items()
        assert slot == (at_s > NOW_S + 900) and (wanted == level or request.setup.levels[wanted].name == level)
    with pytest.raises(ValueError, match="not within the plan"):
        plan_request.preview_request(state, SEEN, state.budget, None, NOW_S - 1000.0)
    # who asks has an older now: the slot of now is meant
    request = plan_request.preview_request(state, SEEN, state.budget, None, NOW_S - 300.0)
    assert list(request.ask.fixed) == [0]


def test_they_are_shown_kept_and_taken_away_again():
    state, _ = do("forbid", job_state(), hours="22:00-23:00")
    state, _ = do("forbid", state, hours="daily 17:00-20:00")
    told = status.status(state, SEEN, host="h", pids=protocol.Pids(1, 2, 3, 4)).forbidden
    assert [one.daily for one in told] == [True, False] and told[0].by == "ada@pts/1"
    import msgspec

    assert forbidden.restored(msgspec.to_builtins(state.forbidden), NOW_S) == state.forbidden
    assert len(forbidden.restored(msgspec.to_builtins(state.forbidden), NOW_S + 86400)) == 1
    same, _ = do("forbid", state, hours="22:00-23:00")
    assert len(same.forbidden) == 2
    _, refused = do("allow", state, hours="01:00-02:00")
    assert refused.answer.exit_code and "forbidden are: daily 17:00 to 20:00" in drawn(refused.answer)
    state, reply = do("allow", state, hours="22:00-23:00")
    assert not reply.answer.exit_code and len(state.forbidden) == 1
    state, _ = do("allow", state)
    assert state.forbidden == () and do("allow", state)[1].answer.exit_code


@pytest.mark.parametrize(
    ("start_s", "end_s"), [(0.0, NOW_S), (NOW_S, NOW_S), (NOW_S, 0.0), (-1.0, 5.0), (1e14, 1e14 + 60)]
)
def test_kept_hours_that_nobody_can_have_meant_are_refused(start_s, end_s):
    with pytest.raises(ValueError, match="not plausible"):
        forbidden.restored([{"start_s": start_s, "end_s": end_s, "daily": True}], NOW_S)
