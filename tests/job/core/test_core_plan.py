"""The plan in force: what it says of a moment, what a new one keeps of it, and what a successor reads."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from drawn import drawn_plan
from msgspec import structs
from states import CAP, FULL, NOW_S, PAUSE, board, decided, inputs, job_state, outlook, plan_of

from carbontui import protocol, units
from carbontui.account.estimate import Blocks
from carbontui.job.supervisor.core.advance import Command, PlanMade, Tick, advance
from carbontui.job.supervisor.core.planning import answers, finish, plan_request
from carbontui.job.supervisor.core.state import plan
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.plan import Level, Plan
from carbontui.job.supervisor.core.view import status
from carbontui.job.supervisor.shell.replanner import Replanner
from carbontui.job.terms import budget as budgets
from carbontui.job.terms.child import Child
from carbontui.job.worker.messages import Limits
from carbontui.job.worker.process import preview_plan, solve_plan
from carbontui.protocol import Override
from carbontui.text.statements import words
from carbontui.tui.widgets import plan_text

UNLOAD = Level("unload", "unload", 25.0, 0.0)


def thawed(kept):
    """As the journal gives it back."""
    return msgspec.json.decode(msgspec.json.encode(kept))


def counted(state, seen):
    return words(status.boundary(state, seen)[1], NOW_S)


# --- what it says ---


def test_the_next_change_is_where_the_level_changes_not_where_the_slot_does():
    says = plan_of(FULL, FULL, PAUSE).at(NOW_S)
    assert (says.level.kind, says.next_at_s) == ("full", NOW_S + 1800.0)


def test_the_finish_is_no_change():
    finished = plan_of(FULL, FULL)
    finished = replace(finished, names=("full", ""))
    says = finished.at(NOW_S)
    assert says.level.kind == "full" and says.next_at_s is None


def test_a_slot_ends_where_the_next_begins():
    made = plan_of(FULL, PAUSE)
    assert made.at(NOW_S + 899.999).level.kind == "full" and made.at(NOW_S + 900.0).level.kind == "pause"


@pytest.mark.parametrize("at_s", [NOW_S - 1, NOW_S + 1800, NOW_S + 1e9])
def test_a_plan_says_nothing_of_times_it_was_not_made_for(at_s):
    assert plan_of(FULL, PAUSE).at(at_s) == plan.PlannedLevel()


def test_work_is_expected_at_the_speed_of_each_level():
    made = plan_of(FULL, PAUSE, CAP)
    assert made.work_done_s(NOW_S) == 0.0
    assert made.work_done_s(NOW_S + 1000) == 900.0
    assert made.work_done_s(NOW_S + 2700) == 900.0 + 0.8 * 900.0


# --- what a successor reads ---


def test_what_a_successor_reads_says_the_same_of_every_moment():
    made = plan_of(FULL, CAP, PAUSE, FULL, left_s=3000.0)
    again = plan.restored(thawed(plan.to_kept(made)))
    for minute in range(0, 61, 5):
        at_s = NOW_S + 60 * minute
        assert again.at(at_s) == made.at(at_s)
    assert again.view == made.view and again.work_left_s is None


def spoilt(**fields):
    return thawed(plan.to_kept(plan_of(FULL, PAUSE))) | fields


@pytest.mark.parametrize(
    "kept",
    [
        None, {}, [], 7, "plan", spoilt(names=["full"]), spoilt(edges_s=[3, 2, 1]), spoilt(edges_s=[0.0, 0.0, 1.0]),
        spoilt(view={}), spoilt(edges_s=None),
    ],
)  # fmt: skip
def test_a_plan_kept_in_another_shape_is_no_plan(kept):
    assert plan.restored(kept) is None


def test_a_plan_whose_times_nobody_can_read_is_no_plan():
    kept = thawed(plan.to_kept(plan_of(FULL, PAUSE)))
    assert plan.restored(kept) is not None
    assert plan.restored(kept | {"view": kept["view"] | {"finish": "soon"}}) is None


def test_a_kept_plan_of_unknown_levels_runs_flat_out():
    odd = plan.restored(spoilt(view={**thawed(plan.to_kept(plan_of(FULL, PAUSE)))["view"], "table": []}))
    assert finish.planned(job_state(plan=odd), inputs()).level.kind == "full"


# --- overrides in a plan ---


def setup_of(state, seen=None):
    return plan_request.plan_request(state, seen or inputs()).setup


def test_a_pause_with_an_end_is_fixed_up_to_it_and_an_open_one_for_its_slot():
    setup = setup_of(job_state(budget="4h"))
    kinds = [level.kind for level in setup.levels]
    pause = Override("pause", None, None, "ada")
    assert answers.fixed_slots(pause, None, setup) == {0: kinds.index("pause")}
    assert answers.fixed_slots(pause, setup.start_s + setup.first_s + 900, setup) == {
        0: kinds.index("pause"), 1: kinds.index("pause"),
    }  # fmt: skip
    assert answers.fixed_slots(None, None, setup) == {}


def test_a_cap_is_the_level_of_exactly_its_watts_or_none():
    levels = (PAUSE, Level("cap 250 W", "cap", 250.0, 0.7, cap_w=250.0), CAP, FULL)
    assert answers.level_under(Override("cap", 300.0, None, "ada"), levels).cap_w == 300.0
    assert answers.level_under(Override("cap", 299.0, None, "ada"), levels) is None


def test_a_pause_before_the_start_is_a_start_that_waits():
    levels = (Level("off", "off", 0.0, 0.0), PAUSE, FULL)
    assert answers.level_under(Override("pause", None, None, "ada"), levels).kind == "off"


# --- a new plan ---


def test_the_old_plan_is_offered_on_the_slots_of_the_new_problem():
    known = job_state(budget="4h", plan=plan_of(FULL, PAUSE, PAUSE, FULL))
    request = plan_request.plan_request(known, inputs())
    kinds = [request.setup.levels[index].kind if index >= 0 else "" for index in request.ask.kept]
    assert kinds[:5] == ["full", "pause", "pause", "full", ""]


def test_an_old_plan_of_levels_that_are_gone_is_not_offered():
    known = job_state(budget="4h", plan=plan_of(FULL, CAP))
    assert plan_request.plan_request(known, inputs()).ask.kept is None


def test_a_plan_that_is_late_says_by_how_much():
    text = drawn_plan(job_state(plan=plan_of(FULL, FULL, late_s=1200.0)), inputs()).explanation
    assert "20 min late" in text and "does not fit before the deadline" in text


def test_the_finished_tail_is_left_out_of_what_viewers_get():
    assert answers.coded(["full", "full", "pause", "full", "", ""]) == (("full", 2), ("pause", 1), ("full", 1))


def test_slot_boundaries_are_those_of_the_clock():
    assert answers.slot_boundary(NOW_S + 1, 900.0) == NOW_S + 900.0
    assert answers.slot_boundary(NOW_S, 900.0) == NOW_S + 900.0, "the one that begins now is over for planning"


# --- what is asked ---


def test_nothing_is_planned_without_work_left_or_an_outlook():
    assert plan_request.plan_request(job_state(work_s=None), inputs()) is None
    assert plan_request.plan_request(job_state(outlook=None), inputs()) is None
    done = job_state()
    done = replace(done, progress=structs.replace(done.progress, plain_done_s=7200.0))
    assert plan_request.plan_request(done, inputs()) is None


def test_a_deadline_that_cannot_be_met_is_planned_to_the_soonest_finish():
    request = plan_request.plan_request(job_state(budget="1h", work_s=7200.0), inputs())
    assert request.deadline_s == NOW_S + 3600.0
    assert request.setup.deadline_s == NOW_S + 100.0 + 7200.0


def test_a_plan_keeps_the_deadline_at_the_slow_end_of_the_measured_speed():
    def planned_s(times_s, budget="4h"):
        state = job_state(budget=budget, work_s=None, steps=7200)
        blocks = Blocks()
        for seconds in times_s:
            blocks = blocks.plus(20, 20 * seconds)
        measured = structs.replace(state.progress, step=200, ref_steps=200.0, ref_time_s=200.0, ref_wall_s=200.0)
        state = replace(state, progress=structs.replace(measured, blocks=blocks))
        request = plan_request.plan_request(state, inputs())
        return request.setup.problem.work_s, request.left_s

    steady, left = planned_s([1.0] * 10)
    uneven, same = planned_s([0.8, 1.2] * 5)
    assert left == same == 7000.0 and steady == pytest.approx(left, rel=1e-3)
    assert uneven > 1.02 * left
    tight, _ = planned_s([0.8, 1.2] * 5, budget="7210s")
    assert tight <= 7110.0, "no further than what fits: at full speed it is in time"


def test_a_job_that_weighs_shows_what_other_weights_would_take():
    clean_then_cheap = outlook(*(200.0,) * 9, *(400.0,) * 87, price=(1.0,) * 9 + (0.02,) * 87)
    asked = {"weight": "carbon=0.7,cost=0.3", "currency": "EUR", "budget": "10x", "outlook": clean_then_cheap}
    request = plan_request.plan_request(job_state(**asked), inputs())
    made = answers.from_answer(request.setup, solve_plan(request.ask), NOW_S).view
    assert [one.carbon for one in made.weights] == [1.0, 0.75, 0.5, 0.25, 0.0]
    grams, money = [one.gco2_g for one in made.weights], [one.cost for one in made.weights]
    assert grams == sorted(grams) and money == sorted(money, reverse=True) and grams[0] < grams[-1]
    assert grams[0] <= made.gco2_g <= grams[-1], "0.7 lies between"
    rows = ["".join(text for text, _ in row) for row in plan_text.total_rows(made, NOW_S)]
    assert any(row.startswith(" carbon 100 %") and row.endswith("EUR") for row in rows)
    unweighed = plan_request.plan_request(job_state(outlook=clean_then_cheap), inputs())
    assert not solve_plan(unweighed.ask).weights


def test_the_planner_knows_how_long_the_level_itself_has_lasted():
    known = job_state(budget="4h", still=True, still_changed_s=NOW_S - 1700.0)
    known = replace(known, decision=decided("paused", "pause", "plan", ""))
    initial = setup_of(known).problem.initial
    assert (initial.level, initial.age_slots) == (0, 2)


@pytest.mark.parametrize(
    ("observed", "child", "level"),
    [("waiting", "waiting", "off"), ("unloaded", "unloaded", "unload"), ("paused", "running", "pause"),
     ("pausing", "running", "pause"), ("running", "running", "full"), ("throttled", "running", "cap 300 W")],
)  # fmt: skip
def test_the_planner_starts_from_what_the_job_really_does(observed, child, level):
    name = {"throttled": "cap 300 W"}.get(observed, "full")
    known = job_state(decision=decided(observed, name, "plan", ""))
    assert plan_request.level_now(known, inputs(child=Child(child))) == level


def test_how_much_of_the_longest_pause_is_over_is_told_to_the_planner():
    known = job_state(budget="4h", asked=Desired("pause", 1, still_since_s=NOW_S - 500.0), max_pause_s=3600.0)
    pauses = plan_request.plan_request(known, inputs()).ask.pauses
    assert (pauses.max_pause_s, pauses.still_s) == (3600.0, 600.0)
    assert pauses.pausing == (0,), "full is no pause"


def test_what_was_planned_around_an_override_is_not_kept_when_it_is_over():
    paused = Overrides(protocol.Override("pause", None, None, "ada"), 1)
    known = job_state(budget="4h", plan=replace(plan_of(PAUSE, FULL, FULL), free_gco2_g=1.0))
    over = plan_request.plan_request(known, inputs()).ask
    held = plan_request.plan_request(replace(known, override=paused), inputs()).ask
    assert over.kept is None and held.kept is not None and held.kept[0] == 0


def test_the_outlook_reaches_a_day_and_the_end_of_the_frontier():
    assert plan_request.ahead_s(job_state(), NOW_S) == 86400.0
    assert plan_request.ahead_s(job_state(work_s=86400.0, budget="2d"), NOW_S) == 3 * 86400.0 + 3600.0
    assert plan_request.ahead_s(job_state(work_s=None), NOW_S) == 86400.0


def test_money_is_money_per_hour_of_each_gpu_and_grams_by_their_price():
    two, none = inputs(boards=(board(), board("GPU-b"))), inputs()
    assert plan_request.objective_of(job_state(), two) == plan_request.problem.Objective(0.0, 1.0, 0.0)
    priced = job_state(objective="cost", gpu_price=2.5, carbon_price=100.0)
    assert plan_request.objective_of(priced, two) == plan_request.problem.Objective(1.0, 1e-4, 5.0)
    assert plan_request.objective_of(priced, none).rent_per_h == 2.5, "a job on a CPU rents one"


@pytest.mark.parametrize(("kind", "off"), [("held", True), ("always-on", False), ("given-back", False)])
def test_making_the_boards_is_weighed_in_the_hours_that_count(kind, off):
    seen = inputs(child=Child("waiting"), boards=(board(), board("GPU-b")))
    asked = lambda given: job_state(budget="4h", boundary=kind, embodied=given)  # noqa: E731
    built = plan_request.plan_request(asked("published"), seen).setup.problem
    made_g = 2 * (164_000 + 2_500_000 / 8) / 44_676
    per_h = {level.name: level.embodied_g_per_h for level in built.levels}
    assert per_h == {name: pytest.approx(made_g if off or name != "off" else 0.0) for name in per_h} and "off" in per_h
    assert plan_request.objective_of(asked(9.0), seen).embodied_g_per_h == 18.0 and "18 g per hour" in counted(
        asked(9.0), seen
    )
    unknown = inputs(boards=(board(name="Some Board"),))
    assert plan_request.objective_of(asked("published"), unknown).embodied_g_per_h == 0.0
    assert "not published" in counted(asked("published"), unknown) and "making" not in counted(asked(None), seen)


def test_a_preview_under_an_override_keeps_the_override():
    paused = Overrides(protocol.Override("pause", None, None, "ada"), 1)
    known = job_state(budget="4h", override=paused)
    request = plan_request.preview_request(known, inputs(), budgets.parse("3x", NOW_S), 80.0)
    assert request.ask.fixed == {0: 0} and request.setup.problem.beta == 80.0 / 1e6
    assert request.setup.deadline_s == NOW_S + 3 * 7200.0
    done = job_state(work_s=None)
    assert plan_request.preview_request(done, inputs(), budgets.parse("3x", NOW_S), None) is None


def test_a_preview_keeps_the_plan_that_the_budget_would_leave_in_force():
    known = replace(job_state(budget="4h"), plan=plan_of(*[FULL] * 8, PAUSE, *[PAUSE] * 7))
    seen, wanted = inputs(), budgets.parse("3h", NOW_S)
    kept = plan_request.plan_request(known, seen).ask.kept
    asked = plan_request.preview_request(known, seen, wanted, None).ask
    assert kept is not None and asked.kept == kept[: len(asked.kept)]
    assert plan_request.preview_request(known, seen, wanted, None, NOW_S + 60.0, keep=False).ask.kept is None


async def test_the_plan_in_force_is_solved_once_for_the_previews_of_a_moment():
    known, seen, asked = replace(job_state(budget="4h"), plan=plan_of(*[FULL] * 8)), inputs(), []

    async def solved(ask):
        asked.append(ask)
        return preview_plan(ask)

    parts = dict.fromkeys(("grid", "journal", "recorder"))
    door, worker = SimpleNamespace(state=known), SimpleNamespace(preview=solved)
    ports = SimpleNamespace(read_inputs=lambda: seen)
    planner = Replanner(door=door, worker=worker, ports=ports, **parts)
    first = await planner.preview(protocol.Preview(1, "3h"))
    door.state, seen = replace(known, spec=known.spec), replace(seen, now_s=seen.now_s + 1.0, mono_s=seen.mono_s + 1.0)
    second = await planner.preview(protocol.Preview(2, "5h"))
    assert len(asked) == 3 and first.instead == second.instead is not None
    # one that sets nothing differs from it by nothing
    same = await planner.preview(protocol.Preview(3, "4h"))
    assert (same.gco2_g, same.finish) == (same.instead.gco2_g, same.instead.finish)
    door.state = replace(known, budget=budgets.parse("6h", NOW_S))
    assert (await planner.preview(protocol.Preview(4, "5h"))).instead != first.instead and len(asked) == 6


def test_a_preview_of_a_budget_that_cannot_be_met_says_how_late():
    request = plan_request.preview_request(job_state(budget="4h"), inputs(), budgets.parse("1h", NOW_S), None)
    view = answers.from_answer(request.setup, preview_plan(request.ask), NOW_S, request.deadline_s).view
    assert units.from_iso(view.deadline) == NOW_S + 3600.0 and view.late_s == pytest.approx(3700.0, abs=1.0), (
        "it starts in 100 s"
    )


def test_a_plan_without_slots_says_nothing():
    assert Plan((), (NOW_S,), {}, plan_of(FULL).view).at(NOW_S) == plan.PlannedLevel()


# --- what time is worth ---


def request_of(state, **seen):
    return plan_request.plan_request(state, inputs(**seen))


def made(state, request):
    answer = solve_plan(request.ask)
    new = answers.from_answer(request.setup, answer, NOW_S, request.deadline_s, request.left_s, state.spec.patience)
    frontier = answers.frontier_view(answer.frontier, request.setup, new.view, NOW_S, None, state.totals)
    return answer, advance(state, PlanMade(new, frontier, request.mean_per_kwh))[0]


def test_the_price_of_time_stands_on_the_first_plans_grid_until_the_budget_changes():
    state = job_state(work_s=7200.0, patience=2.0)
    first = request_of(state)
    full_w = max(level.power_w for level in first.setup.problem.levels)
    assert first.mean_per_kwh == pytest.approx(300.0)
    assert first.ask.problem.price_of_time * 3600 == pytest.approx(0.02 * full_w * 0.3 * first.setup.problem.pue)
    _, known = made(state, first)
    view = known.plan.view
    assert (view.patience_pct, view.price_of_time_g_per_h) == (2.0, pytest.approx(0.006 * full_w))
    assert view.certificate.gap_at_finish is not None
    cleaner = replace(known, outlook=outlook(*(100.0,) * 96))
    assert request_of(cleaner).mean_per_kwh == pytest.approx(300.0)
    more = replace(cleaner, progress=structs.replace(cleaner.progress, work_s=9000.0))
    assert request_of(more).ask.problem.price_of_time == first.ask.problem.price_of_time
    kept = msgspec.convert(thawed(msgspec.to_builtins(cleaner.worth)), plan.Worth)
    assert kept == cleaner.worth, "a successor goes on with it"
    asked, _ = advance(cleaner, Command(protocol.Cmd(1, "budget", {"budget": "3x"}), "ada", inputs()))
    assert request_of(asked).mean_per_kwh == pytest.approx(100.0)
    assert request_of(job_state(work_s=7200.0)).ask.problem.price_of_time == 0.0


def test_a_carbon_budget_comes_before_patience():
    dirty_first = outlook(*(300.0,) * 8, *(288.0,) * 40)
    state = job_state(work_s=7200.0, patience=4.0, budget="4x", outlook=dirty_first, worth=plan.Worth(acted=True))
    patient = request_of(state, child=Child("waiting")).ask
    now, least = (solve_plan(structs.replace(patient, problem=one, curve=None)) for one in (
        patient.problem, structs.replace(patient.problem, price_of_time=0.0)
    ))  # fmt: skip
    assert least.plan.gco2 < now.plan.gco2 and least.plan.finish_s > now.plan.finish_s
    bound = Limits(gco2_g=(least.plan.gco2 + now.plan.gco2) / 2)
    assert solve_plan(structs.replace(patient, most=bound)).plan.gco2 <= bound.gco2_g


@pytest.mark.parametrize("gain", [0.06, 60.0], ids=["nothing to gain", "something to gain"])
def test_a_job_on_a_cpu_is_not_slowed_to_save_0_00_g(gain):
    """As found: 460 g until 19:00, 400 after, ten minutes of work, paused watts that an always-on machine draws
    anyway."""
    seen = outlook(*(460.0,) * 1, *(460.0 - gain,) * 40)
    state = job_state(work_s=490.0, patience=2.0, budget="4x", outlook=seen, boundary="always-on")
    idle = Measured(rest_idle_w=Mean(26.0, 1))
    state = replace(state, progress=structs.replace(state.progress, step=10), measured=idle)
    answer, after = made(state, request_of(state, now_s=NOW_S + 800.0))
    names = {after.plan.names[k] for k in range(len(after.plan.names)) if after.plan.names[k]}
    assert (names == {"full"}) is (gain < 1.0)
    if gain < 1.0:
        explained = words(protocol.statement("plan_explained", stretches=(("full", False, NOW_S + 490.0),),
                          **structs.asdict(answer.explanation)), NOW_S)  # fmt: skip
        assert "0.00 g" not in explained and "saves" not in explained


def test_only_what_a_plan_does_counts_as_waiting_or_slowing():
    waits = job_state(plan=plan_of(PAUSE, FULL), work_s=900.0)
    assert not waits.worth.acted
    ticked, _ = advance(waits, Tick(inputs(boards=(board(),))))
    assert ticked.worth.acted and request_of(ticked).ask.untouched is None
    person = job_state(
        plan=plan_of(FULL, FULL), work_s=900.0, override=Overrides(Override("pause", None, None, "a"), 1)
    )
    assert not advance(person, Tick(inputs(boards=(board(),))))[0].worth.acted
