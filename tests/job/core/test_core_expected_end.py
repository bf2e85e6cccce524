"""What the job will have come to at its end: the rest of the forecast that it can fall into is enough to say it."""

import random
from dataclasses import replace

import pytest
from states import FULL, NOW_S, PAUSE, board, decided, inputs, job_state, outlook, plan_of

from carbontui import units
from carbontui.account import expected_end as account
from carbontui.account.expected_end import Slots, WorkSegment
from carbontui.job.supervisor.core.planning import expected_end, machine
from carbontui.job.supervisor.core.planning.course import course
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.view import notices
from carbontui.power.messages import Readings
from carbontui.protocol import statement

SEEN = inputs(NOW_S + 4000.0, boards=(board(),))


def job(values, **fields):
    return job_state(
        decision=decided("running", "full", "plan", "x"),
        measured=Measured(full_w={"GPU-a": Mean(600.0, 9)}, parked_w={"GPU-a": Mean(90.0, 9)}),
        totals=Totals(gco2_g=100.0, run_now_past_g=120.0, run_now_until_s=NOW_S),
        outlook=values,
        plan=plan_of(FULL, PAUSE, PAUSE, FULL, FULL, PAUSE, FULL, FULL, FULL, FULL, FULL, FULL),
        **fields,
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_end_is_that_of_the_whole_forecast_gaps_included(seed):
    dice = random.Random(seed)
    mean = tuple(None if dice.random() < 0.3 else dice.uniform(20, 900) for _ in range(dice.choice([1, 5, 20, 96])))
    band = [tuple(None if v is None or dice.random() < 0.2 else v * share for v in mean) for share in (0.8, 1.3)]
    known = job(replace(outlook(*mean), lo=band[0], hi=band[1]))
    told = expected_end.at_end(known, SEEN)
    whole = account.expect(
        100.0,
        expected_end.at_the_wall(known, SEEN, course(known, SEEN)),
        Slots(NOW_S, 900.0, mean, *band),
        run_now_past_g=120.0,
        run_now_rest=WorkSegment(SEEN.now_s, NOW_S + 7200.0, machine.full_wall_w(known, SEEN)),
    )
    if all(value is None for value in mean):
        assert told is None and whole is None
        return
    assert told.gco2_g == pytest.approx(whole.gco2_g.value, abs=1e-5)
    assert told.run_now_g == pytest.approx(whole.run_now_g, abs=1e-5)
    assert told.avoided_g == pytest.approx(whole.avoided_g.value, abs=1e-5)
    for end, edge in ((told.gco2_lo_g, whole.gco2_g.lo), (told.avoided_hi_g, whole.avoided_g.hi)):
        assert end == (None if edge is None else pytest.approx(edge, abs=1e-5))


def test_no_end_is_told_of_a_job_that_is_over_or_whose_grid_nobody_knows():
    known = job(outlook())
    assert expected_end.at_end(known, SEEN).gco2_g > 100.0
    assumed = replace(known, measured=Measured())
    assert expected_end.at_end(assumed, SEEN).gco2_g > 100.0
    assert expected_end.source(assumed, SEEN).parts["full_assumed"]
    assert expected_end.at_end(replace(known, outlook=None), SEEN) is None
    planless, young = replace(known, plan=None), replace(SEEN, uptime_s=5.0)
    assert expected_end.at_end(planless, young) is None, "its first plan is being made: it may save"
    assert expected_end.at_end(replace(planless, plan_fault=statement("no_new_plan", why="")), young) is not None
    assert expected_end.at_end(planless, replace(SEEN, uptime_s=20.0)) is not None
    assert expected_end.at_end(replace(known, decision=decided("done", "full", "exited", "x")), SEEN) is None


def test_before_a_successor_has_read_the_boards_no_end_is_told_and_none_is_missed():
    known, seen = job(outlook()), inputs(readings=Readings(), metered=frozenset({"GPU-a"}))
    told, end = expected_end.statement(known, seen, course(known, seen))
    assert end is None and told.whole is None and told.so_far.gco2_g == 100.0
    assert notices.notices(known, seen, []) == []


@pytest.mark.parametrize("from_h, parked_h", [(1.5, 1.0), (1.0, 1.0 - 400 / 3600), (20.0, 0.0)])
def test_without_a_plan_the_end_waits_for_the_hours_that_must_not_run(from_h, parked_h):
    hours = ForbiddenHours(NOW_S + 3600 * from_h, NOW_S + 3600 * (from_h + 1), by="ada@pts/3")
    free = replace(job(outlook(*(300.0,) * 200)), plan=None)
    held = replace(free, forbidden=(hours,))
    told, before = expected_end.at_end(held, SEEN), expected_end.at_end(free, SEEN)
    # it takes 5 s to go on afterwards, at full speed
    assert units.from_iso(told.finish) == pytest.approx(course(held, SEEN).finish_s, abs=10.0)
    parked_kwh = machine.machine(held, SEEN).parked_w * parked_h / 1000
    assert told.energy_wall_kwh - before.energy_wall_kwh == pytest.approx(parked_kwh, abs=2e-3)
