"""The plan as it will be carried out: under an override, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import drawn_plan
from msgspec import structs
from states import CAP, FULL, NOW_S, PAUSE, board, inputs, job_state, limits, plan_of, rank, settled

from carbontui import protocol, units
from carbontui.job.supervisor.core.planning import course
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.plan.results import Explanation
from carbontui.power.curves.curve import Curve, Point
from carbontui.text import figures

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
    assert "15 g more than the plan alone (160 g)" in view.explanation
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
    assert sentence(900) == f"Running at full until {clock(3)}, then running at cap 300 W until {clock(5)}, {since}"
    assert sentence(4500) == f"Pausing until {clock(6)}, {since}"
    assert sentence(5400) == f"Running at full to the end ({clock(7)}), {since}"
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
    assert told.endswith("would pay: carbontui calibrate (5 min to 15 min).")
    brief = note(known_by("imported", speed_se=0.01), CAP)
    assert "another board of this model" in brief and "would pay" not in brief, "a quarter of an hour is not worth it"
