"""The end first: what a job will have come to, and what run-now would have, while it is still on its way."""

import itertools
import math
import random
from dataclasses import replace

import msgspec
import pytest
from states import CAP, FULL, NOW_S, PAUSE, board, inputs, job_state, outlook, plan_of, rank, shown

from carbontui import protocol, units
from carbontui.account.expected_end import Slots, WorkSegment, expect, remaining_total, used_up_at
from carbontui.commands.status import report
from carbontui.job.supervisor.core.planning import expected_end as core
from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.text import account as account_words
from carbontui.text.account import NoticesShown, narrate

HOUR = 3600.0
NEARLY = {"rel": 2e-3}
"""The five seconds that coming back from a pause takes until it was measured."""


def slots(mean, half=0.0):
    return Slots(0.0, 900.0, mean, [v - half for v in mean], [v + half for v in mean])


def test_the_end_is_what_was_emitted_and_the_rest_on_the_forecast():
    found = expect(
        100.0,
        [WorkSegment(450.0, 1350.0, 1000.0)],
        slots([200.0, 400.0, 300.0]),
        run_now_past_g=50.0,
        run_now_rest=WorkSegment(0.0, 900.0, 2000.0),
    )
    assert found.gco2_g.value == pytest.approx(100 + 0.125 * 200 + 0.125 * 400)
    assert found.run_now_g == pytest.approx(50 + 0.5 * 200)
    assert found.avoided_g.value == pytest.approx(found.run_now_g - found.gco2_g.value)
    assert found.rest_kwh == pytest.approx(0.25) and found.gco2_g.lo is None


def test_nothing_is_expected_of_a_grid_nobody_knows_and_gaps_do_not_look_clean():
    assert expect(1.0, [WorkSegment(0, 900, 1e3)], Slots(0, 900, [None], [None], [None])) is None
    gap = Slots(0, 900, [400.0, None], [None, None], [None, None])
    assert expect(0.0, [WorkSegment(900, 4500, 1000.0)], gap).gco2_g.value == pytest.approx(400.0)
    assert remaining_total([WorkSegment(0, HOUR, 2000.0)], 0.0, 900.0, (None,)) is None
    assert remaining_total([WorkSegment(0, HOUR, 2000.0)], 0.0, 900.0, (0.3,)) == pytest.approx(0.6)
    rented = remaining_total(
        [WorkSegment(0, HOUR, 2000.0), WorkSegment(HOUR, 2 * HOUR, 0.0, gpus_kept=False)],
        0.0,
        900.0,
        (0.3,),
        rent_per_h=2.5,
    )
    assert rented == pytest.approx(3.1)


def test_the_moment_at_which_nothing_is_left():
    rest = [WorkSegment(0, HOUR, 2000.0), WorkSegment(HOUR, 2 * HOUR, 0.0), WorkSegment(2 * HOUR, 4 * HOUR, 1000.0)]
    slots = (0.0, HOUR, (300.0, 300.0, 100.0))
    # 600 g in the first hour, none in the second, 100 g an hour from then on, the last slot's value holding
    assert used_up_at(300.0, rest, *slots) == pytest.approx(HOUR / 2)
    assert used_up_at(700.0, rest, *slots) == pytest.approx(3 * HOUR)
    assert used_up_at(900.0, rest, *slots) is None
    assert used_up_at(0.0, rest, *slots) == 0.0
    assert used_up_at(1.0, rest, 0.0, HOUR, (None,)) is None


@pytest.mark.parametrize("seed", range(20))
def test_every_stretch_counts_in_its_slots_also_beyond_the_forecast(seed):
    dice = random.Random(seed)
    edges = sorted(dice.choice([dice.uniform(-3000, 30_000), 900.0 * dice.randrange(-3, 33)]) for _ in range(8))
    rest = [WorkSegment(a, b, dice.uniform(0, 2000)) for a, b in itertools.pairwise(edges)]
    mean = [dice.uniform(20, 900) for _ in range(dice.choice([1, 2, 24]))]
    # an independent sum: short pieces, each at the value of the slot that its middle lies in
    grams = 0.0
    for part in rest:
        cuts = sorted(
            {part.start_s, part.end_s, *(c for c in range(-3600, 31_000, 900) if part.start_s < c < part.end_s)}
        )
        for a, b in itertools.pairwise(cuts):
            index = min(len(mean) - 1, max(0, int((a + b) / 2 // 900)))
            grams += part.watts * (b - a) / 3.6e6 * mean[index]
    assert expect(0.0, rest, slots(mean)).gco2_g.value == pytest.approx(grams)


@pytest.mark.parametrize("rest", [[WorkSegment(0, 40 * 900.0, 700.0)], [WorkSegment(0, 4 * 900.0, 700.0)]])
def test_four_of_five_ends_lie_in_the_band_when_errors_fade_as_the_forecasts_do(rest):
    dice, fade, sigma = random.Random(7), math.exp(-900.0 / (6 * HOUR)), 40.0
    believed = slots([300.0] * 96, half=1.2815515655446004 * sigma)
    run_now = WorkSegment(0, 20 * 900.0, 900.0)
    said = expect(0.0, rest, believed, run_now_past_g=0.0, run_now_rest=run_now)
    inside = inside_avoided = 0
    for _ in range(2000):
        error, truth = dice.gauss(0, sigma), []
        for _ in range(96):
            truth.append(300.0 + error)
            error = fade * error + math.sqrt(1 - fade**2) * dice.gauss(0, sigma)
        came = expect(0.0, rest, slots(truth), run_now_past_g=0.0, run_now_rest=run_now)
        inside += said.gco2_g.lo <= came.gco2_g.value <= said.gco2_g.hi
        inside_avoided += said.avoided_g.lo <= came.avoided_g.value <= said.avoided_g.hi
    assert 0.77 <= inside / 2000 <= 0.83 and 0.77 <= inside_avoided / 2000 <= 0.83


# --- of a running job -------------------------------------------------------------------------------------------------

WATTS = Measured(full_w={"GPU-a": Mean(600.0, 9)}, parked_w={"GPU-a": Mean(90.0, 9)}, rest_w=Mean(100.0, 9))


def shifted(**fields):
    """Two hours of work; dirty now, clean in an hour: the plan pauses four slots and then runs."""
    known = {
        "measured": WATTS,
        "outlook": outlook(*[500.0] * 4, *[100.0] * 92),
        "plan": plan_of(*[PAUSE] * 4, *[FULL] * 8),
        "totals": Totals(wall_kwh=0.0, gco2_g=0.0, avoided_g=0.0, run_now_past_g=0.0, run_now_until_s=NOW_S),
        "pue": 1.2,
    }
    return job_state(**{**known, **fields})


def decided(state, seen):
    """As of a tick: what comes is told from what is decided now."""
    return replace(state, decision=control.decide(state, seen)[1])


def at_end(state, at_s=NOW_S, **fields):
    seen = inputs(at_s, boards=(board(),), **fields)
    return core.at_end(decided(state, seen), seen)


def test_a_shifted_job_says_from_the_start_what_it_will_have_avoided():
    end = at_end(shifted())
    kwh = 1.2 * (1 * 0.190 + 2 * 0.700)
    assert end.energy_wall_kwh == pytest.approx(kwh, **NEARLY)
    assert units.from_iso(end.finish) == pytest.approx(NOW_S + 3 * HOUR, abs=10)
    assert end.gco2_g == pytest.approx(1.2 * (0.190 * 500 + 1.4 * 100), **NEARLY)
    assert end.run_now_g == pytest.approx(1.2 * 0.7 * (500 + 100))
    assert end.avoided_g == pytest.approx(end.run_now_g - end.gco2_g) and end.avoided_g > 0


def test_halfway_it_counts_what_was_and_what_is_to_come_once_each():
    emitted, past = 1.2 * (0.190 * 500), 1.2 * 0.7 * 500
    known = {"gco2_g": emitted, "avoided_g": -emitted, "run_now_past_g": past, "run_now_until_s": NOW_S}
    halfway = shifted(totals=Totals(wall_kwh=0.228, **known))
    assert at_end(halfway, NOW_S + HOUR).gco2_g == pytest.approx(at_end(shifted()).gco2_g, **NEARLY)
    assert at_end(halfway, NOW_S + HOUR).run_now_g == pytest.approx(at_end(shifted()).run_now_g)


def test_a_cap_a_pause_with_an_end_and_a_boost_each_end_as_they_will():
    capped = at_end(shifted(plan=plan_of(FULL, *[CAP] * 10), caps_hold=True), ranks=(rank(),))
    kwh = 1.2 * (0.7 * 0.25 + 0.4 * 1.75 / 0.8)
    assert capped.energy_wall_kwh == pytest.approx(kwh), "two hours of work, most of it at 0.8 of the speed"

    def held(mode, until_s=None):
        state = shifted()
        until = None if until_s is None else units.iso(until_s)
        given = replace(state.override, current=protocol.Override(mode, None, until, "a"), until_s=until_s)
        return replace(state, override=given)

    assert at_end(held("boost")).gco2_g == pytest.approx(1.2 * 0.7 * 600)
    assert at_end(held("pause")) is None, "a pause without an end has no end"
    assert at_end(replace(held("pause", NOW_S + HOUR), plan=None)).gco2_g == pytest.approx(
        at_end(shifted()).gco2_g, **NEARLY
    )


def test_what_is_not_known_is_not_told():
    assert at_end(shifted(totals=Totals())) is None
    assert at_end(shifted(outlook=None)) is None
    assert at_end(shifted(work_s=None)) is None
    assert at_end(shifted(totals=Totals(gco2_g=0.0))).run_now_g is None


def test_money_at_the_end_counts_power_and_rent_while_boards_are_held():
    totals = Totals(gco2_g=0.0, avoided_g=0.0, run_now_past_g=0.0, cost=protocol.Cost(1.0, "EUR"))
    end = at_end(shifted(totals=totals, currency="EUR", price_per_kwh=0.5, gpu_price=2.0))
    assert end.cost.value == pytest.approx(1.0 + 0.5 * end.energy_wall_kwh + 2.0 * 3.0, **NEARLY)


def told(state=None, at_s=NOW_S):
    seen = inputs(at_s, boards=(board(),))
    return shown(decided(state or shifted(), seen), seen)


def test_the_end_is_told_first_by_status_and_by_plain_output_with_its_source():
    one = told()
    rows = [row[:10].strip() for row in report(one)]
    assert rows.index("at the end") < rows.index("CO2")
    (row,) = (row for row in report(one) if row.startswith("at the end"))
    assert "forecast: metered so far, then the plan in force on a test" in row and "44 % less than running now" in row
    assert any(line.startswith("at the end: 282 g CO2") for line in narrate(None, one, NoticesShown()))
    assert not any(line.startswith("at the end") for line in narrate(one, one, NoticesShown()))


def test_a_job_that_is_over_expects_nothing():
    over, seen = replace(shifted(), decision=replace(shifted().decision, state="done")), inputs(boards=(board(),))
    one = shown(over, seen)
    assert one.at_end is None and "at_end" not in one.provenance and one.account.whole is None


def test_the_words_turn_around_where_the_plan_emits_more():
    end = protocol.AtEnd(
        finish=units.iso(NOW_S), energy_wall_kwh=1.0, gco2_g=120.0, gco2_lo_g=110.0, gco2_hi_g=130.0,
        run_now_g=100.0, avoided_g=-20.0, avoided_lo_g=-25.0, avoided_hi_g=-15.0,
    )  # fmt: skip
    assert account_words.at_end(end) == "120 g CO2 (110 g to 130 g), 20 g or 20 % more than running now (15 g to 25 g)"
    bare = msgspec.structs.replace(end, run_now_g=None, avoided_g=None)
    assert account_words.at_end(bare) == "120 g CO2 (110 g to 130 g)"


def test_speeds_that_were_not_measured_on_this_job_widen_the_band_of_its_end():
    sure = expect(100.0, [WorkSegment(0.0, 3600.0, 1000.0)], slots([200.0] * 4), run_now_past_g=0.0)
    unsure = [WorkSegment(0.0, 1800.0, 1000.0), WorkSegment(1800.0, 3600.0, 1000.0, error=0.1)]
    alone = expect(100.0, unsure, slots([200.0] * 4), run_now_past_g=0.0)
    assert sure.gco2_g.lo is None and alone.gco2_g.value == pytest.approx(sure.gco2_g.value)
    # 80 % of a normal distribution, of a tenth of the 100 g that the capped half hour emits
    assert alone.gco2_g.hi - alone.gco2_g.value == pytest.approx(1.2816 * 10.0, rel=1e-3)
    grid = expect(100.0, [WorkSegment(0.0, 3600.0, 1000.0)], slots([200.0] * 4, half=20.0), run_now_past_g=0.0).gco2_g
    both = expect(100.0, unsure, slots([200.0] * 4, half=20.0), run_now_past_g=0.0)
    assert both.gco2_g.hi - both.gco2_g.value == pytest.approx(math.hypot(grid.hi - grid.value, 12.816), rel=1e-3)
    assert both.avoided_g.hi - both.avoided_g.value == pytest.approx(both.gco2_g.hi - both.gco2_g.value)
