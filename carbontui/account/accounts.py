"""From joules and realised intensity to grams and money: sums that follow late and revised values.

Energy is kept in bins of five minutes of the job's clock, the finest step any provider gives, so that every joule
meets the intensity of its own slot even when that intensity is only published (or revised) hours later.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from carbontui import units
from carbontui.account.elapsed import TimeSpent
from carbontui.protocol import How
from carbontui.text import figures

WORST_LAST: tuple[How, ...] = ("measured", "integrated", "estimated", "forecast", "default", "simulated", "replay")
assert set(WORST_LAST) == set(get_args(How))
NO_PART = 0.05
"""A share of a sum below this does not decide: sensors themselves are good to 5 %."""
METHODS: Mapping[str, How] = {"counter": "measured", "integrated": "integrated", "late": "integrated"}
"""Of the meter's methods; every other one (a model, a split, a gap, a snapshot) is an estimate."""


def worst(*parts: How) -> How:
    """The provenance of a figure that comes out of `parts`."""
    return max(parts, key=WORST_LAST.index)


def of_sum(shares: Mapping[str, float]) -> How:
    """Of metered energy, from its shares by the meter's method; nothing metered is estimated."""
    hows = [METHODS.get(method, "estimated") for method, share in shares.items() if share >= NO_PART]
    return worst(*hows) if hows else "estimated"


HALF = {"counter": 0.05, "integrated": 0.05, "given": 0.1, "late": 0.15, "split": 0.2, "gap": 0.25, "default": 0.33}
"""Half the band of energy by how it was obtained: sensors are good to 5 %, a host's default of 0.4 to 0.27-0.53."""
HALF_MODEL = 0.5
"""Of all else: watts by utilisation are right to half of themselves."""


def band(kwh: float, shares: Mapping[str, float], counter: float = 0.0, idle: float = 0.0) -> tuple[float, float]:
    """Around a sum of energies of these `shares`: those of one method, and all of one sensor, are wrong together,
    different ones independently.
    `counter`: by how much a counter that is used differs from its board's power, also in its first minute. `idle`: by
    which share of the sum the idle watts may be wrong that were left out of it."""
    widths = {**HALF, **dict.fromkeys(("counter", "integrated"), max(counter, HALF["counter"]))}
    parts = {how: share * widths.get(how, HALF_MODEL) for how, share in shares.items()}
    sensed = math.fsum(parts.pop(how, 0.0) for how in METHODS)
    half = kwh * math.hypot(sensed, idle, *parts.values())
    return round(kwh - half, 9), round(kwh + half, 9)


BIN_S = 300.0


def bin_of(at_s: float) -> float:
    """Start of the bin that holds a moment."""
    return math.floor(at_s / BIN_S) * BIN_S


def split(t0: float, t1: float, bin_s: float = BIN_S) -> Iterator[tuple[float, float]]:
    """(bin start, share of [t0, t1) in it), shares summing to one; an empty interval yields its bin whole."""
    if t1 <= t0:
        yield math.floor(t0 / bin_s) * bin_s, 1.0
        return
    start = math.floor(t0 / bin_s) * bin_s
    while start < t1:
        overlap = min(t1, start + bin_s) - max(t0, start)
        if overlap > 0:
            yield start, overlap / (t1 - t0)
        start += bin_s


def mean_per_bin(spans: Iterable[tuple[float, float, float]]) -> dict[float, float]:
    """Time-weighted mean per bin of (start, seconds, value): finer spans are averaged, coarser ones hold. A bin that is
    partly known counts at the known part. Where spans overlap, the one that begins later counts."""
    parts: dict[float, list[tuple[float, float]]] = {}
    following = math.inf
    for start, dur, value in sorted(spans, reverse=True):
        end, following = min(start + dur, following), start
        if end - start > 1e-6:
            for at, share in split(start, end):
                parts.setdefault(at, []).append((value, share * (end - start)))
    return {at: _mean(found) for at, found in parts.items()}


def _mean(parts: list[tuple[float, float]]) -> float:
    if len(parts) == 1:
        return parts[0][0]
    return math.fsum(value * weight for value, weight in parts) / math.fsum(weight for _, weight in parts)


class Bins(dict[float, float]):
    """A number per bin, by the start of the bin in epoch seconds; knows the first bin changed since last asked."""

    _last_s = -math.inf
    _changed_s = -math.inf

    def __missing__(self, start: float) -> float:
        return 0.0

    def __setitem__(self, start: float, number: float) -> None:
        if self.get(start) != number:
            self._changed_s = min(self._changed_s, start)
            self._last_s = max(self._last_s, start)
            super().__setitem__(start, number)

    def update_all(self, spans: Iterable[tuple[float, float, float]]) -> bool:
        """Put (start, seconds, value) into every bin they touch, as means; True if one changed."""
        means = mean_per_bin(spans)
        changed = any(self.get(at) != value for at, value in means.items())
        for at, value in means.items():
            self[at] = value
        return changed

    def clear(self) -> None:
        super().clear()
        self._last_s = self._changed_s = -math.inf

    def take_changed(self) -> float:
        """Start of the first bin changed since the last call; infinite if none was."""
        changed, self._changed_s = self._changed_s, math.inf
        return changed

    def since(self, start_s: float) -> Iterator[tuple[float, float]]:
        """(start, number) of the bins from `start_s` on, in order of time."""
        start = start_s if start_s > -math.inf else min(self, default=math.inf)
        if self._last_s - start > BIN_S * len(self):  # few and far between
            yield from sorted(item for item in self.items() if item[0] >= start)
            return
        while start <= self._last_s:
            if start in self:
                yield start, self[start]
            start += BIN_S


@dataclass(frozen=True, slots=True)
class Total:
    """Sum of weight x value, and of the weights; `unknown` weights have no value and count at the others' mean."""

    value: float
    weight: float
    unknown: float


class Running:
    """Prefix sums over bins in order of time: a new total costs only the changed bins and those after them."""

    def __init__(self) -> None:
        self._starts = array("d")
        # after k bins: weight x value, weights with a value, weights without
        self._value, self._known, self._unknown = array("d", [0.0]), array("d", [0.0]), array("d", [0.0])

    @property
    def end_s(self) -> float:
        """End of the last bin summed up."""
        return self._starts[-1] + BIN_S if self._starts else -math.inf

    def renew(self, start_s: float, bins: Iterable[tuple[float, float]], values: Mapping[float, float]) -> None:
        """Replace all from `start_s` on by `bins`: (start, weight), rising."""
        kept = bisect_left(self._starts, start_s)
        del self._starts[kept:], self._value[kept + 1 :], self._known[kept + 1 :], self._unknown[kept + 1 :]
        for start, weight in bins:
            total, known, unknown = _plus(self._sums(-1), weight, values.get(start))
            self._starts.append(start)
            self._value.append(total)
            self._known.append(known)
            self._unknown.append(unknown)

    def total(self, otherwise: float | None) -> Total:
        """Over all bins; `otherwise` replaces unknown values, None: they count at the mean of the known ones."""
        return _total(self._sums(-1), otherwise)

    def total_with(self, start: float, weight: float, value: float | None, otherwise: float | None) -> Total:
        """Over the bins before `start` and of that one `weight`."""
        before = self._sums(bisect_left(self._starts, start))
        return _total(_plus(before, weight, value), otherwise)

    def _sums(self, bins: int) -> tuple[float, float, float]:
        return self._value[bins], self._known[bins], self._unknown[bins]


def _plus(sums: tuple[float, float, float], weight: float, value: float | None) -> tuple[float, float, float]:
    total, known, unknown = sums
    if value is None:
        return total, known, unknown + weight
    return total + weight * value, known + weight, unknown


def _total(sums: tuple[float, float, float], otherwise: float | None) -> Total:
    total, known, unknown = sums
    if otherwise is not None:
        return Total(total + unknown * otherwise, known + unknown, 0.0)
    if unknown and known:
        total *= (known + unknown) / known
    return Total(total, known + unknown, unknown)


class FromStart:
    """Seconds x value from `start_s` on without a break, as run-now runs; times watts later."""

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self._first_s = math.floor(start_s / BIN_S) * BIN_S
        self._whole = Running()
        self._changed_s = -math.inf

    def changed(self, since_s: float) -> None:
        """The values differ from `since_s` on."""
        self._changed_s = min(self._changed_s, since_s)

    def total(self, done_s: float, values: Mapping[float, float], otherwise: float | None) -> Total:
        """Of the first `done_s` seconds."""
        changed_s, self._changed_s = self._changed_s, math.inf
        end_s = self.start_s + done_s
        last_s = math.floor(end_s / BIN_S) * BIN_S
        begin_s = max(self._first_s, min(changed_s, self._whole.end_s))
        self._whole.renew(begin_s, self._seconds(begin_s, last_s), values)
        return self._whole.total_with(last_s, end_s - max(last_s, self.start_s), values.get(last_s), otherwise)

    def _seconds(self, start: float, until_s: float) -> Iterator[tuple[float, float]]:
        while start < until_s:
            yield start, start + BIN_S - max(start, self.start_s)
            start += BIN_S


LEAST_SHARE = 0.005
"""A smaller change of the values is booked without a notice, unless it changes the printed grams."""


class Revision(NamedTuple):
    """Values of `seconds` of the job, from `since_s` to `until_s`: their means before and after in gCO2/kWh, and what
    that changes in the grams emitted so far."""

    since_s: float
    until_s: float
    seconds: float
    before_g_per_kwh: float
    after_g_per_kwh: float
    gco2_g: float
    source: str

    @property
    def words(self) -> str:
        """'312 → 298 g/kWh over 2 h 00 by Energy-Charts: −1.20 g'."""
        values = f"{self.before_g_per_kwh:.0f} → {self.after_g_per_kwh:.0f} g/kWh"
        return f"{values} over {figures.duration(self.seconds)} by {self.source}: {figures.change(self.gco2_g)}"


def revision(
    bins: Iterable[float],
    before: Mapping[float, float],
    after: Mapping[float, float],
    wall_j: Mapping[float, float],
    source: str,
) -> Revision | None:
    """From the `bins` that a source has revised: their values in gCO2/kWh before and after, and the joules at the wall
    in them. None where the change is negligible."""
    changed = sorted(at for at in bins if at in before and at in after and before[at] != after[at])
    if not changed:
        return None
    old = math.fsum(before[at] for at in changed) / len(changed)
    new = math.fsum(after[at] for at in changed) / len(changed)
    grams = math.fsum(units.joules_to_kwh(wall_j.get(at, 0.0)) * (after[at] - before[at]) for at in changed)
    if abs(new - old) < LEAST_SHARE * abs(old) and abs(grams) < figures.LEAST_G:
        return None
    return Revision(changed[0], changed[-1] + BIN_S, len(changed) * BIN_S, old, new, grams, source)


class RunNow(NamedTuple):
    """`seconds` from the job's start at `watts` at the wall; `acted`: whether any lever did."""

    seconds: float
    watts: float
    acted: bool = True


def run_now(elapsed: TimeSpent, *, pue: float, full_wall_w: float | None, rate: float | None) -> RunNow | None:
    """By the formula above; `rate` is the reference in steps per second. None where work was done under a cap and the
    watts at full speed are not known."""
    capped_work_s = elapsed.capped_steps / rate if rate and elapsed.capped_steps else elapsed.capped_work_s
    if capped_work_s > 0 and full_wall_w is None:
        return None
    seconds = elapsed.at_speed_s + capped_work_s
    joules = elapsed.at_speed_j * pue + (full_wall_w or 0.0) * capped_work_s
    return RunNow(seconds, joules / seconds if seconds > 0 else 0.0, elapsed.lever_acted)


def to_kept(run_now: RunNow | None) -> dict[str, object]:
    """As the journal keeps it, for those who read or revise the account later."""
    if run_now is None:
        return {"run_now_s": None, "run_now_w": None, "lever_acted": True}
    return {"run_now_s": run_now.seconds, "run_now_w": run_now.watts, "lever_acted": run_now.acted}


def kept(data: Mapping[str, Any]) -> RunNow | None:
    """From the journal."""
    seconds, watts = data["run_now_s"], data["run_now_w"]
    return None if seconds is None else RunNow(float(seconds), float(watts), bool(data["lever_acted"]))
