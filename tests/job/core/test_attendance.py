"""Machines and ranks that were promised and are silent are said; nobody is left out."""

from __future__ import annotations

from dataclasses import replace

from drawn import drawn
from states import NOW_S, inputs, job_state, rank, shown

from carbontui.job.supervisor.core import commands
from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.state import job, membership
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.view import notices
from carbontui.power.messages import Node
from carbontui.protocol import Override
from carbontui.text.statements import in_words


def ranks_of(*received: int, world: int = 4, silent_s: float = 0.0):
    return tuple(
        rank(rank=r, world=world, process=f"h{r // 2} {r + 7} 1", silent_s=silent_s, gen=1, step=5) for r in received
    )


def silent(known, seen):
    return tuple(in_words(dict(enumerate(membership.silent(known, seen))), NOW_S).values())


def after(made, *moments):
    """The state once each of these moments has been seen."""
    for seen in moments:
        made = job.with_inputs(made, seen)
    return made


def test_a_rank_that_never_came_is_said_after_six_seconds_and_no_sooner():
    seen = [inputs(NOW_S + 100 + t, ranks=ranks_of(0, 1, 3)) for t in (0, 3, 7)]
    made = after(job_state(), *seen[:2])
    assert silent(made.membership, seen[1]) == ()
    made = after(made, seen[2])
    assert silent(made.membership, seen[2]) == ("rank 2",)


def test_neighbours_that_never_came_are_one_word():
    seen = [inputs(NOW_S + 100 + t, ranks=ranks_of(0, world=16)) for t in (0, 7)]
    made = after(job_state(), *seen)
    assert silent(made.membership, seen[1]) == ("ranks 1-15",)


def test_a_rank_that_falls_silent_is_named_with_its_machine():
    first = inputs(NOW_S + 100, ranks=ranks_of(0, 1, 2, 3))
    later = inputs(NOW_S + 110, ranks=(*ranks_of(0, 1, 2), *ranks_of(3, silent_s=8.0)))
    made = after(job_state(), first, later)
    assert silent(made.membership, later) == ("rank 3 (h1)",)


def test_the_ranks_of_a_silent_machine_go_with_it():
    first = inputs(NOW_S + 100, ranks=ranks_of(0, 1, 2, 3), nodes=(Node("n2", "h1", 0.0, 0.0),))
    later = inputs(NOW_S + 110, ranks=ranks_of(0, 1), nodes=(Node("n2", "h1", 9.0, 9.0),))
    made = after(job_state(), first, later)
    assert silent(made.membership, later) == ("n2",)


def test_a_new_start_of_the_command_promises_anew():
    before = inputs(NOW_S + 100, ranks=ranks_of(0, 1, 2, 3))
    again = inputs(NOW_S + 200, ranks=ranks_of(0, world=1), starts=2)
    made = after(job_state(), before, again)
    assert silent(made.membership, again) == ()


def test_the_ranks_of_a_training_that_ended_are_promised_no_more():
    second = (rank(rank=0, world=2, process="h0 90 1"), rank(rank=1, world=2, process="h0 91 1"))
    first = inputs(NOW_S + 100, ranks=ranks_of(0, 1, 2, 3), alive=frozenset({"h0 7 1"}))
    made = after(job_state(), first)
    # beside each other, both are awaited; so are those that speak no more while their rank 0 lives
    for ranks in ((*ranks_of(0, 1), *second), ()):
        pair = inputs(NOW_S + 110, ranks=ranks, alive=frozenset({"h0 7 1"}))
        assert "rank 3 (h1)" in silent(after(made, pair).membership, pair)
    # one after the other, with or without a while between them
    evaluating = inputs(NOW_S + 110)
    assert silent(after(made, evaluating).membership, evaluating) == ()
    again = [inputs(NOW_S + 120 + t, ranks=second, alive=frozenset({"h0 90 1"})) for t in (0, 30)]
    assert silent(after(made, again[0]).membership, again[0]) == ()
    one_dies = inputs(NOW_S + 160, ranks=second[:1], alive=frozenset({"h0 90 1"}))
    assert silent(after(made, *again, one_dies).membership, one_dies) == ("rank 1 (h0)",)


def test_ranks_of_another_machine_that_cannot_be_asked_are_still_awaited():
    there = (Node("n2", "h0", 3.0, 3.0), Node("n3", "h1", 3.0, 3.0))
    made = after(job_state(), inputs(NOW_S + 100, ranks=ranks_of(0, 1, 2, 3), nodes=there))
    later = inputs(NOW_S + 110, nodes=there)
    assert "rank 3 (n3)" in silent(after(made, later).membership, later)


def test_state_line_pause_watts_and_notices_say_who_is_silent():
    seen = inputs(NOW_S + 100, ranks=ranks_of(0, world=1), nodes=(Node("n2", "", 9.0, float("inf")),))
    made = after(job_state(), seen)
    asked, decision = control.decide(made, seen)
    assert drawn(decision).endswith("; silent: n2")
    made = replace(made, asked=asked, decision=decision)
    told = shown(made, seen)
    assert told.power_w is None and told.provenance["power_w"].source == "unknown: n2"
    said = [one.code for one in notices.notices(made, seen, ())]
    assert "silent" in said and "nodes_unread" in said
    assert drawn(commands.pause_asked(made, seen)) == "accepted, waiting for the current step to end; silent: n2"


def test_a_job_that_is_over_misses_nobody():
    from carbontui.job.terms.child import Child

    seen = inputs(NOW_S + 100, child=Child("exited", code=0), nodes=(Node("n2", "", 9.0, 9.0),))
    made = job_state()
    _, decision = control.decide(made, seen)
    assert "silent" not in drawn(decision)


def test_an_ended_lease_frees_the_others_until_the_wire_returns():
    paused = replace(job_state(), override=Overrides(Override("pause", None, None, "ada"), 1))
    both = lambda t, n2_s: inputs(  # noqa: E731
        NOW_S + 100 + t,
        ranks=ranks_of(0, 1) if n2_s else ranks_of(0, 1, 2, 3),
        nodes=(Node("n2", "h1", n2_s, n2_s),),
    )

    def mode(made, seen):
        asked, decision = control.decide(made, seen)
        return replace(made, asked=asked, decision=decision), asked.mode, decision

    made, asked, _ = mode(after(paused, both(0, 0.0)), both(0, 0.0))
    assert asked == "pause"
    made, asked, _ = mode(after(made, both(10, 10.0)), both(10, 10.0))
    assert asked == "pause"  # its lease holds there: another agent may be on its way
    made, asked, decision = mode(after(made, both(16, 16.0)), both(16, 16.0))
    assert asked == "run" and "the lease of the pause has ended" in drawn(decision)
    assert "paused by ada" in drawn(decision) and drawn(decision).endswith("; silent: n2")
    made, asked, _ = mode(after(made, both(40, 0.0)), both(40, 0.0))
    assert asked == "pause"


def test_one_that_never_came_holds_up_no_pause():
    seen = inputs(NOW_S + 130, ranks=ranks_of(0, 1, 3))
    made = after(replace(job_state(), override=Overrides(Override("pause", None, None, "ada"), 1)), inputs(
        NOW_S + 100, ranks=ranks_of(0, 1, 3)), seen)  # fmt: skip
    assert control.decide(made, seen)[0].mode == "pause"
