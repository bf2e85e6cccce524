"""What a person's command changes, answers and does; and that a refused one changes nothing."""

import math
from dataclasses import replace

import msgspec
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from states import CAP, FULL, NOW_S, PAUSE, board, decided, inputs, job_state, limits, outlook, plan_of, rank

from carbontui import protocol
from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core import effects as fx
from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.state.boards import Boards, LeftAlone
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.job.supervisor.core.state.job import Calibrating
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.view import status
from carbontui.job.terms.child import Child
from carbontui.power.curves.curve import Curve, Point
from carbontui.power.messages import Capability, Outcome
from carbontui.protocol import Cmd, statement, written

ADA = "ada@pts/1"
PIDS = protocol.Pids(1, 2, 3, 4)


def decision(name="running", level="full", code="plan", text="by the plan"):
    return decided(name, level, code, text)


RUNNING = job_state(decision=decision(), plan=plan_of(FULL, FULL, PAUSE, FULL))
SEEN = inputs(boards=(board(),), ranks=(rank(),))


def do(verb, state=RUNNING, seen=SEEN, gen=None, **args):
    return commands.apply(state, Cmd(7, verb, args, gen), seen, ADA)


def kinds(reply):
    return [type(effect).__name__ for effect in reply.effects]


# --- refused ---

HOSTILE = st.one_of(
    st.sampled_from(
        [math.nan, math.inf, -math.inf, -1, 0, 0.0, -0.5, True, False, None, 10**400, 1e300, -(10**400), [], {}, [3]]
    ),
    st.sampled_from(
        ["", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "99:99", "next", "nan"]
    ),
    st.sampled_from(
        ["1e5", "inf", "-3", "0", "300W", "٣٠٠", "9" * 400, "1" * 5000, "30m", "1.5x", "9999x", "\x00", "²"]
    ),
    st.floats(),
    st.integers(),
    st.text(max_size=20),
)
NAMES = ("value_w", "until", "for_s", "budget", "now", "show", "hours")


@settings(max_examples=200)
@given(
    verb=st.sampled_from(["pause", "boost", "cap", "resume", "budget", "stop", "calibrate", "forbid", "allow"]),
    main=HOSTILE,
    more=st.dictionaries(st.sampled_from(NAMES), HOSTILE, max_size=2),
    gen=st.one_of(st.none(), st.integers(-1, 1)),
    planned=st.booleans(),
    limited=st.booleans(),
)
def test_a_refused_command_leaves_the_state_as_it_was_and_a_taken_one_can_be_shown(
    verb, main, more, gen, planned, limited
):
    args = more | {{"cap": "value_w", "budget": "budget"}.get(verb, "for_s"): main}
    known = RUNNING if planned else replace(RUNNING, plan=None)
    seen = SEEN if limited else inputs(boards=(board(limit_max_w=None, limit_min_w=None, limit_w=None),))
    after, reply = commands.apply(known, Cmd(1, verb, args, gen), seen, ADA)
    if reply.answer is not None and reply.answer.exit_code:
        assert after is known and reply.effects == () and drawn(reply.answer)
        return
    held = after.override
    assert held.until_s is None or NOW_S < held.until_s <= seen.now_s + commands.OVERRIDE_MAX_S
    told = status.status(after, seen, host="h", pids=PIDS)
    line = msgspec.json.encode(told)
    assert msgspec.json.decode(line, type=protocol.Status) == told, "viewers can read it"


@pytest.mark.parametrize(
    "watts", [math.nan, "nan", math.inf, -300, 0, True, None, "300W", "3_0_0", "", [300], 10**400, 1e300]
)
def test_a_cap_that_is_no_number_of_watts_is_refused(watts):
    after, reply = do("cap", seen=inputs(boards=(board(limit_min_w=None, limit_max_w=None),)), value_w=watts)
    assert after is RUNNING and reply.answer.exit_code
    assert reply.answer.said.code == "no_watts" and reply.answer.exit_code == 2


def test_a_cap_beyond_what_the_board_takes_is_refused_with_its_bounds():
    after, reply = do("cap", value_w=100)
    assert after is RUNNING and reply.answer.exit_code == 4 and "at least 200 W" in drawn(reply.answer)
    assert "at most 700 W" in drawn(do("cap", value_w=800)[1].answer)


def test_a_job_that_is_over_takes_no_command():
    over = job_state(decision=decision("done"))
    after, reply = do("pause", over)
    assert after is over and not reply.effects
    assert drawn(reply.answer) == "job t is over (done)" and reply.answer.exit_code == 3


def test_the_slower_of_two_hands_is_refused_and_changes_nothing():
    first, _ = do("boost", gen=0)
    after, reply = commands.apply(first, Cmd(8, "pause", {}, 0), SEEN, "bob")
    assert after is first and not reply.effects and f"{ADA} changed it first (boost)" in drawn(reply.answer)
    after, reply = commands.apply(first, Cmd(8, "pause", {}, first.override.gen), SEEN, "bob")
    assert after.override.current.by == "bob" and after.override.gen == 2


@pytest.mark.parametrize("args", [{"for_s": -5}, {"for_s": -1e9}, {"until": "2020-01-01T00:00:00Z"}])
def test_an_override_that_would_be_over_at_once_is_refused(args):
    after, reply = do("pause", **args)
    assert after is RUNNING and reply.answer.exit_code


def test_an_override_of_more_than_a_year_is_refused():
    assert "more than a year away" in drawn(do("pause", for_s=400 * 86400.0)[1].answer)
    assert "more than 366 days" in drawn(do("pause", until="2035-01-01T00:00:00Z")[1].answer)


# --- overrides ---


def test_a_pause_is_recorded_planned_around_kept_and_awaited():
    after, reply = do("pause")
    assert after.override == Overrides(protocol.Override("pause", None, None, ADA), 1)
    assert kinds(reply) == ["Record", "Replan", "Keep"]
    assert reply.answer is None and reply.awaits == "pause"
    assert after.asked is RUNNING.asked, "what is asked is decided by the tick"


def test_until_next_is_the_time_of_the_plans_next_change_and_stays_it():
    after, _ = do("boost", until="next")
    assert after.override.until_s == NOW_S + 1800.0
    assert after.override.current.until == "2027-01-15T08:30:00.000Z"


def test_until_next_is_refused_where_the_plan_changes_nothing_more():
    after, reply = do("boost", replace(RUNNING, plan=plan_of(FULL)), until="next")
    assert "no next change" in drawn(reply.answer) and after.override.current is None
    assert do("boost", replace(RUNNING, plan=None), until="next")[1].answer.exit_code


def test_for_counts_from_now():
    assert do("pause", for_s=1800)[0].override.until_s == SEEN.now_s + 1800
    assert do("pause", for_s="1800")[0].override.until_s == SEEN.now_s + 1800


def test_resume_clears_what_was_asked_and_says_where_to():
    after, reply = do("resume", do("pause")[0])
    assert after.override == Overrides(None, 2)
    assert drawn(reply.answer) == "back to the plan"


def test_a_boost_with_an_end_says_when():
    assert do("boost", for_s=3600)[1].answer.said == statement("boosted", until_s=SEEN.now_s + 3600)


def test_a_cap_said_again_after_a_board_gave_it_up_is_set_on_it_again():
    left = Boards(left=LeftAlone(300.0, ("GPU-b",)))
    known = replace(RUNNING, asked=Desired(limit_w=300.0), boards=left)
    after, reply = do("cap", known, value_w=300)
    assert after.boards.left.boards == () and fx.SetLimit(300.0) in reply.effects
    assert "SetLimit" not in kinds(do("cap", known, value_w=350)[1]), "a new one is set by the tick"


# --- budget, stop, calibrate ---


def test_a_budget_is_in_force_at_once_and_says_until_when():
    after, reply = do("budget", budget="3h")
    assert after.deadline_s == NOW_S + 3 * 3600.0
    assert reply.answer.said == statement("budget_set", budget="3h", until_s=NOW_S + 3 * 3600.0, late=())
    assert kinds(reply) == ["Record", "Replan", "Keep"]


def test_a_duration_that_was_over_before_it_was_given_is_refused():
    after, reply = do("budget", seen=inputs(now_s=NOW_S + 7200, boards=(board(),), ranks=(rank(),)), budget="1h")
    assert after is RUNNING and reply.answer.exit_code == 2 and "over already" in str(reply.answer.said)


def test_a_budget_that_cannot_be_met_is_taken_and_says_so():
    after, reply = do("budget", budget="1h")
    assert after.deadline_s == NOW_S + 3600.0 and "it cannot be met: at full speed the work ends" in drawn(reply.answer)


@pytest.mark.parametrize("text", ["", "soon", "0.5x", "-3h", "2020-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999x"])
def test_a_budget_that_is_none_is_refused(text):
    after, reply = do("budget", budget=text)
    assert after is RUNNING and reply.answer.exit_code and not reply.effects


def test_a_stop_changes_nothing_of_the_state_and_orders_the_end():
    after, reply = do("stop", now=True)
    assert after is RUNNING and kinds(reply) == ["Record", "LogLine", "Stop"]
    assert reply.effects[-1] == fx.Stop(True)
    assert do("stop")[1].effects[-1] == fx.Stop(False)


def test_a_calibration_is_begun_where_it_can_be_and_refused_with_the_reason():
    assert do("calibrate")[1].effects == (fx.StartCalibration(ADA),)
    reply = do("calibrate", seen=inputs(boards=(board(),)))[1]
    assert reply.answer.exit_code and reply.answer.said.code == "no_step_yet" and not reply.effects
    busy = replace(RUNNING, calibrating=Calibrating(CAP, written("2 of 5 levels")))
    assert drawn(do("calibrate", busy)[1].answer) == "a calibration is running (2 of 5 levels)"


def test_a_curve_is_shown_once_there_is_one():
    assert do("calibrate", show=True)[1].answer.exit_code == 3
    point = Point(kind="full", cap_w=None, power_w=600.0, power_se=1.0, speed=1.0, speed_se=0.01)
    curve = Curve(gpu="H100", gpus=1, fingerprint="x", measured_s=NOW_S, rate_steps_per_s=12.0, points=(point,))
    reply = do("calibrate", replace(RUNNING, curve=curve), show=True)[1]
    assert "12 steps/s" in drawn(reply.answer) and reply.answer.data["gpu"] == "H100" and not reply.effects


# --- what is answered once it has taken hold ---


@pytest.mark.parametrize("observed", ["running", "throttled", "pausing", "starting"])
def test_a_pause_is_not_answered_before_it_holds(observed):
    assert commands.pause_held(job_state(decision=decision(observed)), SEEN) is None


def test_a_pause_that_holds_names_the_step_or_the_signal():
    paused = job_state(decision=decision("paused"))
    paused = replace(paused, progress=structs.replace(paused.progress, step=1204))
    assert drawn(commands.pause_held(paused, SEEN)) == "paused at step 1,204"
    frozen = replace(paused, asked=Desired("pause", 1, freeze=True))
    assert drawn(commands.pause_held(frozen, SEEN)) == "paused (SIGSTOP)"
    waiting = job_state(decision=decision("waiting"))
    assert drawn(commands.pause_held(waiting, SEEN)) == "waiting"


def test_a_pause_nobody_can_hold_says_why():
    stuck = job_state(decision=decision("pausing", code="no_client", text="call carbontui.step()"))
    assert drawn(commands.pause_asked(stuck, inputs())) == "call carbontui.step()"
    slow = job_state(decision=decision("pausing", code="no_boundary", text="no boundary for 42 s"))
    assert commands.pause_asked(slow, inputs()).said == statement("pause_asked", silent=())


def cap_said(state=None, **news):
    seen = inputs(boards=(board(),), limits=limits(asked=True, **news))
    found = commands.cap_held(state or replace(RUNNING, asked=Desired(limit_w=300.0)), seen, 300.0)
    return found and drawn(found)


def test_a_cap_is_answered_when_the_boards_have_and_with_what_they_said():
    assert cap_said(pending=True) is None
    assert cap_said(RUNNING) is None, "the tick has not asked yet"
    assert cap_said(outcomes={"GPU-a": Outcome("GPU-a", True, "applied")}) == "capped at 300 W per GPU"
    by_clock = {"GPU-a": Outcome("GPU-a", True, "applied", text="by a clock lock")}
    assert cap_said(outcomes=by_clock) == "cap of 300 W per GPU requested; by a clock lock"
    refused = {"GPU-a": Outcome("GPU-a", False, "no_permission", text="only root may")}
    assert cap_said(outcomes=refused) == "cap of 300 W per GPU requested, not capped: only root may"
    assert cap_said(job_state(decision=decision("waiting"))) == "cap of 300 W per GPU accepted, waiting for the start"


def test_a_script_without_an_end_leaves_the_work_unknown_and_the_job_visible():
    """A data set without a length is told as the largest integer there is."""
    endless = job_state(decision=decision(), work_s=None, steps=2**53, ref_rate=1.0, outlook=outlook())
    told = status.status(endless, SEEN, host="h", pids=PIDS)
    assert told.budget.deadline is None and told.finish_expected is None and not told.budget.work_known
    assert "would take years" in drawn(finish.why_no_shifting(endless, SEEN))
    assert not commands.apply(endless, Cmd(1, "budget", {"budget": "1000x"}), SEEN, ADA)[1].answer.exit_code


def test_a_cap_may_be_asked_of_a_job_that_has_not_started():
    waiting = job_state(decision=decision("waiting", "off"), child=Child("waiting"))
    known, reply = do("cap", waiting, inputs(boards=(board(caps={"limit": Capability("unknown")}),)), value_w=300)
    assert known.override.current.value_w == 300.0 and reply.awaits == "cap"
