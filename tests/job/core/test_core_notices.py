"""One line each for what a person should know: what makes the watts wrong first, and nothing twice."""

from dataclasses import replace

import pytest
from drawn import drawn
from msgspec import structs
from states import NOW_S, board, decided, inputs, job_state, limits, rank, settled, shown

from carbontui import protocol
from carbontui.account.estimate import Blocks
from carbontui.job.supervisor.core.state.boards import Boards
from carbontui.job.supervisor.core.state.job import with_inputs
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.supervisor.core.view import notices
from carbontui.job.terms.clock import Clock
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.messages import Capability, Outcome, Readings
from carbontui.text import situation


def told(state=None, seen=None, ours=()):
    seen = seen or inputs(boards=(board(),))
    return tuple(drawn(line, seen.now_s) for line in notices.notices(state or job_state(), seen, ours))


def test_a_plain_job_has_nothing_to_say():
    assert told() == ()


def test_notices_begin_with_what_is_not_measured():
    known = job_state(
        simulated=SimulatedSpec(),
        clock=Clock(60.0, NOW_S, NOW_S),
        override=Overrides(protocol.Override("pause", None, None, "ada"), 1),
        budget="1x",
    )
    seen = inputs(
        readings=Readings(mono_s=1099.5, devices=(board(mig=True),), notices=("the driver is old",)),
        guarded=False,
        metered=frozenset({"GPU-gone"}),
        limits=limits(asked=True, outcomes={"GPU-a": Outcome("GPU-a", False, "error", text="no limit set")}),
    )
    lines = told(known, seen, (protocol.written("no new plan: the worker died"),))
    order = [
        "SIMULATED GPU", "REPLAY", "this pause makes the budget unreachable", "unguarded",
        "its watts are those of the whole GPU", "1 of its GPUs cannot be", "no new plan", "the driver is old",
        "no limit set",
    ]  # fmt: skip
    assert len(lines) == len(order)
    for line, begin in zip(lines, order, strict=True):
        assert begin in (line if isinstance(line, str) else drawn(line))


def test_a_training_past_its_stated_total_says_that_its_end_is_not_known():
    (line,) = told(job_state(progress=Progress(steps_total=200, step=250)))
    assert "passed the 200 steps" in line and "when it ends is not known" in line
    assert told(job_state(progress=Progress(steps_total=200, step=201))) == ()


FAST = Progress(step=900, ref_steps=600, ref_time_s=600.0, ref_wall_s=600.0, blocks=Blocks(100, (50.0,) * 30))
"""A step a second in its last ten minutes, two in the hour before."""


@pytest.mark.parametrize(
    ("util", "seconds", "fields", "words"),
    [
        (0.97, 400, {"ref_time_s": 300.0}, ""),
        (0.97, 400, {}, "slower: 1 steps/s in its last 10 min at full speed, 2 over all of it"),
        (0.97, 400, {"quiet_wall_s": 180.0}, "3 min (one takes 1 s); its GPUs compute, as in an evaluation"),
        (0.0, 70, {"quiet_wall_s": 180.0}, "3 min (one takes 1 s); none of its GPUs has computed for 70 s"),
        (None, 70, {"quiet_wall_s": 180.0}, "no step has ended for 3 min (one takes 1 s)"),
        (0.0, 400, {"ref_steps": 0}, "none of its GPUs has computed for 7 min"),
        (0.4, 400, {"core_wait": 0.3}, "computed 40 % of the last 5 min; for the rest they waited for the training"),
    ],
)
def test_what_holds_a_training_up_is_said_as_steps_and_boards_show_it(util, seconds, fields, words):
    first, seen = (inputs(at_s, boards=(board(util=util),), ranks=(rank(step=900),)) for at_s in (NOW_S, NOW_S + 9.0))
    state = settled(job_state(progress=structs.replace(FAST, **fields)), first)
    assert state.decision.state == "running"
    for _ in range(seconds):
        state = replace(with_inputs(state, seen), progress=state.progress)
    (*lines,) = told(state, seen)
    assert words in "".join(lines) and len(lines) == bool(words)
    held = replace(state, decision=decided("paused", "pause"))
    assert told(held, seen) == () and with_inputs(held, seen).activity.seen_s == 0.0


@pytest.mark.parametrize(
    ("doing", "words"), [("evaluates", ", evaluating"), ("loads", ", waiting for its data"), (None, "")]
)
def test_what_a_training_does_between_its_steps_is_named(doing, words):
    said = {"boards": (board(util=0.97),), "ranks": (rank(step=900, doing=doing),)}
    first, seen = (inputs(at_s, **said) for at_s in (NOW_S, NOW_S + 9.0))
    state = settled(job_state(progress=structs.replace(FAST, quiet_wall_s=180.0)), first)
    status = shown(state, seen)
    assert (status.doing, situation.at_level(status, None)) == (doing, f"at full speed{words}")
    held = shown(replace(state, decision=decided("paused", "pause")), seen)
    assert (held.doing, situation.at_level(held, None)) == (None, "")
    for _ in range(400):
        state = replace(with_inputs(state, seen), progress=state.progress)
    assert ("as in an evaluation" in "".join(told(state, seen))) == (doing is None), "a guess beside what is known"


def test_what_the_agent_notices_is_told_as_it_is():
    seen = inputs(readings=Readings(mono_s=1099.5, notices=("the driver is old",)))
    assert told(seen=seen) == ("the driver is old",)


def test_a_silent_driver_is_named_once_and_not_board_by_board():
    seen = inputs(readings=Readings(mono_s=1030.0, devices=(board(lost=True), board("b", mig=True))))
    (line,) = told(seen=seen)
    assert "the driver has not answered for 70 s" in line and "watts are unknown" in line


def test_a_driver_is_not_called_silent_before_it_is_due():
    seen = inputs(readings=Readings(mono_s=1095.1, devices=(board(),)))
    assert told(seen=seen) == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lost": True, "mig": True}, "GPU 3 is lost (it fell off the bus)"),
        ({"power_w": None, "why": {"power_w": "no permission"}}, "GPU 3: no watts can be read (no permission)"),
        ({"power_w": None}, "GPU 3: no watts can be read (no reading)"),
        ({"mig": True}, "GPU 3: its watts are those of the whole GPU"),
        ({"foreign_pids": (4242, 5)}, "GPU 3: another process (pid 4242) uses it too"),
    ],
)
def test_what_is_wrong_with_a_boards_watts_is_said_with_its_number(fields, words):
    (line,) = told(seen=inputs(boards=(board(index=3, **fields),)))
    assert line.startswith(words)


def test_a_board_with_an_energy_counter_needs_no_watts():
    counts = board(power_w=None, caps={"energy": Capability("yes")})
    assert told(seen=inputs(boards=(counts,))) == ()


def test_a_boards_refusal_names_it_where_there_are_several():
    no = limits(asked=True, outcomes={"GPU-b": Outcome("GPU-b", False, "no_permission", text="only root may")})
    several = inputs(boards=(board(index=0), board("GPU-b", index=1)), limits=no)
    assert told(seen=several) == ("GPU 1: only root may",)
    assert told(seen=inputs(boards=(board("GPU-b", index=1),), limits=no)) == ("only root may",)


def test_a_limit_that_holds_is_no_notice():
    yes = limits(asked=True, outcomes={"GPU-a": Outcome("GPU-a", True, "applied", text="by a clock lock")})
    assert told(seen=inputs(boards=(board(),), limits=yes)) == ()


def test_a_board_that_vanished_and_was_never_the_jobs_is_not_missed():
    seen = inputs(boards=(board(),), metered=frozenset({"GPU-a", "GPU-z"}))
    assert told(job_state(boards=Boards(named=("GPU-a",))), seen) == ()
    assert "1 of its GPUs" in told(seen=seen)[0]


def test_how_much_faster_a_replay_is_is_said():
    (line,) = told(job_state(clock=Clock(3600.0, NOW_S, NOW_S)))
    assert line == "REPLAY of recorded grid data, 3,600 times faster than life"
