"""A job under the site budget: what it claims, what it runs at, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from drawn import drawn, drawn_plan
from hypothesis import given
from hypothesis import strategies as st
from states import CAP, FULL, NOW_S, PAUSE, board, inputs, job_state, plan_of, rank
from states import decided as told

from carbontui import protocol
from carbontui.account.elapsed import as_booked
from carbontui.headroom import Ahead, Claim, EventSpan, Headroom, LevelAhead
from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core.planning import answers, plan_request, site_plan
from carbontui.job.supervisor.core.rules import control, site_claim
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.view import notices
from carbontui.job.terms.child import Child
from carbontui.job.terms.clock import Clock
from carbontui.job.worker.process import solve_plan
from carbontui.plan.results import Explanation
from carbontui.power.backends import declared
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.curves.curve import Curve, Point
from carbontui.power.messages import Capability, Readings
from carbontui.protocol import Cmd

TWO = (board("GPU-a"), board("GPU-b"))


def share(allowed_w: float, *, cap_w: float = 1000.0, kept: bool = True, boost_w: float = 2000.0) -> Headroom:
    return Headroom(allowed_w, cap_w, kept, 1500.0, boost_w)


def decided(made, seen):
    return control.decide(made, seen)


def test_what_is_claimed_counts_what_the_limits_in_force_allow():
    made = job_state(caps_hold=True)
    claim = site_claim.claim(made, inputs(boards=TWO, ranks=(rank(),)))
    assert (claim.boards, claim.full_w, claim.least_w, claim.wants_w) == (2, 1400.0, 400.0, 1400.0)
    assert claim.held_w == 1400.0
    assert claim.floor_w == 260.0  # parked watts nobody has measured: the most that is known of any board
    capped = (board("GPU-a", limit_w=300.0), board("GPU-b", limit_w=300.0))
    assert site_claim.claim(made, inputs(boards=capped, ranks=(rank(),))).held_w == 600.0
    # a rise that was given and is not on the boards yet is still held
    assert site_claim.claim(replace(made, site=share(900.0)), inputs(boards=capped, ranks=(rank(),))).held_w == 900.0


def test_a_start_that_waits_draws_nothing_and_a_job_without_boards_claims_nothing():
    waiting = inputs(boards=TWO, child=Child("waiting"), starts=0)
    claim = site_claim.claim(job_state(caps_hold=True), waiting)
    assert (claim.floor_w, claim.held_w) == (0.0, 0.0)
    assert site_claim.claim(job_state(), inputs()) is None


@pytest.mark.parametrize("unreal", [{"simulated": SimulatedSpec()}, {"clock": Clock(60.0, 1.0)}, {}])
def test_boards_that_no_driver_shows_spend_no_site_budget_and_are_not_held_by_it(unreal):
    assert site_claim.claim(job_state(), inputs(boards=TWO, ranks=(rank(),))) is not None
    read = Readings(mono_s=1000.0, devices=TWO, backend="nvml" if unreal else "declared")
    made, seen = job_state(**unreal, site=share(100.0)), inputs(readings=read, ranks=(rank(),))
    assert site_claim.claim(made, seen) is None and site_claim.room(made, seen) is None


def test_a_board_whose_watts_cannot_be_read_claims_no_more_than_is_declared_for_it():
    given = declared.DeclaredBoards(tdp_w=70.0, name="T4")
    unreadable = board(power_kind="model", limit_found_w=None, limit_max_w=None, limit_w=None)
    claim = site_claim.claim(job_state(declared=given), inputs(boards=(unreadable,), ranks=(rank(),)))
    assert (claim.full_w, claim.wants_w) == (70.0, 70.0)


def test_a_training_of_unknown_length_is_capped_and_never_held():
    made = job_state(caps_hold=True, work_s=None, site=share(100.0))
    seen = inputs(boards=TWO, ranks=(rank(),))
    assert site_claim.claim(made, seen).floor_w == 400.0
    asked, _ = decided(made, seen)
    assert asked.mode == "run"


def test_less_than_full_is_a_limit_and_less_than_the_lowest_limit_is_a_pause():
    made = job_state(caps_hold=True)
    asked, decision = decided(replace(made, site=share(650.0)), inputs(boards=TWO, ranks=(rank(),)))
    assert (asked.limit_w, decision.level.name, decision.wanted.kind) == (325.0, "cap 325 W", "full")
    assert drawn(decision) == "capped at 325 W per GPU by the site budget of 1000 W"
    asked, decision = decided(replace(made, site=share(260.0)), inputs(boards=TWO, ranks=(rank(),)))
    assert asked.mode == "pause" and "held: the site budget" in drawn(decision)
    asked, _ = decided(replace(made, site=share(1400.0)), inputs(boards=TWO, ranks=(rank(),)))
    assert (asked.mode, asked.limit_w) == ("run", None)


def test_a_site_budget_without_limits_holds_the_training_or_says_it_cannot():
    stiff = tuple(replace_limit(one) for one in TWO)
    made = job_state(caps_hold=False, site=share(650.0, kept=False))
    seen = inputs(boards=stiff, ranks=(rank(),))
    claim = site_claim.claim(made, seen)
    assert claim.least_w == claim.full_w == 1400.0
    assert decided(made, seen)[0].mode == "pause"
    assert any(line.code == "site_budget_broken" for line in notices.notices(made, seen, ()))


def replace_limit(reading):
    import msgspec

    return msgspec.structs.replace(reading, caps={"limit": Capability("no_permission", "no")})


def test_a_boost_without_room_is_refused_with_the_reason():
    made = job_state(caps_hold=True, site=share(400.0, boost_w=800.0))
    seen = inputs(boards=TWO, ranks=(rank(),))
    after, reply = commands.apply(made, Cmd(1, "boost"), seen, "ada")
    assert after is made and reply.answer.exit_code == 4
    assert drawn(reply.answer) == (
        "a boost takes 1400 W; the site budget of 1000 W leaves it 800 W with every other job at its minimum"
    )
    boosted = replace(made, override=Overrides(protocol.Override("boost", None, None, "ada"), 1))
    assert site_claim.claim(boosted, inputs(NOW_S + 1, boards=TWO, ranks=(rank(),))).boost_s is not None


def other(name: str, *watts: float, gone: bool = False, **fields) -> Claim:
    """A job of the machine whose plan draws these watts, slot by slot."""
    runs = tuple((NOW_S + 900.0 * (slot + 1), of) for slot, of in enumerate(watts))
    levels = (LevelAhead(claimed_w=0.0, drawn_w=0.0, speed=0.0), LevelAhead(claimed_w=700.0, drawn_w=650.0, speed=1.0))
    told = Ahead(levels=levels, work_s=3600.0, deadline_s=NOW_S + 7200.0, planned=runs) if watts else None
    return Claim(job=name, full_w=700.0, least_w=200.0, floor_w=90.0, wants_w=700.0, ahead=told, gone=gone, **fields)


def test_the_others_are_told_what_is_planned_and_what_is_left():
    made = job_state(caps_hold=True, plan=plan_of(FULL, FULL, PAUSE, CAP))
    told = site_claim.claim(replace(made, site=share(900.0)), inputs(boards=TWO, ranks=(rank(),))).ahead
    assert [(round(end - NOW_S), watts) for end, watts in told.planned] == [
        (1800, 1400.0),
        (2700, 260.0),
        (3600, 600.0),
    ]
    assert (told.work_s, told.deadline_s) == (7200.0, made.deadline_s)
    assert {(level.claimed_w, level.speed) for level in told.levels} == {(260.0, 0.0), (600.0, 0.8), (1400.0, 1.0)}
    assert site_claim.claim(made, inputs(boards=TWO, ranks=(rank(),))).ahead is None  # no budget: nobody reads it


def test_a_plan_is_asked_for_within_what_the_plans_of_the_others_leave():
    made = job_state(caps_hold=True)
    told = (other("a", 700.0, 0.0), other("b", 0.0, 300.0), other("c"), other("d", 700.0, boost_s=0.0))
    given = share(900.0, cap_w=4000.0)._replace(others=told, until_s=NOW_S + 3600.0)
    ask = plan_request.plan_request(replace(made, site=given), inputs(NOW_S, boards=TWO, ranks=(rank(),))).ask
    assert ask.shared.planned_w[:3] == (700.0, 300.0, 0.0)
    # one without a plan and one that a person has boosted count in full, and behind its end there is no budget
    assert ask.shared.room_w[:5] == (2600.0, 2600.0, 2600.0, 2600.0, None)
    assert ask.shared.claimed_w == (260.0, 1400.0) and len(ask.shared.others) == 2
    assert len(ask.shared.room_w) == len(ask.curve.slots.dur_s)
    assert solve_plan(ask).plan.gap < 0.001
    assert plan_request.plan_request(made, inputs(NOW_S, boards=TWO, ranks=(rank(),))).ask.shared is None


def test_another_plan_is_called_for_where_plans_clash_and_in_turn():
    made = job_state(caps_hold=True, plan=plan_of(FULL, PAUSE))

    seen = inputs(NOW_S + 1, boards=TWO, ranks=(rank(),))

    def beside(*told: Claim, cap_w: float = 2000.0):
        return replace(made, site=share(900.0, cap_w=cap_w)._replace(others=told))

    fits, clashes = beside(other("a", 0.0, 700.0)), beside(other("a", 700.0, 700.0))
    calm, clash = site_plan.others(fits, seen), site_plan.others(clashes, seen)
    assert site_plan.matters(None, calm) and site_plan.matters(calm, clash)
    assert not site_plan.matters(clash, calm) and not site_plan.matters(clash, clash)
    assert site_plan.matters(calm, site_plan.others(beside(other("a", 0.0, 700.0), cap_w=1900.0), seen))
    assert site_plan.matters(calm, site_plan.others(beside(other("a", 0.0, 700.0, gone=True)), seen))
    turns = site_plan.turn_s(beside(other("a"), other("z"))), site_plan.turn_s(beside(other("z")))
    assert turns == (site_plan.TURN_S, 0.0)


def test_a_plan_says_what_scarce_watts_counted_in_it():
    planned = plan_of(FULL, FULL, PAUSE)
    assert answers.with_scarcity(planned, (0.0, 0.1, 0.0)) is planned
    scarce = answers.with_scarcity(replace(planned, explanation=Explanation(verdict="best")), (0.0, 9256098.0, 0.0))
    told = drawn_plan(job_state(plan=scarce), inputs()).explanation
    assert "Other jobs need watts of the site budget as well between 08:15 and 08:30" in told
    assert "9256098" not in told, "a shadow price says nothing to a user"


def event_of(seconds: float, *, in_s: float = 0.0) -> EventSpan:
    begin_s = NOW_S + 100.0 + in_s
    return EventSpan("dr1", begin_s, begin_s + seconds, begin_s + seconds + 60.0)


POINTS = tuple(
    Point(kind="cap", power_w=2.0 * watts, speed=speed, cap_w=watts, power_se=0.0, speed_se=0.0)
    for watts, speed in ((500.0, 0.92), (350.0, 0.75), (250.0, 0.55))
)
POINTS = (Point(kind="full", power_w=1400.0, speed=1.0, cap_w=None, power_se=0.0, speed_se=0.0), *POINTS)
CURVE = Curve(gpu="H100", gpus=2, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=1.0, points=POINTS, levels=POINTS)


@given(slack_s=st.floats(-3600, 20000), lasts_s=st.floats(60, 15000), in_s=st.floats(0, 5000))
def test_what_is_promised_to_an_event_leaves_time_for_the_deadline(slack_s, lasts_s, in_s):
    event = event_of(lasts_s, in_s=in_s)
    made = job_state(caps_hold=True, curve=CURVE, budget=f"{7200.0 + 100.0 + slack_s:.3f}s", site=of_event(event))
    claim = site_claim.claim(made, inputs(boards=TWO, ranks=(rank(),)))
    assert claim.slack_s == pytest.approx(slack_s, abs=1e-2)
    least, lost_s = claim.promised_w, event.over_s - event.start_s
    if least < 1400.0:
        speeds = {260.0: 0.0, 500.0: 0.55, 700.0: 0.75, 1000.0: 0.92, 1400.0: 1.0}
        speed = np.interp(least, list(speeds), list(speeds.values()))
        assert lost_s * (1 - speed) <= slack_s - 59.0
    else:
        assert lost_s * (1 - 0.92) >= slack_s - 0.02 * 7200 - 61 or slack_s < 0


def test_a_board_that_is_still_warm_from_its_last_step_is_not_resumed_for_it():
    """It was held and capped in turns, twice a second: warm, a pause seemed to save nothing."""
    made = job_state(caps_hold=True, curve=CURVE, budget="14400s", site=of_event(event_of(3600)))
    warm = replace(made, decision=told("paused", "pause"))
    claims = [site_claim.claim(one, inputs(boards=TWO, ranks=(rank(),))) for one in (made, warm)]
    assert [claim.promised_w for claim in claims] == [260.0, 260.0]


def test_forbidden_hours_after_an_event_are_no_slack():
    made = job_state(caps_hold=True, curve=CURVE, budget="14400s", site=of_event(event_of(3600)))
    seen = inputs(boards=TWO, ranks=(rank(),))
    assert site_claim.claim(made, seen).promised_w == 260.0
    hours = (ForbiddenHours(NOW_S + 5000, NOW_S + 12100),)
    assert site_claim.claim(replace(made, forbidden=hours), seen).promised_w == 1400.0


def of_event(event: EventSpan, allowed_w: float = 1400.0, event_w: float | None = None) -> Headroom:
    return Headroom(allowed_w, math.inf, True, 0.0, math.inf, event=event, event_w=event_w)


def test_an_event_to_come_changes_nothing_and_one_in_force_says_so():
    event, seen = event_of(3600), inputs(boards=TWO, ranks=(rank(),))
    made = job_state(caps_hold=True, plan=plan_of(FULL, FULL), site=of_event(event))
    assert decided(made, seen)[1].level.kind == "full"
    _, capped = decided(replace(made, site=of_event(event, 800.0, 800.0)), seen)
    assert (capped.why.code, capped.level.cap_w, capped.until_s) == ("event", 400.0, event.over_s)
    assert "capped at 400 W per GPU for the grid event dr1 until" in drawn(capped.why.said)
    _, held = decided(replace(made, site=of_event(event, 300.0, 300.0)), seen)
    assert (held.why.code, held.level.kind, held.held_by) == ("event", "pause", "site")
    shown_as = as_booked(held.state, held.why.code), as_booked("throttled", "event"), as_booked("paused", "site")
    assert shown_as == (held.state, "event", "paused")


def test_what_a_job_would_draw_in_an_event_is_by_its_plan_until_its_end():
    seen = inputs(boards=TWO, ranks=(rank(),))
    made = job_state(caps_hold=True, plan=plan_of(FULL, PAUSE, FULL, FULL), site=of_event(event_of(1600.0)))
    claim = site_claim.claim(made, seen)
    assert claim.expected_w == pytest.approx((800 * 1400 + 800 * 260) / 1600, rel=0.15)
    unknown = site_claim.claim(job_state(caps_hold=True, work_s=None, site=of_event(event_of(1600.0))), seen)
    assert unknown.expected_w == 1400.0 and unknown.promised_w == 400.0
