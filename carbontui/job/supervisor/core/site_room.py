"""What the machine's power budget leaves to a job, and the level it can run at within that."""

from __future__ import annotations

import math
from typing import NamedTuple

from carbontui import protocol, units
from carbontui.job.supervisor.core import levels
from carbontui.job.supervisor.core.levels import PAUSE, Level
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


def within(
    level: Level, reason: protocol.Reason, given: Room | None, *, can_cap: bool
) -> tuple[Level, protocol.Reason]:
    """The level, or the highest that fits in the share; unchanged if nothing can be lowered."""
    if given is None or level.still:
        return level, reason
    if watts_at(level, given.boards, given.full_w, 0.0) <= given.share.allowed_w + TOLERANCE_W:
        return level, reason
    budget = f"the site budget of {units.fmt_watts(given.share.cap_w)}"
    watts = max(given.per_board_w, given.least_w / given.boards)
    if can_cap and given.least_w < given.full_w and given.share.allowed_w >= given.least_w - TOLERANCE_W:
        return levels.under(level, watts), protocol.Reason(
            reason.code, f"{reason.text}; {watts:g} W per GPU by {budget}"
        )
    if given.can_pause:
        return PAUSE, protocol.Reason(reason.code, f"held: {budget} has no room for it now")
    return level, reason


def notice(given: Share | None) -> str:
    """The notice if even the minimum of all jobs together exceeds the budget; '' otherwise."""
    if given is None or given.kept:
        return ""
    cap, least = units.fmt_watts(given.cap_w), units.fmt_watts(given.least_sum_w)
    return f"the site budget of {cap} cannot be kept: the jobs of this machine draw at least {least}"


def watts_at(level: Level, boards: int, full_w: float, parked_w: float, *, absent: bool = False) -> float:
    """Watts of all `boards` at a level."""
    if level.still:
        return 0.0 if absent or level.kind in ("off", "unload") else parked_w
    return min(full_w, level.cap_w * boards) if level.kind == "cap" and level.cap_w is not None else full_w
