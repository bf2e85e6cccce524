"""The plan as it will be carried out: under an override, and what is said of it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from drawn import drawn_plan
from msgspec import structs
from states import CAP, FULL, NOW_S, PAUSE, board, inputs, job_state, limits, plan_of, rank, settled
from states import shown as status_of

from carbontui import protocol, units
from carbontui.headroom import Headroom
from carbontui.job.supervisor.core.planning import course
from carbontui.job.supervisor.core.state.allowances import Allowances
from carbontui.job.supervisor.core.state.forbidden import ForbiddenHours
from carbontui.job.supervisor.core.state.job import JobState, Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.view import shown_plan
from carbontui.job.terms.allowance import Allowance
from carbontui.plan.results import Explanation
from carbontui.power.curves.curve import Curve, Point
from carbontui.text import figures
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.widgets import plan_text

SAVES = Explanation(verdict="saves", saved=9.0)


def planned(*levels, free_g: float | None = None, **fields):
    made = replace(plan_of(*levels, left_s=3600.0, **fields), explanation=SAVES, free_gco2_g=free_g)
    return replace(made, view=structs.replace(made.view, gco2_g=175.0))


def under(mode: str, until_s: float | None = None, free_g: float | None = None, value_w=None, **fields):
    word = protocol.Override(mode, value_w, None if until_s is None else units.iso(until_s), "ada@pts/3")
    made = planned(PAUSE, FULL, FULL, FULL, PAUSE, PAUSE, PAUSE, FULL, free_g=free_g)
    return job_state(plan=made, override=Overrides(word, 1, until_s), **fields)


def at(after_s: float):
    return inputs(NOW_S + after_s, boards=(board(),), ranks=(rank(),), limits=limits(asked=True))


def shown(state, after_s: float = 100.0):
    return drawn_plan(settled(state, at(after_s)), at(after_s))


def test_a_pause_without_an_end_is_shown_to_the_deadline_with_what_is_lost() -> None:
    view = shown(under("pause", work_s=3600.0, budget="2x"))
    assert [name for name, _ in view.levels] == ["pause"]
    assert view.first_s + (view.levels[0][1] - 1) * view.slot_s >= 8 * 900
    assert view.explanation.startswith("Paused by ada@pts/3 until cleared")
    assert "the budget becomes unreachable" in view.explanation


def test_a_boost_without_an_end_is_shown_as_full_speed_to_the_finish() -> None:
    known = {
        "work_s": 3600.0,
        "measured": Measured(full_w={"GPU-a": Mean(600.0, 9)}),
        "totals": Totals(gco2_g=100.0),
    }
    view = shown(under("boost", **known))
    assert view.levels == (("full", 5),) and view.finish == units.iso(NOW_S + 3700)
    assert view.gco2_g == pytest.approx(0.6 * 300.0, rel=0.02)
    assert (view.avoided_g, view.certificate, view.baselines) == (None, None, ()), "those were of the plan"
    assert view.explanation == "At full speed by ada@pts/3 until cleared; the rest is planned around it."


def test_an_override_with_an_end_is_followed_by_the_plan_and_says_its_price() -> None:
    view = shown(under("boost", NOW_S + 1800, free_g=160.0, work_s=14_400.0))
    assert view.levels[0] == ("full", 4) and view.levels[1] == ("pause", 3)
    told = re.search(r"emits (\d+) g, (\d+) g more than the plan alone", view.explanation)
    assert int(told[1]) == pytest.approx(view.gco2_g, abs=1.0), "by the account's watts"
    assert int(told[2]) / int(told[1]) == pytest.approx(15.0 / 175.0, rel=0.02)
    assert "already the best" not in view.explanation


@pytest.mark.parametrize("after", [PAUSE, FULL], ids=lambda level: level.name)
def test_a_pause_that_ends_within_a_slot_is_not_shown_to_that_slots_end(after) -> None:
    end = NOW_S + 1300.0
    word = protocol.Override("pause", None, units.iso(end), "ada@pts/3")
    made = planned(PAUSE, PAUSE, after, FULL, FULL, free_g=160.0)
    state = job_state(plan=made, override=Overrides(word, 1, end), work_s=1800.0)
    ahead = course.course(settled(state, at(100)), at(100))
    assert ahead.level_at(end - 1).name == "pause" and ahead.level_at(end + 1).name == after.name
    resumes = end if after is FULL else NOW_S + 2700.0
    assert ahead.finish_s == pytest.approx(resumes + 1800.0, abs=10.0)


def test_a_pause_of_a_minute_in_the_last_slot_does_not_make_the_work_late() -> None:
    end = NOW_S + 160.0
    word = protocol.Override("pause", None, units.iso(end), "ada@pts/3")
    state = job_state(plan=planned(PAUSE, free_g=160.0), override=Overrides(word, 1, end), work_s=300.0)
    ahead = course.course(settled(state, at(100)), at(100))
    assert ahead.level_at(end + 1).name == "full" and ahead.finish_s == pytest.approx(end + 300.0, abs=10.0)


def test_what_is_shown_stands_still_while_nothing_happens() -> None:
    for mode in ("pause", "boost"):
        state = under(mode, free_g=175.0)
        one, other = shown(state, 100), shown(state, 160)
        assert one.levels[0][0] == other.levels[0][0]
        assert one.explanation.partition(" The work")[0] == other.explanation.partition(" The work")[0]


def test_a_cap_below_every_level_of_the_plan_is_a_level_of_its_own() -> None:
    state = under("cap", value_w=150.0, curve=known_by("measured"), caps_hold=True, work_s=3600.0)
    view = shown(state)
    assert view.levels[0][0] == "cap 150 W"
    (info,) = (info for info in view.table if info.name == "cap 150 W")
    assert info.assumed and info.speed == pytest.approx(0.4) and info.cap_w == 150.0


def test_a_refused_cap_is_shown_as_the_full_speed_that_is_in_force() -> None:
    from carbontui.power.messages import Outcome

    no = limits(asked=True, outcomes={"GPU-a": Outcome("GPU-a", False, "no_permission", text="only root may")})
    seen = inputs(NOW_S + 100, boards=(board(),), ranks=(rank(),), limits=no)
    state = under("cap", value_w=300.0, curve=known_by("measured"), caps_hold=True, work_s=3600.0)
    view = drawn_plan(settled(settled(state, seen), seen), seen)
    assert view.levels[0][0] == "full"


def test_the_sentence_never_speaks_of_a_stretch_that_is_over() -> None:
    made = planned(PAUSE, FULL, FULL, CAP, CAP, PAUSE, FULL)
    state = job_state(plan=made, caps_hold=True)

    def sentence(after_s: float) -> str:
        return shown(state, after_s).explanation

    def clock(slots: int) -> str:
        return figures.clock(NOW_S + slots * 900, NOW_S)

    since = f"as planned at {clock(0)}."
    assert sentence(899) == f"Pausing until {clock(1)} saves 9.00 g on the work left, against running now."
    assert (
        sentence(900) == f"Running at full speed until {clock(3)}, then running at cap 300 W until {clock(5)}, {since}"
    )
    assert sentence(4500) == f"Pausing until {clock(6)}, {since}"
    assert sentence(5400) == f"Running at full speed to the end ({clock(7)}), {since}"
    late = plan_of(FULL, PAUSE, FULL, late_s=600.0)
    assert shown(job_state(plan=late), 100).explanation.startswith("The work does not fit before the deadline")


def test_without_an_override_the_plan_is_shown_as_it_is() -> None:
    state = replace(under("boost", work_s=3600.0), override=Overrides())
    view = shown(state, 10)
    assert structs.replace(view, explanation="", said=(), curve_note="") == state.plan.view


def known_by(basis: str, speed_se: float = 0.04):
    levels = (
        Point(kind="cap", cap_w=300.0, power_w=300.0, power_se=9.0, speed=0.8, speed_se=speed_se),
        Point(kind="full", cap_w=None, power_w=600.0, power_se=0.0, speed=1.0, speed_se=0.0),
    )
    return Curve(gpu="H100", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=1.0, points=levels,
                 levels=levels, basis=basis)  # fmt: skip


def test_a_plan_says_what_its_caps_rest_on_and_whether_measuring_them_would_pay() -> None:
    def note(curve, *levels) -> str:
        return shown(job_state(plan=plan_of(*levels), curve=curve, caps_hold=True), 0).curve_note

    hours = (CAP,) * 16
    assert note(known_by("measured"), *hours) == "" and note(known_by("public"), FULL, PAUSE) == "" == note(
        None, *hours
    )
    told = note(known_by("public"), *hours)
    assert "public measurements of other trainings: joules per step ±6 %" in told
    assert told.endswith("would pay: carbontui learn speed (5 min to 15 min).")
    brief = note(known_by("imported", speed_se=0.01), CAP)
    assert "another GPU of this model" in brief and "would pay" not in brief, "a quarter of an hour is not worth it"


# --- under an override the plan is a plan ----------------------------------------------------------------------------

SIZES = ((200, 60), (120, 40), (80, 24), (64, 20), (40, 15))
HELD = {
    "none": {},
    "pause": {"override": ("pause", None, None)},
    "pause until": {"override": ("pause", None, 3000.0)},
    "boost": {"override": ("boost", None, None)},
    "boost until": {"override": ("boost", None, 1500.0)},
    "cap": {"override": ("cap", 300.0, None)},
    "cap until": {"override": ("cap", 300.0, 3600.0)},
    "cap between": {"override": ("cap", 400.0, None)},
    "cap, no curve": {"override": ("cap", 400.0, None), "curve": None},
    "cap until, no curve": {"override": ("cap", 400.0, 3600.0), "curve": None},
    "forbidden": {"forbidden": (ForbiddenHours(NOW_S - 600.0, NOW_S + 2700.0, by="bob"),)},
    "site": {"site": Headroom(100.0, 1000.0, True, 1500.0, 2000.0)},
    "allowance": {"allowances": Allowances((Allowance("carbon", 2000.0),), cap_w=300.0)},
}


def overridden(name: str) -> JobState:
    made = plan_of(PAUSE, PAUSE, FULL, FULL, FULL, FULL, FULL, FULL, left_s=5400.0)
    windows = (
        protocol.PlanWindow(units.iso(NOW_S), units.iso(NOW_S + 1800.0), "pause", 300.0, 0.045, 13.5, 4.0),
        protocol.PlanWindow(units.iso(NOW_S + 1800.0), units.iso(NOW_S + 7200.0), "full", 300.0, 0.9, 270.0, 0.0),
    )
    made = replace(made, explanation=SAVES, free_gco2_g=95.0)
    made = replace(made, view=structs.replace(made.view, windows=windows, gco2_g=283.5, kwh=0.945))
    ends = ((1.0, 500.0), (1.5, 420.0), (2.0, 350.0), (3.0, 340.0), (4.0, 300.0), (5.0, 280.0))
    points = tuple(protocol.FrontierPoint(at * 3600.0, grams, 0.0, 1.0) for at, grams in ends)
    given = dict(HELD[name])
    mode, watts, until = given.pop("override", ("", None, None))
    at_s = None if until is None else NOW_S + until
    if mode:
        word = protocol.Override(mode, watts, at_s and units.iso(at_s), "ada@pts/3")
        given["override"] = Overrides(word, 1, at_s)
    fields = {"curve": known_by("measured"), "caps_hold": True, "work_s": 5400.0, "budget": "3x", **given}
    measured = Measured(full_w={"GPU-a": Mean(600.0, 9)}, parked_w={"GPU-a": Mean(90.0, 9)}, rest_w=Mean(80.0, 9))
    return job_state(
        plan=made,
        measured=measured,
        totals=Totals(gpu_kwh=0.1, wall_kwh=0.12, gco2_g=36.0),
        frontier=protocol.Frontier(points, 2, 5400.0),
        **fields,
    )


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", HELD)
def test_rows_sum_to_their_total_and_the_plan_lies_on_its_frontier(name, size):
    seen = inputs(NOW_S + 100, boards=(board(),), ranks=(rank(),), limits=limits(asked=True))
    state = overridden(name)
    for _ in range(3):
        state = settled(state, seen)
    told, plan = status_of(state, seen), drawn_plan(state, seen)
    curve = shown_plan.frontier(state, plan, told.at_end)
    view_state = ViewState(1, told, protocol.ChartSeries(now=units.iso(seen.now_s)), plan, curve)
    # rows and total, as printed
    rows = ["".join(text for text, _ in row) for row in plan_text.course_rows(view_state, size[0])]
    grams = [units_of(row) for row in rows[1 : 1 + len(plan.windows)]]
    total = units_of(next(row for row in rows if row.startswith((" the rest", " to "))))
    assert sum(grams) == pytest.approx(total, abs=0.51 * (len(grams) + 1)), rows
    # one boundary with the account, an end where the work is known
    open_pause = name == "pause"
    assert (told.finish_expected is None, told.at_end is None) == (open_pause, open_pause)
    if told.account.ahead is not None:
        assert plan.gco2_g == pytest.approx(told.account.ahead.gco2_g, rel=0.02)
        assert plan.kwh == pytest.approx(told.account.ahead.energy_wall_kwh, rel=0.02)
        assert plan.finish == told.finish_expected == told.at_end.finish
    # the plan in force is on a frontier that never rises
    chosen = curve.points[curve.chosen]
    assert not open_pause or len(curve.points) == 1, "what does no work is no choice beside what does"
    whole = pytest.approx(36.0 + plan.gco2_g) if told.at_end is None else pytest.approx(told.at_end.gco2_g, rel=0.005)
    assert chosen.gco2_g == whole
    assert chosen.finish_s == pytest.approx(units.from_iso(plan.finish) - NOW_S, abs=0.01)
    ascending = [point.gco2_g for point in curve.points]
    assert ascending == sorted(ascending, reverse=True)
    # no level of 0 W that runs, and none is called not started that has steps
    assert all(level.power_w > 0 for level in plan.table if level.speed > 0)
    assert not any("not started" in row for row in rows)


def units_of(row: str) -> float:
    """Grams of the first figure in grams of a row."""
    found = re.search(r"(\d[\d.]*) (k?)g\b(?!/)", row)
    assert found is not None, row
    return float(found[1]) * (1000.0 if found[2] else 1.0)


def test_late_in_a_slot_the_frontier_is_of_the_end_that_is_expected_now() -> None:
    made, seen = overridden("boost"), at(3600.0)
    # an hour after the plan was made, at other watts than it had thought
    state = replace(made, override=Overrides(), totals=replace(made.totals, gco2_g=500.0))
    state = settled(state, seen)
    told, plan = status_of(state, seen), drawn_plan(state, seen)
    curve, known = shown_plan.frontier(state, plan, told.at_end), state.frontier
    assert curve.points[curve.chosen].gco2_g == pytest.approx(told.at_end.gco2_g, rel=0.005)
    assert abs(known.points[known.chosen].gco2_g - told.at_end.gco2_g) > 50.0, "the plan's own is of when it was made"
    grams = [point.gco2_g for point in curve.points]
    assert len(grams) == len(known.points) and grams == sorted(grams, reverse=True)
