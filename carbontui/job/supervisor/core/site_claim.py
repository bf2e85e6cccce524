"""The job's claim on the machine's power budget: what its boards can draw, what it wants, and what it holds."""

from __future__ import annotations

from carbontui.job.supervisor.core import finish, site_boards, site_plan
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.site_room import Room, watts_at
from carbontui.job.supervisor.core.state import JobState
from carbontui.protocol import Statement, statement
from carbontui.site.sharing import TOLERANCE_W, Claim


def claim(state: JobState, seen: Inputs) -> Claim | None:
    """The current claim; None for a job without boards, which draws nothing that a limit governs."""
    boards = site_boards.boards(state, seen)
    if boards is None or seen.child.over:
        return None
    number, full, least, parked = boards
    absent = seen.child.state in ("waiting", "unloaded")
    floor = 0.0 if absent else parked if can_pause(state, seen) else least
    wants = min(full, max(0.0, watts_at(state.decision.wanted, number, full, parked, absent=absent)))
    drawing = (
        0.0
        if absent
        else parked
        if state.decision.state == "paused"
        else site_boards.bound_w(state, site_boards.here(state, seen))
    )
    given = 0.0 if state.site is None else state.site.allowed_w
    boost = state.override.current is not None and state.override.current.mode == "boost"
    left, deadline = state.progress.left_s, state.deadline_s
    return Claim(
        job=state.spec.job,
        name=state.spec.name,
        boards=number,
        full_w=full,
        least_w=least,
        floor_w=floor,
        wants_w=wants,
        # an increase already granted counts as held, even before it reaches the boards
        held_w=max(drawing, min(given, wants)),
        boost_s=0.0 if boost else None,
        slack_s=None if left is None or deadline is None else deadline - seen.now_s - left,
        ahead=None if state.site is None else site_plan.ahead(state, seen, boards),
    )


def can_pause(state: JobState, seen: Inputs) -> bool:
    """Whether this training may be paused for lack of watts: not while its work is unknown or no step is seen."""
    return state.progress.total_s is not None and bool(seen.ranks) and finish.why_deaf(seen) is None


def room(state: JobState, seen: Inputs) -> Room | None:
    """For the decision; None if there is no budget, or no part of this job is in it."""
    boards = site_boards.boards(state, seen)
    if state.site is None or boards is None:
        return None
    absent = seen.child.state in ("waiting", "unloaded")
    held = absent or can_pause(state, seen)
    return Room(state.site, boards.number, boards.full_w, boards.least_w, held)


def why_no_boost(state: JobState, seen: Inputs) -> Statement | None:
    """Why a boost does not fit even with all other jobs at their minimum; None if it fits."""
    given = room(state, seen)
    if given is None or given.full_w <= given.share.boost_w + TOLERANCE_W:
        return None
    left = max(0.0, given.share.boost_w)
    return statement("no_room_to_boost", needs=given.full_w, cap=given.share.cap_w, left=left)
