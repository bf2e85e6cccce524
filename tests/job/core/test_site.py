"""A job under the site budget: what it claims, what it runs at, and what is refused."""

from __future__ import annotations

from dataclasses import replace

from states import NOW_S, board, inputs, job_state, rank

from carbontui import protocol
from carbontui.job.child import Child
from carbontui.job.supervisor.core import commands, control, notices, site_claim
from carbontui.job.supervisor.core.observe import observe
from carbontui.job.supervisor.core.override import Overrides
from carbontui.power.messages import Capability
from carbontui.protocol import Cmd
from carbontui.site.core import Share

TWO = (board("GPU-a"), board("GPU-b"))


def share(allowed_w: float, *, cap_w: float = 1000.0, kept: bool = True, boost_w: float = 2000.0) -> Share:
    return Share(allowed_w, cap_w, kept, 1500.0, boost_w)


def decided(made, seen):
    return control.decide(made.asked, observe(made, seen))


def test_what_is_claimed_counts_what_the_limits_in_force_allow():
    made = job_state(caps_hold=True)
    claim = site_claim.claim(made, inputs(boards=TWO, ranks=(rank(),)))
    assert (claim.boards, claim.full_w, claim.least_w, claim.wants_w) == (2, 1400.0, 400.0, 1400.0)
    assert claim.held_w == 1400.0
    assert claim.floor_w == 260.0  # parked watts nobody has measured: the most that is known of any board
    capped = (board("GPU-a", limit_w=300.0), board("GPU-b", limit_w=300.0))
    assert site_claim.claim(made, inputs(boards=capped, ranks=(rank(),))).held_w == 600.0
    # a rise that was given and is not on the boards yet is still held
    assert site_claim.claim(made, inputs(boards=capped, ranks=(rank(),), site=share(900.0))).held_w == 900.0


def test_a_start_that_waits_draws_nothing_and_a_job_without_boards_claims_nothing():
    waiting = inputs(boards=TWO, child=Child("waiting"), starts=0)
    claim = site_claim.claim(job_state(caps_hold=True), waiting)
    assert (claim.floor_w, claim.held_w) == (0.0, 0.0)
    assert site_claim.claim(job_state(), inputs()) is None


def test_a_training_of_unknown_length_is_capped_and_never_held():
    made = job_state(caps_hold=True, work_s=None)
    seen = inputs(boards=TWO, ranks=(rank(),), site=share(100.0))
    assert site_claim.claim(made, seen).floor_w == 400.0
    asked, _ = decided(made, seen)
    assert asked.mode == "run"


def test_less_than_full_is_a_limit_and_less_than_the_lowest_limit_is_a_pause():
    made = job_state(caps_hold=True)
    asked, decision = decided(made, inputs(boards=TWO, ranks=(rank(),), site=share(650.0)))
    assert (asked.limit_w, decision.level, decision.wanted.kind) == (325.0, "cap 325 W", "full")
    assert decision.reason.text.endswith("; 325 W per GPU by the site budget of 1000 W")
    asked, decision = decided(made, inputs(boards=TWO, ranks=(rank(),), site=share(260.0)))
    assert asked.mode == "pause" and "held: the site budget" in decision.reason.text
    asked, _ = decided(made, inputs(boards=TWO, ranks=(rank(),), site=share(1400.0)))
    assert (asked.mode, asked.limit_w) == ("run", None)


def test_where_no_limit_can_be_set_it_is_held_and_where_it_cannot_be_kept_that_is_said():
    stiff = tuple(replace_limit(one) for one in TWO)
    made = job_state(caps_hold=False)
    seen = inputs(boards=stiff, ranks=(rank(),), site=share(650.0, kept=False))
    claim = site_claim.claim(made, seen)
    assert claim.least_w == claim.full_w == 1400.0
    assert decided(made, seen)[0].mode == "pause"
    assert any("cannot be kept" in line for line in notices.notices(made, seen, ()))


def replace_limit(reading):
    import msgspec

    return msgspec.structs.replace(reading, caps={"limit": Capability("no_permission", "no")})


def test_a_boost_without_room_is_refused_with_the_reason():
    made = job_state(caps_hold=True)
    seen = inputs(boards=TWO, ranks=(rank(),), site=share(400.0, boost_w=800.0))
    after, reply = commands.apply(made, Cmd(1, "boost"), seen, "ada")
    assert after is made and reply.result.exit_code == 4
    assert reply.result.error == (
        "a boost takes 1400 W; the site budget of 1000 W leaves it 800 W with every other job at its least"
    )
    boosted = replace(made, override=Overrides(protocol.Override("boost", None, None, "ada"), 1))
    assert site_claim.claim(boosted, inputs(NOW_S + 1, boards=TWO, ranks=(rank(),))).boost_s is not None
