"""Steers one clock lock to the wanted watts: a pure function of each look at its board.

NVML does not report locks, so a lock is judged by the clock that results, and moved by the watts drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from msgspec import Struct

SETTLE_S = 3.0
"""Power readings are 1 s averages and limits a control loop: an effect is visible in them only after this."""
RAISE_S = 6.0
"""A lock is raised one step only if no look in this time came near the wanted watts."""
UNREADABLE = 10
"""Consecutive looks without a power reading after which steering gives up."""
READINGS = 3
"""Consecutive looks that prove a lock is not in force."""
OVERSHOOT = 1.015
"""About one step of the clock."""
NEAR = 0.95
LOWEST = 0.15
"""Lowest lock, as a share of the full clock."""


class LockGivenUp(Struct, frozen=True):
    """Why a lock is given up. "outside": it held until someone else changed it, so it is no longer ours to lift."""

    code: Literal["no_effect", "out_of_range", "outside"]
    why: str


@dataclass(frozen=True)
class Steering:
    """One clock lock being steered to `wanted_w`; `ran_mhz` is the clock before the first lock."""

    wanted_w: float
    mhz: int
    top_mhz: int
    ran_mhz: float | None
    set_at_s: float
    peak_w: float = 0.0
    over: int = 0
    above: int = 0
    unreadable: int = 0
    worked: bool = False
    """The clock has been seen to follow a lock."""
    proving: bool = True
    """The wanted watts have not been seen to hold yet."""

    def sample(self, power_w: float | None, sm_mhz: float | None, now_s: float) -> Steering:
        """Updated with one more look; before SETTLE_S a look says nothing."""
        if now_s - self.set_at_s < SETTLE_S:
            return self
        margin = max(30.0, 0.02 * self.mhz)  # drivers round to their own steps
        above = sm_mhz is not None and sm_mhz > self.mhz + margin
        came_down = sm_mhz is not None and not above and (self.ran_mhz or 0.0) > self.mhz + margin
        over = power_w is not None and power_w > self.wanted_w * OVERSHOOT
        return replace(
            self,
            peak_w=max(self.peak_w, power_w or 0.0),
            over=self.over + 1 if over else 0,
            above=self.above + 1 if above else 0,
            unreadable=self.unreadable + 1 if power_w is None else 0,
            worked=self.worked or came_down,
            proving=self.proving and (power_w is None or over),
        )

    def failure(self) -> LockGivenUp | None:
        """What the looks so far prove against this lock."""
        if self.above >= READINGS and self.worked:
            return LockGivenUp("outside", "the clock lock was changed outside (nvidia-smi?)")
        if self.unreadable >= UNREADABLE:
            return LockGivenUp("no_effect", "its watts cannot be read, by which its clock would be steered")
        if self.above >= READINGS:
            return LockGivenUp("no_effect", f"clocks ran above {self.mhz} MHz all the same")
        if self.over >= READINGS and self.mhz <= int(LOWEST * self.top_mhz):
            why = f"even at {self.mhz} MHz the GPU draws more than {self.wanted_w:.0f} W"
            return LockGivenUp("out_of_range", why)
        return None

    def next_mhz(self, power_w: float | None, now_s: float) -> int | None:
        """The clock to lock now; None: leave it. Not changed faster than an effect can be seen."""
        since = now_s - self.set_at_s
        if power_w is None or since < SETTLE_S or self.above:
            return None
        if power_w > self.wanted_w * OVERSHOOT:
            mhz = clocks_for(self.wanted_w, power_w, self.mhz, self.top_mhz)
            return mhz if mhz < self.mhz else None
        idle = self.peak_w < 0.5 * self.wanted_w
        if since >= RAISE_S and self.peak_w < NEAR * self.wanted_w and not idle:
            mhz = clocks_for(self.wanted_w, self.peak_w, self.mhz, self.top_mhz)
            return mhz if mhz > self.mhz else None
        return None

    def at(self, mhz: int, now_s: float) -> Steering:
        """The same target from another clock."""
        return replace(self, mhz=mhz, set_at_s=now_s, peak_w=0.0, over=0, above=0, proving=True)


def clocks_for(wanted_w: float, power_w: float, mhz: float, top_mhz: int) -> int:
    """The clock that should give `wanted_w` where `mhz` gives `power_w`.

    Board power lies between linear and cubic in the clock: the square root is a cautious compromise, in bounded steps.
    """
    share = min(1.25, max(0.6, (wanted_w / max(1.0, power_w)) ** 0.5))
    return int(min(top_mhz, max(LOWEST * top_mhz, share * mhz)))
