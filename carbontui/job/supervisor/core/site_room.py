"""What the machine's power budget leaves to a job, and the level it can run at within that."""

from __future__ import annotations

import math
from typing import NamedTuple

from carbontui.job.supervisor.core import levels
from carbontui.job.supervisor.core.levels import PAUSE, Chosen
from carbontui.job.supervisor.core.site_boards import watts_at
from carbontui.protocol import Statement, Why, statement
from carbontui.site.sharing import TOLERANCE_W, Share

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
