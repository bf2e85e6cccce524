"""What the job claims of the machine's power budget, and the level it can run at within its share."""

from __future__ import annotations

import math
from typing import NamedTuple

from carbontui.job.supervisor.core.planning import finish, site_plan
from carbontui.job.supervisor.core.planning.site_plan import watts_at
from carbontui.job.supervisor.core.state import levels
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.levels import PAUSE, Chosen
from carbontui.protocol import Statement, Why, statement
from carbontui.site.sharing import TOLERANCE_W, Claim, Share


def claim(state: JobState, inputs: Inputs) -> Claim | None:
    """The current claim; None for a job without boards, which draws nothing that a limit governs."""
    boards = site_plan.site_boards(state, inputs)
    if boards is None or inputs.child.over:
        return None
    number, full, least, parked = boards
    absent = inputs.child.state in ("waiting", "unloaded")
    floor = 0.0 if absent else parked if can_pause(state, inputs) else least
    wants = min(full, max(0.0, watts_at(state.decision.wanted, number, full, parked, absent=absent)))
    drawing = (
        0.0
        if absent
        else parked
        if state.decision.state == "paused"
        else site_plan.bound_w(state, site_plan.here(state, inputs))
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
        slack_s=None if left is None or deadline is None else deadline - inputs.now_s - left,
        ahead=None if state.site is None else site_plan.ahead(state, inputs, boards),
    )


def can_pause(state: JobState, inputs: Inputs) -> bool:
    """Whether this training may be paused for lack of watts: not while its work is unknown or no step is seen."""
    return state.progress.total_s is not None and bool(inputs.ranks) and finish.why_deaf(inputs) is None


def room(state: JobState, inputs: Inputs) -> Room | None:
    """For the decision; None if there is no budget, or no part of this job is in it."""
    boards = site_plan.site_boards(state, inputs)
    if state.site is None or boards is None:
        return None
    absent = inputs.child.state in ("waiting", "unloaded")
    held = absent or can_pause(state, inputs)
    return Room(state.site, boards.number, boards.full_w, boards.least_w, held)


def why_no_boost(state: JobState, inputs: Inputs) -> Statement | None:
    """Why a boost does not fit even with all other jobs at their minimum; None if it fits."""
    given = room(state, inputs)
    if given is None or given.full_w <= given.share.boost_w + TOLERANCE_W:
        return None
    left = max(0.0, given.share.boost_w)
    return statement("no_room_to_boost", needs=given.full_w, cap=given.share.cap_w, left=left)


STEP_W = 5.0
"""Limits follow the budget in steps of this many watts per board: small changes of other jobs cause no writes."""


class Room(NamedTuple):
    """What a decision needs to know: the share, and the range of this job's boards."""

    share: Share
    boards: int
    full_w: float
    least_w: float
    can_pause: bool

    @property
    def per_board_w(self) -> float:
        return math.floor(self.share.allowed_w / self.boards / STEP_W) * STEP_W


def within(choice: Chosen, given: Room | None, *, can_cap: bool) -> Chosen:
    """The choice, or the highest level that fits in the share; unchanged if nothing can be lowered."""
    level = choice.level
    if given is None or level.still:
        return choice
    if watts_at(level, given.boards, given.full_w, 0.0) <= given.share.allowed_w + TOLERANCE_W:
        return choice
    watts, cap_w = max(given.per_board_w, given.least_w / given.boards), given.share.cap_w
    if can_cap and given.least_w < given.full_w and given.share.allowed_w >= given.least_w - TOLERANCE_W:
        slower = levels.under(level, watts)
        if slower is level:
            return choice
        return Chosen(slower, Why("site", statement("site_capped", watts=watts, cap_w=cap_w)), "site")
    if given.can_pause:
        return Chosen(PAUSE, Why("site", statement("site_held", cap_w=cap_w)), "site")
    return choice


def notice(given: Share | None) -> Statement | None:
    """The notice if even the minimum of all jobs together exceeds the budget."""
    if given is None or given.kept:
        return None
    return statement("site_budget_broken", cap=given.cap_w, least=given.least_sum_w)
