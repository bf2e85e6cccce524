"""Whether a board's energy counter is believed: once it has agreed with the board's power for a minute. Pure.

NVML's 1 s averages are an independent witness: read about once a second they cover every second. A counter that is off
from them by more than a quarter is wrong, be it by a factor, because it stands still, or because it catches up with
what was counted from power meanwhile. Momentary readings prove less: a sensor that is on for 25 of each 100 ms may
overstate bursts up to six times. They may confirm a counter; where they contradict it, nobody can say which is right,
unless the counter shows a tenth of them, or less: then it counts another unit.

Of AMD's watts nobody says over which time they are taken. They are read at irregular moments, so that no load is in
step with them: their mean is right, and how far it can be off by chance shrinks with the number of readings. They
confirm or refute a counter once that is less than what it may differ by: a minute of an even load, five of a bursty
one.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from carbontui.power.messages import Method, PowerKind, Sample

AGREES = 0.25
"""A counter may differ from the power by this share: sensors are good to 5 %, and averages lag."""
TENTH = 0.1
"""A counter below this share of momentary readings counts another unit."""
UNIT_S = 10.0
"""After which another unit is found out."""
MINUTE_S = 60.0
AGAIN_S = 20.0
"""How often a counter that is believed is compared again: what it miscounts begins within one such window."""
LAG_S = 2.25
"""A comparison at any moment allows for this much of the highest power: an average ends a second late, and a counter
ticks. And for all that a changing load may have done in the seconds that no average covered: readings are seconds apart
while agents are replaced."""
UNREADABLE_S = 1.0
"""What a 1 s average covers of the time since the last one."""


class CheckedCounter(Struct):
    """One counter beside its board's power, and the joules still to be made up for."""

    trust: Literal["new", "believed", "disputed", "doubted"] = "new"
    """disputed: by momentary readings; doubted: found wrong, and not used until it agrees again."""
    seconds: float = 0.0
    counter_j: float = 0.0
    power_j: float = 0.0
    low_w: float = 0.0
    high_w: float = 0.0
    """Of a comparison that has begun. JSON, in which it is kept, has no infinity."""
    blind_s2: float = 0.0
    """Squares of the seconds that no average covered."""
    blind_s: float = 0.0
    range_w: float = 0.0
    """By how much its watts have differed within a comparison, ever: what they may have done in those seconds."""
    owed_j: float = 0.0
    """Booked too little (or, negative, too much)."""

    @property
    def doubted(self) -> bool:
        return self.trust == "doubted"

    @property
    def method(self) -> Method:
        """The label of the joules that are booked now."""
        return "counter" if self.trust == "believed" else "unmetered" if self.trust == "disputed" else "integrated"

    def settled(self, joules: float, most_j: float) -> float:
        """What to book instead of `joules`: never less than nothing, nor more than a board can draw."""
        booked = min(max(joules + self.owed_j, 0.0), max(joules, most_j))
        self.owed_j += joules - booked
        return booked

    def interrupted(self) -> None:
        """The power was not read: the comparison begins anew."""
        self.seconds = self.counter_j = self.power_j = 0.0
        self.low_w = self.high_w = self.blind_s2 = self.blind_s = 0.0

    def jumped(self, *, ahead: bool) -> None:
        """It made an impossible step or stood still: ahead of its board it is no longer believed; back is a reset."""
        self.interrupted()
        if ahead:
            self.trust = "doubted"

    def contradicted(self, sample: Sample, dt_s: float, counter_j: float, power_j: float) -> bool:
        """Take another interval; whether the counter was found wrong just now: this interval is then counted from
        power, what was booked of the others is owed."""
        watts = sample.power_w or 0.0
        self.low_w = min(self.low_w, watts) if self.seconds else watts
        self.high_w = max(self.high_w, watts)
        self.seconds += dt_s
        self.counter_j += counter_j
        self.power_j += power_j
        blind_s = max(0.0, dt_s - (0.0 if sample.kind == "unspecified" else UNREADABLE_S))
        self.blind_s += blind_s
        self.blind_s2 += blind_s**2
        self.range_w = max(self.range_w, self.high_w - self.low_w)
        wrong = self.trust != "doubted" and self._wrong(sample.kind)
        if wrong:
            self.owed_j += (self.power_j - power_j) - (self.counter_j - counter_j)
            self.trust = "doubted"
            self.interrupted()
        elif self._is_plausible(sample.kind):
            agrees = self._agrees(sample.kind)
            self.trust = "believed" if agrees else "doubted" if self.doubted else "disputed"
            self.interrupted()
        return wrong

    def _wrong(self, kind: PowerKind | None) -> bool:
        over = abs(self.counter_j - self.power_j) - AGREES * self.power_j
        if kind != "avg1s":
            unit = self.seconds >= UNIT_S and self.counter_j < TENTH * self.power_j
            return unit or (kind == "unspecified" and self.seconds >= MINUTE_S and over > self._slack_j())
        due = self.seconds >= (AGAIN_S if self.trust == "believed" else MINUTE_S)
        at_once_j = LAG_S * self.high_w + self.blind_s * self.range_w
        return over > at_once_j or (due and over > self._slack_j())

    def _is_plausible(self, kind: PowerKind | None) -> bool:
        """Whether the comparison has lasted long enough to end."""
        if kind == "unspecified":
            over = abs(self.counter_j - self.power_j) > AGREES * self.power_j
            return self.seconds >= MINUTE_S and not over and self._slack_j() <= AGREES * self.power_j
        return self.seconds >= (AGAIN_S if self.trust == "believed" and kind == "avg1s" else MINUTE_S)

    def _agrees(self, kind: PowerKind | None) -> bool:
        least = TENTH if kind == "module" else 1.0 - AGREES  # a module's watts include its CPU
        slack_j = self._slack_j()
        return least * self.power_j - slack_j <= self.counter_j <= (1.0 + AGREES) * self.power_j + slack_j

    def _slack_j(self) -> float:
        """What a changing load may hide: the lag at both ends, and what fell between two averages."""
        return max(0.0, self.high_w - self.low_w) * (1.0 + 2.0 * math.sqrt(self.blind_s2))
