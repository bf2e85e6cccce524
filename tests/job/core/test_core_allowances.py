"""Carbon, cost and energy budgets: when they will be used up, and what is done about it in a person's order."""

from dataclasses import replace

import pytest
import states
from drawn import drawn
from states import NOW_S, board, inputs, job_state, outlook, rank

from carbontui import protocol
from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core.effects import DoNotResume, Record, effects
from carbontui.job.supervisor.core.planning import expected_end, plan_request
from carbontui.job.supervisor.core.rules import allowance_rules, control
from carbontui.job.supervisor.core.state import allowances, decision
from carbontui.job.supervisor.core.state.allowances import Allowances
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.supervisor.core.view.notices import key
from carbontui.job.terms.allowance import Allowance, parse, parse_order, recognised
from carbontui.job.terms.child import Child
from carbontui.job.worker.process import solve_plan
from carbontui.power.curves.curve import Curve, Point
from carbontui.text.account import NoticesShown

# 600 W at full speed, 2 h of work, 300 g/kWh: 1.2 kWh and 360 g in all
SEEN = inputs(NOW_S, boards=(board(),), ranks=(rank(),))
CURVE = Curve(
    gpu="H100",
    gpus=1,
    fingerprint="x",
    measured_s=NOW_S,
    rate_steps_per_s=1.0,
    levels=(
        Point(kind="cap", cap_w=400.0, power_w=400.0, power_se=1.0, speed=0.9, speed_se=0.01),
        Point(kind="cap", cap_w=250.0, power_w=250.0, power_se=1.0, speed=0.75, speed_se=0.01),
    ),
)


def job(*given: Allowance, order=("warn", "cap", "ask"), used_g=0.0, curve=None, **fields):
    made = job_state(
        allowances=Allowances(given=given, order=order),
        totals=Totals(gco2_g=used_g, wall_kwh=used_g / 300.0),
        progress=Progress(work_s=7200.0),
        measured=Measured(full_w={"GPU-a": Mean(600.0, 100)}),
        outlook=outlook(),
        curve=curve,
        caps_hold=curve is not None,
        **fields,
    )
    return replace(made, decision=states.decided("running", "full", "plan", ""))


def with_allowances(state, seen=SEEN):
    return allowance_rules.with_allowances(state, seen)


def decided(state, seen=SEEN):
    return control.decide(replace(state, asked=decision.Desired()), seen)


@pytest.mark.parametrize(
    ("text", "kind", "most"),
    [("2kg", "carbon", 2000.0), ("350 g", "carbon", 350.0), ("2kg CO2", "carbon", 2000.0), ("12", "cost", 12.0),
     ("12EUR", "cost", 12.0), ("5kWh", "energy", 5.0), ("300 Wh", "energy", 0.3)],
)  # fmt: skip
def test_an_allowance_is_a_number_with_its_unit(text, kind, most):
    assert parse(text, kind, "EUR") == Allowance(kind, pytest.approx(most))


@pytest.mark.parametrize(
    ("text", "kind"), [("2", "carbon"), ("-2kg", "carbon"), ("0kg", "carbon"), ("2kWh", "carbon"), ("12USD", "cost"),
                       ("2e99t", "carbon"), ("much", "energy"), ("", "cost")],
)  # fmt: skip
def test_what_is_no_allowance_is_refused_by_name(text, kind):
    with pytest.raises(ValueError, match=r"budget|job counts"):
        parse(text, kind, "EUR")


def test_a_time_is_no_amount():
    assert [recognised(text, "EUR") for text in ("18h", "1.8x", "fri 09:00", "30m", "2d")] == [None] * 5


def test_an_order_names_each_act_once():
    assert parse_order("warn, stop") == ("warn", "stop")
    for wrong in ("warn,warn", "panic", ""):
        with pytest.raises(ValueError):
            parse_order(wrong)


def test_what_will_do_is_only_counted():
    state = with_allowances(job(Allowance("carbon", 400.0)))
    (told,) = allowance_rules.on_wire(state)
    assert told.expected == pytest.approx(360.0) and told.used_up_at is None and told.act is None
    assert allowance_rules.notices(state, SEEN) == []


def test_what_will_not_do_is_said_with_the_moment_it_is_used_up_and_asked_about():
    state = with_allowances(job(Allowance("carbon", 180.0)))
    (told,) = allowance_rules.on_wire(state)
    assert told.used_up_at == "2027-01-15T09:00:00.000Z" and told.act == "ask"
    (line,) = allowance_rules.notices(state, SEEN)
    assert "180 g CO2 is not enough: 360 g CO2 expected" in drawn(line) and "carbontui stop" in drawn(line)
    assert "no cap: the GPUs take no limit" in drawn(line)


def test_a_question_nobody_answers_stands_and_the_training_goes_on():
    state = with_allowances(job(Allowance("carbon", 180.0)))
    later = inputs(NOW_S + 700.0, boards=(board(),), ranks=(rank(),))
    state = with_allowances(state, later)
    (line,) = allowance_rules.notices(state, later)
    assert "no answer: the training goes on" in drawn(line, later.now_s)
    assert decided(state, later)[0].mode == "run"


def test_the_fastest_cap_that_keeps_within_it_is_taken_and_nothing_more_is_asked():
    # 400 W at 0.9: 267 g; 250 W at 0.75: 200 g
    state = with_allowances(job(Allowance("carbon", 280.0), curve=CURVE))
    assert state.allowances.cap_w == 400.0 and state.allowances.asked_s is None
    asked, decision = decided(state)
    assert asked.limit_w == 400.0 and decision.why.code == "budget_stop"
    assert with_allowances(job(Allowance("carbon", 210.0), curve=CURVE)).allowances.cap_w == 250.0
    # none will do: the most frugal, and the question
    state = with_allowances(job(Allowance("carbon", 150.0), curve=CURVE))
    assert state.allowances.cap_w == 250.0 and state.allowances.asked_s == NOW_S


def test_what_is_expected_at_the_end_follows_the_cap():
    state = states.settled(with_allowances(job(Allowance("carbon", 210.0), curve=CURVE)), SEEN)
    end = expected_end.at_end(state, SEEN)
    assert end is not None and end.gco2_g == pytest.approx(200.0)


def test_a_cap_does_not_come_and_go_at_the_limit():
    # at full speed would be just within it, by less than the relief
    state = with_allowances(job(Allowance("carbon", 365.0), curve=CURVE))
    assert state.allowances.cap_w is None
    held = replace(state, allowances=replace(state.allowances, cap_w=400.0, checked_mono_s=float("-inf")))
    assert with_allowances(held).allowances.cap_w == 400.0
    looser = replace(held, allowances=replace(held.allowances, given=(Allowance("carbon", 380.0),)))
    assert with_allowances(looser).allowances.cap_w is None


def test_a_person_stands_above_the_cap_and_the_pause_of_a_budget():
    override = protocol.Override("boost", None, None, "ada@pts/1")
    state = replace(with_allowances(job(Allowance("carbon", 210.0), curve=CURVE)), override=Overrides(override, 1))
    assert decided(state)[0].limit_w is None
    state = with_allowances(job(Allowance("carbon", 210.0), order=("pause",), used_g=211.0))
    assert decided(state)[0].mode == "pause"
    assert decided(replace(state, override=Overrides(override, 1)))[0].mode == "run"


def test_used_up_it_is_said_though_nobody_asked_to_be_warned():
    state = with_allowances(job(Allowance("carbon", 210.0), order=("cap",), used_g=211.0))
    (line,) = allowance_rules.notices(state, SEEN)
    assert "is used up (211 g CO2)" in drawn(line) and "the training goes on" in drawn(line)
    assert decided(state)[0].mode == "run"


def test_a_stop_writes_a_checkpoint_leaves_and_does_not_come_back():
    can = inputs(NOW_S, boards=(board(),), ranks=(rank(can_unload=True),))
    before = job(Allowance("carbon", 210.0), order=("stop",), used_g=150.0)
    assert with_allowances(before, can).allowances.act is None
    # what the last checkpoint takes is set aside: 30 s of 600 W at 300 g/kWh are 1.5 g
    state = with_allowances(replace(before, totals=Totals(gco2_g=208.6)), can)
    asked, decision = decided(state, can)
    assert asked.mode == "unload" and decision.why.code == "budget_stop"
    done = effects(before, state, can, renew=False)
    assert [drawn(effect.why) for effect in done if isinstance(effect, DoNotResume)] == [
        "the carbon budget of 210 g CO2 is used up"
    ]
    assert any(isinstance(effect, Record) and effect.kind == "allowance" for effect in done)
    # a larger budget takes it back
    raised, reply = commands.apply(state, protocol.Cmd(1, "budget", {"budget": "300g"}), can, "ada")
    assert not reply.answer.exit_code and "209 g CO2 used so far" in drawn(reply.answer)
    assert DoNotResume(None) in effects(state, with_allowances(raised, can), can, renew=False)


def test_without_a_checkpoint_function_nothing_is_stopped():
    state = with_allowances(job(Allowance("carbon", 210.0), order=("stop",), used_g=211.0))
    assert decided(state)[0].mode == "run"
    assert "no checkpoint function" in drawn(allowance_rules.notices(state, SEEN)[0])
    state = with_allowances(job(Allowance("carbon", 210.0), order=("stop", "pause"), used_g=211.0))
    assert decided(state)[0].mode == "pause"


def test_that_stop_will_not_stop_it_is_said_with_the_choices_from_its_first_steps():
    state = replace(job(Allowance("carbon", 1000.0), order=("warn", "stop")), progress=Progress(step=1, work_s=7200.0))
    (line,) = allowance_rules.notices(with_allowances(state), SEEN)
    assert "will not stop this training" in drawn(line) and "pause (it waits) or stop! (it is int" in drawn(line)
    can = inputs(NOW_S, boards=(board(),), ranks=(rank(can_unload=True),))
    assert not allowance_rules.notices(with_allowances(state, can), can)
    surely = replace(state, allowances=replace(state.allowances, order=("stop", "stop!")))
    assert not allowance_rules.notices(with_allowances(surely), SEEN)


def test_stop_at_once_interrupts_without_a_checkpoint_and_for_good():
    before = job(Allowance("carbon", 210.0), order=("stop", "stop!"), used_g=150.0)
    state = with_allowances(replace(before, totals=Totals(gco2_g=211.0)))
    assert state.allowances.act == "stop!" and decided(state)[0].mode == "run"
    done = effects(before, state, SEEN, renew=False)
    assert [effect.ends for effect in done if isinstance(effect, DoNotResume)] == [True]


def test_a_warning_is_told_once_for_each_level_however_its_figures_change():
    told, texts = NoticesShown(), []
    for total, used in ((180.0, 0.0), (180.0, 5.0), (500.0, 6.0), (180.0, 7.0), (180.0, 181.0), (180.0, 190.0)):
        state = with_allowances(job(Allowance("carbon", total), order=("warn",), used_g=used))
        lines = allowance_rules.notices(state, SEEN)
        keys = tuple(key(line, drawn(line)) for line in lines)
        now = protocol.Status(
            job="j", name="n", host="h", measured_at="2026-11-23T16:00:00Z", state="running",
            reason=protocol.Reason("plan", ""), notices=tuple(map(drawn, lines)), notice_keys=keys,
        )  # fmt: skip
        texts += told.news(now)
    assert len(texts) == 2 and "is not enough" in texts[0] and "is used up" in texts[1]


def test_one_that_is_used_up_is_logged_once_though_its_whole_is_foreseen_later():
    unknown = with_allowances(replace(job(Allowance("carbon", 5.0), order=("warn",), used_g=6.0), progress=Progress()))
    later = with_allowances(replace(unknown, progress=Progress(work_s=7200.0)), inputs(NOW_S + 20.0, boards=(board(),)))
    assert later.allowances.over == ("carbon",) and later.allowances.level == unknown.allowances.level


def test_nothing_is_expected_of_a_job_that_is_over_nor_less_than_it_has_used():
    known = with_allowances(job(Allowance("carbon", 210.0), used_g=180.0))
    more = with_allowances(replace(known, totals=Totals(gco2_g=600.0)))
    (told,) = allowance_rules.on_wire(more)
    assert told.expected == told.used == 600.0
    ended = replace(more, decision=states.decided("done", "full", "done", ""), totals=Totals(gco2_g=590.0))
    (told,) = allowance_rules.on_wire(with_allowances(ended))
    assert (told.used, told.expected) == (590.0, None)


def test_where_the_end_is_unknown_the_moment_it_is_used_up_is_known_all_the_same():
    state = replace(job(Allowance("energy", 0.6)), progress=Progress())
    (told,) = allowance_rules.on_wire(with_allowances(state))
    assert told.expected is None and told.used_up_at == "2027-01-15T09:00:00.000Z"


def test_a_successor_knows_what_was_asked_and_done():
    state = with_allowances(job(Allowance("carbon", 150.0), curve=CURVE))
    kept = allowances.to_kept(state.allowances)
    again = allowances.restored(Allowances(), kept)
    assert again.given == state.allowances.given and again.cap_w == 250.0 and again.asked_s == NOW_S


def test_the_plan_of_least_time_ends_as_soon_as_what_is_allowed_permits():
    dirty_then_clean = outlook(*([400.0] * 16 + [100.0] * 40))
    soon = {}
    for grams in (600.0, 400.0, 300.0):
        state = replace(
            job(Allowance("carbon", grams), objective="time", budget="6x"), outlook=dirty_then_clean, curve=None
        )
        request = plan_request.plan_request(state, SEEN)
        answer = solve_plan(request.ask)
        assert answer.plan.gco2 <= grams
        soon[grams] = answer.plan.finish_s
    assert soon[600.0] == pytest.approx(7200.0, abs=60) and soon[600.0] < soon[400.0] < soon[300.0]


def test_the_least_time_within_an_energy_budget_is_weighed_by_energy():
    """Grams alone would run at full speed in clean hours, which takes more energy and so a later end."""
    mixed = outlook(*([700.0, 20.0] * 48))
    ends = {}
    for kwh in (1.2, 1.0, 0.75):
        state = replace(job(Allowance("energy", kwh), objective="time", budget="6x", curve=CURVE), outlook=mixed)
        answer = solve_plan(plan_request.plan_request(state, SEEN).ask)
        assert answer.plan.kwh <= kwh
        assert answer.plan.gco2 == pytest.approx(20 * 0.5 * kwh + 700 * 0.5 * kwh, rel=0.35), "its real grams"
        ends[kwh] = answer.plan.finish_s
    # 250 W at 0.75, 400 W at 0.9 and 600 W at 1 are mixed so that just the energy is used
    assert ends[1.2] == pytest.approx(7200.0, abs=60) and ends[1.2] < ends[1.0] < ends[0.75]
    assert ends[0.75] == pytest.approx(9150.0, abs=450)


def test_what_cannot_be_kept_to_is_planned_as_well_as_can_be():
    state = replace(job(Allowance("carbon", 1.0), objective="time", budget="3x"))
    answer = solve_plan(plan_request.plan_request(state, SEEN).ask)
    assert answer.plan.finish_s > 0 and answer.plan.gco2 > 1.0


def test_the_end_that_a_budget_made_is_named():
    ended = Child("exited", code=0, stopped=True, budget="the carbon budget of 2.00 kg CO2 is used up")
    assert control.ending(ended) == (
        "stopped",
        protocol.Why(
            "budget_stop", protocol.statement("stopped_by_budget", budget="the carbon budget of 2.00 kg CO2 is used up")
        ),
    )


@pytest.mark.parametrize(("kind", "most"), [("carbon", 350.0), ("energy", 1.1)])
def test_what_a_try_took_counts_against_what_the_job_may_take_in_all(kind, most):
    """300 g of the account and 60 g of a try are 360 g of the user's 350."""
    tried = protocol.Excluded(
        reason="try", elapsed_s=60.0, steps=20, energy_gpu_kwh=0.1, energy_wall_kwh=0.2, gco2_g=60.0
    )
    before = job(Allowance(kind, most), order=("pause",), used_g=300.0)
    state = with_allowances(replace(before, totals=replace(before.totals, excluded=(tried,))))
    assert with_allowances(before).allowances.spent is None and state.allowances.spent == kind
    (shown,) = allowance_rules.on_wire(state)
    assert shown.used == pytest.approx(360.0 if kind == "carbon" else 1.2)
