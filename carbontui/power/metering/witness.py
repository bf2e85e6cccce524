"""Whether a meter is believed: each is held against another over the same seconds, and against what its part of a
machine can draw. Pure.

A board's energy counter is held against the board's power: NVML's 1 s averages are an independent witness, which read
about once a second cover every second. A counter that is off from them by more than 8 % is wrong, be it by a
factor, because it stands still, or because it catches up with what was counted from power meanwhile. Momentary readings
prove less: a sensor that is on for 25 of each 100 ms may overstate bursts up to six times. They may confirm a counter;
where they contradict it, nobody can say which is right, unless the counter shows a tenth of them, or less: then it
counts another unit.

Of AMD's watts nobody says over which time they are taken. They are read at irregular moments, so that no load is in
step with them: their mean is right, and how far it can be off by chance shrinks with the number of readings. They
confirm or refute a counter once that is less than what it may differ by: a minute of an even load, five of a bursty
one.

A machine's supply is held against its parts. A thread draws up to 12 W (desktop parts; servers 2-5), a server besides
boards, CPU and memory up to 53 % of its boards' limits (Latif et al. 2025; arXiv 2506.14551) and 400 W of fans and
disks. Unknown is 0xFFFFFFFF in milliwatts (ACPI 6.5, 10.4.1 _PMM) and 0xFFFF in watts (IPMI DCMI 1.5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from carbontui.power.messages import MeterVerdict, Method, PowerKind, Readings, Sample, Scope, Verdict
from carbontui.text import figures

THREAD_MOST_W, BESIDE_SHARE, BESIDE_W, BOARD_OVERSHOOT = 12.0, 0.53, 400.0, 1.25
UNKNOWN_W = (0xFFFFFFFF / 1000, 0xFFFFFFFF / 1e6, 0xFFFFFFFF, 0xFFFF)
FADE_S = 120.0
"""A supply's meter averages over other times than the boards' sensors: their means forget with this time constant."""
COMPARED_S = 60.0
"""What is left of a supply's watts is believed after this long, as a GPU's counter is."""
APART = 1.1
"""Two meters of one supply may differ by this factor: one may stand before its power supplies, which lose 4 to 10 %."""
SHORT = 0.95
"""A supply below this share of what its parts drew is wrong: sensors are good to 5 %."""
CHANGES = 1.1
"""A load that has changed by this factor moves a meter that works."""
STILL_S = 5.0
"""A package's counter that stands still for this long is none: it counts what an idle one draws too."""
MIRROR_UJ = 500_000
"""Two packages never stand within half a joule of each other, twice; a counter shown under two names does."""


class Parts(NamedTuple):
    """What a machine is made of: limits of the boards seen in watts (`boards` of them), threads, and boards that are
    there and not seen."""

    limits_w: float = 0.0
    boards: int = 0
    threads: int = 0
    hidden: int = 0

    @property
    def most_w(self) -> float:
        """The most that a machine of these parts can draw."""
        return (BOARD_OVERSHOOT + BESIDE_SHARE) * self.limits_w + THREAD_MOST_W * self.threads + BESIDE_W


@dataclass(frozen=True)
class SameSeconds:
    """A supply and its parts over the same seconds: fading means in watts, and what they have been."""

    seconds: float = 0.0
    supply_w: float = 0.0
    drawn_w: float = 0.0
    low_w: float = math.inf
    high_w: float = 0.0
    moved: bool = False

    def add(self, supply_w: float, drawn_w: float, dt_s: float) -> SameSeconds:
        """With another reading, `dt_s` after the last one."""
        kept = math.exp(-dt_s / FADE_S) if self.seconds else 0.0
        return SameSeconds(
            self.seconds + dt_s,
            supply_w + kept * (self.supply_w - supply_w),
            drawn_w + kept * (self.drawn_w - drawn_w),
            min(self.low_w, drawn_w),
            max(self.high_w, drawn_w),
            self.moved or (self.seconds > 0 and abs(supply_w - self.supply_w) > 1e-6),
        )


def impossible(now_w: float, parts: Parts) -> str:
    """Why a machine's supply does not give these watts; "" if it may."""
    if any(math.isclose(now_w, unknown) for unknown in UNKNOWN_W):
        return "it reads its value for unknown"
    most_w = parts.most_w
    return f"{now_w:.0f} W is more than this machine's parts can draw ({most_w:.0f} W)" if now_w > most_w else ""


def supply(what: str, now_w: float | None, why: str, same: SameSeconds, parts: Parts) -> MeterVerdict:
    """The verdict on a supply's meter, which reads `now_w`; `why` it reads nothing."""
    verdict: Verdict = "refused"
    ratio = round(same.drawn_w / same.supply_w, 3) if same.supply_w else None
    if now_w is None:
        ratio = None
    elif parts.hidden and now_w not in UNKNOWN_W:
        verdict, total = "doubted", parts.boards + parts.hidden
        why = f"not attributable: {parts.hidden} of the machine's {total} GPUs are not visible here"
    elif said := impossible(now_w, parts):
        why, ratio = said, None
    elif same.seconds < COMPARED_S:
        verdict, why = "doubted", f"compared with its parts for {same.seconds:.0f} s of {COMPARED_S:.0f} s"
    elif same.supply_w < SHORT * same.drawn_w:
        why = f"{same.supply_w:.0f} W is less than the {same.drawn_w:.0f} W that its parts drew in the same seconds"
    elif not same.moved and same.high_w > CHANGES * same.low_w:
        why = "it stands still while its parts' draw changes"
    else:
        verdict, why = "believed", ""
    scope: Scope = "chassis" if now_w is not None and now_w > parts.most_w and not parts.hidden else "node"
    return MeterVerdict(what, scope, verdict, why, ratio)


def agreed(made: Sequence[tuple[MeterVerdict, float]]) -> list[MeterVerdict]:
    """The verdicts on a supply's meters, each with its mean watts: of those that are believed alone, none is where two
    contradict each other."""
    believed = sorted((watts, verdict.what) for verdict, watts in made if verdict.verdict == "believed")
    if not believed or believed[-1][0] <= APART * believed[0][0]:
        return [verdict for verdict, _ in made]
    (low_w, low), (high_w, high) = believed[0], believed[-1]
    why = f"{high} says {high_w:.0f} W, {low} {low_w:.0f} W in the same seconds"
    return [replace(one, verdict="doubted", why=why) if one.verdict == "believed" else one for one, _ in made]


def allotted(boards: int, parts: Parts, cores: int, jobs: int) -> tuple[float, str]:
    """The job's part of what is a machine's and nobody's, by what it was allotted, and the rule."""
    if parts.boards:
        share, rule = boards / parts.boards, f"{boards} of {parts.boards} GPUs"
    else:
        share, rule = min(1.0, cores / max(1, parts.threads)), f"{cores} of {parts.threads} threads"
    return (1.0 / jobs, f"1 of {jobs} jobs") if jobs > 1 and share > 1.0 / jobs else (share, rule)


def of_machine(readings: Readings, counters: Mapping[str, MeterVerdict], *, assumed: bool) -> list[MeterVerdict]:
    """All that speaks of a job's energy: counters and watts of its boards, the host's meters, and the default where
    `assumed`. What is simulated speaks of nothing."""
    found: list[MeterVerdict] = []
    for one in readings.devices:
        if one.simulated or not one.watched:
            continue
        scope: Scope = "module" if one.power_kind == "module" else "slice" if one.mig else "gpu"
        if one.uuid in counters:
            what = f"{one.label} {counters[one.uuid].what}"
            found.append(replace(counters[one.uuid], what=what, scope=scope))
        why = "modelled" if one.power_kind == "model" else "" if one.power_w else one.why.get("power_w", "not read")
        found.append(MeterVerdict(f"{one.label} power", scope, "refused" if why else "believed", why))
    found += readings.host.witnesses
    if assumed:
        found.append(MeterVerdict("default of the host", "node", "doubted", "assumed from the GPUs' limits"))
    return found


def mirrored(a_uj: tuple[int, int], b_uj: tuple[int, int]) -> bool:
    """Whether two counters, at two moments each, are one that is shown twice."""
    return a_uj[1] > a_uj[0] and all(abs(a - b) <= MIRROR_UJ for a, b in zip(a_uj, b_uj, strict=True))


AGREES, SAID = 0.25, 0.08
"""A counter may differ from a board's power by the first share, and from 1 s averages, which over a minute are good to
5 %, by the second: from there on it is said to."""
WHY = {"disputed": "momentary readings contradict it", "doubted": "it was found wrong"}
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
    ratio: float | None = None
    """Of the counter's joules to the power's, in the last comparison."""
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

    def verdict(self) -> MeterVerdict:
        """What is said of it."""
        what: tuple[str, Scope] = ("energy counter", "gpu")
        off = 0.0 if self.ratio is None else self.ratio - 1.0
        why = f"{figures.signed(off, figures.percent)} off its GPU's power" if abs(off) >= SAID else ""
        if self.trust == "doubted":
            return MeterVerdict(*what, "refused", f"{why or WHY[self.trust]}: power is integrated", self.ratio)
        if self.trust == "new":
            why = "compared with its GPU's power for less than a minute" + (f": {why}" if why else "")
        why = WHY.get(self.trust, why)
        return MeterVerdict(*what, "doubted" if why else "believed", why, self.ratio)

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
        self.trust = "doubted" if ahead else self.trust

    def compare(self, sample: Sample, dt_s: float, counter_j: float, power_j: float) -> None:
        """Take another interval. Of a counter that is found wrong just now this one is counted from power, what was
        booked of the others is owed."""
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
        if self.seconds >= UNIT_S and self.power_j > 0:
            self.ratio = round(self.counter_j / self.power_j, 3)
        if self.trust != "doubted" and self._wrong(sample.kind):
            self.owed_j += (self.power_j - power_j) - (self.counter_j - counter_j)
            self.trust = "doubted"
            self.interrupted()
        elif self._is_plausible(sample.kind):
            agrees = self._agrees(sample.kind)
            self.trust = "believed" if agrees else "doubted" if self.doubted else "disputed"
            self.interrupted()

    def _wrong(self, kind: PowerKind | None) -> bool:
        over = abs(self.counter_j - self.power_j) - _may_differ(kind) * self.power_j
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
        slack_j, share = self._slack_j(), _may_differ(kind)
        least = TENTH if kind == "module" else 1.0 - share  # a module's watts include its CPU
        return least * self.power_j - slack_j <= self.counter_j <= (1.0 + share) * self.power_j + slack_j

    def _slack_j(self) -> float:
        """What a changing load may hide: the lag at both ends, and what fell between two averages."""
        return max(0.0, self.high_w - self.low_w) * (1.0 + 2.0 * math.sqrt(self.blind_s2))


def _may_differ(kind: PowerKind | None) -> float:
    return SAID if kind == "avg1s" else AGREES
