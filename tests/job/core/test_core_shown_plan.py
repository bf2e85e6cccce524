"""The plan under a person's word: what is shown is what will be done, and what the word costs."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs
from states import CAP, FULL, NOW_S, PAUSE, job_state, plan_of

from carbontui import protocol, units
from carbontui.job.supervisor.core import shown_plan
from carbontui.job.supervisor.core.override import Overrides
from carbontui.power.curve import Curve, Point


def under(mode: str, until_s: float | None = None, free_g: float | None = None, **fields):
    word = protocol.Override(mode, None, None if until_s is None else units.iso(until_s), "ada@pts/3")
    planned = plan_of(PAUSE, FULL, FULL, FULL, PAUSE, PAUSE, PAUSE, FULL, left_s=3600.0)
    run_now = protocol.Baseline("run now", 191.0, 0.0, units.iso(NOW_S + 3600), True)
    view = structs.replace(planned.view, gco2_g=175.0, baselines=(run_now,), explanation="Pausing until 08:15.")
    planned = replace(planned, view=view, free_gco2_g=free_g)
    return job_state(plan=planned, override=Overrides(word, 1, until_s), **fields)


def test_a_pause_without_an_end_is_shown_as_one_to_the_deadline_and_says_what_is_lost() -> None:
    view = shown_plan.view(under("pause", work_s=3600.0, budget="2x"), NOW_S + 100)
    assert [name for name, _ in view.levels] == ["pause"]
    assert view.first_s + (view.levels[0][1] - 1) * view.slot_s >= 8 * 900
    assert view.explanation.startswith("Paused by ada@pts/3 until cleared")
    assert "the budget becomes unreachable" in view.explanation


def test_a_boost_without_an_end_is_shown_as_flat_out_to_the_finish_with_its_price() -> None:
    view = shown_plan.view(under("boost", free_g=175.0), NOW_S + 100)
    assert view.levels == (("full", 4),) and view.finish == units.iso(NOW_S + 3600)
    assert view.gco2_g == 191.0
    assert view.explanation == (
        "Boosted by ada@pts/3 until cleared: the work left emits 191 g, 16 g more than the plan alone (175 g)."
    )


def test_a_word_with_an_end_keeps_the_plan_made_around_it_and_says_its_price() -> None:
    state = under("boost", NOW_S + 1800, free_g=160.0)
    view = shown_plan.view(state, NOW_S + 100)
    assert view.levels == state.plan.view.levels
    assert "15 g more than the plan alone (160 g)" in view.explanation
    assert "already the best" not in view.explanation


def test_what_is_shown_stands_still_while_nothing_happens() -> None:
    for mode in ("pause", "boost"):
        state = under(mode, free_g=175.0)
        assert shown_plan.view(state, NOW_S + 100) == shown_plan.view(state, NOW_S + 160)


def test_the_sentence_never_speaks_of_a_stretch_that_is_over() -> None:
    planned = plan_of(PAUSE, FULL, FULL, CAP, CAP, PAUSE, FULL)
    said = "Pausing until 08:15 saves 9 g against running now."
    state = job_state(plan=replace(planned, view=structs.replace(planned.view, explanation=said)))

    def sentence(after_s: float) -> str:
        return shown_plan.view(state, NOW_S + after_s).explanation

    def clock(slots: int) -> str:
        return units.fmt_clock(NOW_S + slots * 900, NOW_S)

    made = f"as planned at {clock(0)}."
    assert sentence(899) == said
    assert sentence(900) == f"Running at full until {clock(3)}, then running at cap 300 W until {clock(5)}, {made}"
    assert sentence(4500) == f"Pausing until {clock(6)}, {made}"
    assert sentence(5400) == f"Running at full to the end ({clock(7)}), {made}"
    assert sentence(6300) == f"The plan made at {clock(0)} is over."
    late = plan_of(PAUSE, FULL, late_s=600.0)
    late = replace(late, view=structs.replace(late.view, explanation="The work does not fit."))
    assert shown_plan.view(job_state(plan=late), NOW_S + 1000).explanation == "The work does not fit."


def test_without_a_word_the_plan_is_shown_as_it_is() -> None:
    state = replace(under("boost"), override=Overrides())
    assert shown_plan.view(state, NOW_S) is state.plan.view


def known_by(basis: str, speed_se: float = 0.04):
    levels = (
        Point(kind="cap", cap_w=300.0, power_w=300.0, power_se=9.0, speed=0.8, speed_se=speed_se),
        Point(kind="full", cap_w=None, power_w=600.0, power_se=0.0, speed=1.0, speed_se=0.0),
    )
    return Curve(gpu="H100", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=1.0, points=levels,
                 levels=levels, basis=basis)  # fmt: skip


def test_a_plan_says_what_its_caps_rest_on_and_whether_measuring_them_would_pay() -> None:
    def note(curve, *levels) -> str:
        return shown_plan.view(job_state(plan=plan_of(*levels), curve=curve), NOW_S).curve_note

    hours = (CAP,) * 16
    assert note(known_by("measured"), *hours) == "" and note(known_by("public"), FULL, PAUSE) == "" == note(
        None, *hours
    )
    told = note(known_by("public"), *hours)
    assert "public measurements of other trainings: joules per step ±6%" in told
    assert told.endswith("would pay: carbontui calibrate (5 min to 15 min).")
    brief = note(known_by("imported", speed_se=0.01), CAP)
    assert "another board of this model" in brief and "would pay" not in brief, "a quarter of an hour is not worth it"
