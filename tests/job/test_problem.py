"""What a plan may choose from: caps where limits can be set, else duty cycles, and never a cap nobody can set."""

import pytest
from drawn import drawn
from states import NOW_S, inputs, job_state, outlook, policy

from carbontui.job.supervisor.core.planning import problem
from carbontui.job.supervisor.core.planning.finish import why_no_shifting
from carbontui.job.supervisor.core.rules.capabilities import sigstop_refusal
from carbontui.job.supervisor.core.state.boards import take_limits
from carbontui.job.supervisor.core.state.plan import Level
from carbontui.plan.planner import solve
from carbontui.plan.problem import problem_from_dict
from carbontui.power.messages import Capability, Reading

CAPS = (problem.PowerCap(300.0, 300.0, 0.85),)


def kinds(machine):
    return [level.kind for level in problem.levels_of(machine, started=True)]


def test_duty_stands_in_for_caps_and_only_where_there_are_none():
    assert kinds(problem.Machine(can_duty=True)) == ["pause", "duty", "full"]
    assert kinds(problem.Machine(caps=CAPS, can_duty=True)) == ["pause", "cap", "full"]
    assert kinds(problem.Machine()) == ["pause", "full"]


def test_a_duty_cycle_saves_watts_and_no_energy():
    levels = problem.levels_of(problem.Machine(full_w=400, parked_w=100, can_duty=True), started=True)
    duty = next(level for level in levels if level.kind == "duty")
    assert duty.power_w == 250 and duty.speed == 0.5
    assert duty.power_w / duty.speed > 400, "more joules per step than at full speed"


def test_a_planned_duty_cycle_is_asked_of_the_training():
    duty = Level("duty 50 %", "duty", 250, 0.5)
    asked, decision = policy(duty)
    assert (asked.mode, asked.duty) == ("run", 0.5)
    assert decision.state == "throttled" and "not energy" in drawn(decision)


def may_cap(*support):
    return take_limits(
        [Reading(uuid=str(i), name="H100", caps={"limit": Capability(s)}) for i, s in enumerate(support)]
    )


def test_a_plan_counts_on_caps_only_where_every_board_takes_one():
    assert may_cap("yes", "unknown")
    assert not may_cap("yes", "no_permission")
    assert not may_cap("no_effect")
    assert not may_cap(), "no board, no cap"


def boards(*pids, foreign=()):
    return [Reading(uuid=str(i), name="H100", index=i, pids=p, foreign_pids=foreign) for i, p in enumerate(pids)]


def test_sigstop_is_for_one_process_alone():
    assert sigstop_refusal([]) is None and sigstop_refusal(boards((7,), (7,), ())) is None
    assert "2 processes use H100 (GPU 1)" in drawn(sigstop_refusal(boards((7,), (7, 8))))
    assert "2 processes use GPUs together" in drawn(sigstop_refusal(boards((7,), (8,))))
    assert sigstop_refusal(boards((7,), (8,), foreign=(8,))) is None, "another person's job on another board"
    assert "does not report" in drawn(sigstop_refusal(boards(None)))


def reason_to_wait(mean, price=(), **said):
    state = job_state(outlook=outlook(*mean, realised=2, price=price), currency="EUR", **said)
    return why_no_shifting(state, inputs(grid_note="WattTime: 9 h old"))


def test_a_grid_of_which_nothing_is_expected_is_not_planned_as_clean():
    assert reason_to_wait([300, 310, 305, None]) is None
    reason = reason_to_wait([300, 310, None, None])
    assert reason.code == "no_grid" and "WattTime: 9 h old" in drawn(reason)


def test_money_is_not_saved_where_no_price_is_known():
    seen = [300, 310, 305, 300]
    reason = reason_to_wait(seen, objective="cost")
    assert reason.code == "no_grid" and "no electricity price in EUR" in drawn(reason)
    assert reason_to_wait(seen, objective="cost", price_per_kwh=0.3) is None
    assert reason_to_wait(seen, objective="cost", carbon_price=80.0) is None
    assert reason_to_wait(seen, (None, None, 0.1, None), objective="cost") is None


@pytest.mark.parametrize(("ahead_s", "slots"), [(100.5, 1), (1000.5, 2), (1900.5, 3), (2800.5, 4)])
def test_a_deadline_just_after_a_quarter_of_an_hour_makes_no_slot_of_its_own(ahead_s, slots):
    now = 1_800_000_000.0 + 800.0
    durations, _ = problem.slots_of(now, now + ahead_s)
    assert len(durations) == slots
    assert sum(durations) == pytest.approx(ahead_s)
    whole = [100.0, 900.0, 900.0, 900.0][:slots]
    assert durations == pytest.approx([*whole[:-1], whole[-1] + 0.5])


@pytest.mark.parametrize("left_s", [35.0, 100.0, 400.0])
def test_a_start_that_waits_is_not_made_in_what_is_left_of_a_slot(left_s):
    """The clean hours are as long as the work: what it needs to begin would have to be before or behind them."""
    now = NOW_S + 900.0 - left_s
    clean = [900.0 if slot <= 20 or slot > 40 else 20.0 for slot in range(100)]
    free = problem.Machine(full_w=10.0, parked_w=1.0, idle_w=1.0, boundary="held", can_duty=True)
    made = problem.build(
        now_s=now,
        deadline_s=now + 20 * 3600.0,
        outlook=outlook(*clean),
        machine=free,
        objective=problem.Objective(),
        work_left_s=5 * 3600.0,
        started=False,
        level_now="off",
        age_s=1.0,
    )
    levels = solve(problem_from_dict(made.problem)).levels
    assert [made.levels[one].kind for one in levels[:15]] == 15 * ["off"]
