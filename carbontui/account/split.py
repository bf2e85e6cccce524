"""Avoided CO2 by lever: the avoided grams of one job, split without an unexplained remainder.

Run-now does the same work at full speed from the start. Between it and what was emitted stand, in this order:

- moved: the same work, at full speed, at the times when it was really done;
- parked: what was drawn while the work stood still, with the model in memory (negative). While the job was unloaded it
  counts as if it had been parked;
- unloaded: what was not drawn because the boards were let go, against staying parked;
- capped: the work done under a cap (or a duty cycle), at full speed, less what was really drawn for it;
- event: what a grid event took: the same of the work done under its cap, less what was drawn while it held the job;
- rest: starting, switching and reloading, and the watts at full speed of each moment beside their mean.

Each is a difference of two of these lines, so they add up to the avoided grams whatever the numbers are. All are sums
of kWh x g/kWh over bins, so the error of a grid value counts by the kWh that a part has there: what both lines share
cancels, and a part may be better known than the grams that were emitted.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from carbontui.account.accounts import BIN_S, split
from carbontui.account.elapsed import EVENT, EVENT_HELD
from carbontui.account.expected_end import BAND_SIGMAS, ERROR_MEMORY_S
from carbontui.units import joules_to_kwh

AT_WORK = frozenset({"running", "throttled", "pausing", EVENT})
"""States in which steps are made."""
PARKED = frozenset({"paused", "waiting"})
LEVERS = ("moved", "parked", "unloaded", "capped", "event")


class EnergyBin(NamedTuple):
    """Joules at the wall (PUE included) that were drawn in one bin of five minutes, in one state."""

    bin_s: float
    state: str
    joules: float


class StateSpan(NamedTuple):
    """A time in one state. Epoch seconds of the job's clock."""

    start_s: float
    end_s: float
    state: str


class WorkBin(NamedTuple):
    """Reference-speed seconds of work done in one bin, in one state."""

    bin_s: float
    state: str
    work_s: float


class Uncertainty(NamedTuple):
    """The uncertain inputs of the split. `spread` gives the standard deviation of a bin's g/kWh; `watts` and
    `time` are the relative standard errors of the watts at full speed and of the time of the work at full speed,
    `parked` that of the watts parked."""

    spread: Callable[[float], float]
    watts: float
    time: float
    parked: float = 0.0


class HalfWidths(NamedTuple):
    """Half the width of each 80 % band, in grams."""

    moved_g: float
    parked_g: float
    unloaded_g: float
    capped_g: float
    event_g: float
    rest_g: float
    shifting_g: float
    avoided_g: float


@dataclass(frozen=True, slots=True)
class Split:
    """Grams. The six parts add up to `avoided_g`, which is `run_now_g - emitted_g`. `halves` is None where no doubt
    was told."""

    run_now_g: float
    emitted_g: float
    moved_g: float
    parked_g: float
    unloaded_g: float
    capped_g: float
    event_g: float
    rest_g: float
    halves: HalfWidths | None = None

    @property
    def avoided_g(self) -> float:
        return self.run_now_g - self.emitted_g

    @property
    def shifting_g(self) -> float:
        """Avoided by shifting in time: the work moved, less the energy of waiting."""
        return self.moved_g + self.parked_g


def split_avoided(
    cells: Iterable[EnergyBin],
    spans: Sequence[StateSpan],
    steps: Sequence[tuple[float, float]],
    intensity: Callable[[float], float],
    *,
    start_s: float,
    done_s: float,
    full_w: float,
    parked_w: float | None,
    before_g: float = 0.0,
    doubt: Uncertainty | None = None,
) -> Split:
    """`intensity` gives g/kWh of a bin; `steps` are (time, steps done) as reported, rising; `full_w` and `parked_w` are
    watts at the wall. `before_g` was emitted before the rows begin (a lost journal) and counts to the rest. Where
    parked watts are not known, unloading is not separated: energy drawn meanwhile counts as parked."""
    drawn: dict[str, Kwh] = {}
    for cell in cells:
        _add(drawn.setdefault(cell.state, {}), cell.bin_s, joules_to_kwh(cell.joules))
    run_now = _kwh(full_w, [StateSpan(start_s, start_s + done_s, "")])
    flat: dict[str, Kwh] = {}
    for done in work_of(spans, steps, done_s):
        _add(flat.setdefault(done.state, {}), done.bin_s, joules_to_kwh(full_w * done.work_s))
    parked_drawn = _sum(*(drawn.get(state, {}) for state in PARKED))
    away = drawn.get("unloaded", {})
    stayed = {} if parked_w is None else _kwh(parked_w, [span for span in spans if span.state == "unloaded"])
    flat_capped, flat_event = flat.get("throttled", {}), flat.get(EVENT, {})
    kwh = {
        "moved": _less(run_now, _sum(*flat.values())),
        "parked": _less({}, _sum(parked_drawn, away if parked_w is None else stayed)),
        "unloaded": {} if parked_w is None else _less(stayed, away),
        "capped": _less(flat_capped, drawn.get("throttled", {})),
        "event": _less(flat_event, _sum(drawn.get(EVENT, {}), drawn.get(EVENT_HELD, {}))),
        "avoided": _less(run_now, _sum(*drawn.values())),
    }
    kwh["rest"] = _less(kwh["avoided"], _sum(*(kwh[part] for part in LEVERS)))
    kwh["shifting"] = _sum(kwh["moved"], kwh["parked"])

    def grams(of: Kwh) -> float:
        return math.fsum(amount * intensity(at) for at, amount in of.items())

    run_now_g, emitted = grams(run_now), before_g + grams(_sum(*drawn.values()))
    moved, parked, unloaded, capped, event = (grams(kwh[part]) for part in LEVERS)
    rest = run_now_g - emitted - math.fsum((moved, parked, unloaded, capped, event))
    found = Split(run_now_g, emitted, moved, parked, unloaded, capped, event, rest)
    if doubt is None:
        return found
    # errors of full-speed watts and time are the same wherever that work is placed; for run-now, more time means more
    # of the hours at its end
    capped_g, worked_g = grams(flat_capped), grams(_sum(*flat.values()))
    at_end_g = joules_to_kwh(full_w * done_s) * intensity(start_s + done_s) if done_s > 0 else 0.0
    event_g = grams(flat_event)
    beside_caps_g = worked_g - capped_g - event_g
    by_watts = {
        "moved": moved,
        "capped": capped_g,
        "event": event_g,
        "rest": beside_caps_g,
        "shifting": moved,
        "avoided": run_now_g,
    }
    by_time = {**by_watts, "moved": at_end_g - worked_g, "shifting": at_end_g - worked_g, "avoided": at_end_g}
    stayed_g = grams(stayed)
    halves = {}
    for part, amounts in kwh.items():
        watts, time = doubt.watts * by_watts.get(part, 0.0), doubt.time * by_time.get(part, 0.0)
        beside = doubt.parked * stayed_g if part in ("parked", "unloaded", "shifting") else 0.0
        grid = _deviation({at: amount * doubt.spread(at) for at, amount in amounts.items()})
        halves[f"{part}_g"] = BAND_SIGMAS * math.hypot(grid, watts, time, beside)
    return replace(found, halves=HalfWidths(**halves))


Kwh = dict[float, float]
"""kWh at the wall, by the start of the bin."""


def _add(table: Kwh, at: float, kwh: float) -> None:
    table[at] = table.get(at, 0.0) + kwh


def _sum(*tables: Kwh) -> Kwh:
    found: Kwh = {}
    for table in tables:
        for at, kwh in table.items():
            _add(found, at, kwh)
    return found


def _less(table: Kwh, other: Kwh) -> Kwh:
    return _sum(table, {at: -kwh for at, kwh in other.items()})


def _kwh(watts: float, spans: Iterable[StateSpan]) -> Kwh:
    """Constant watts over spans of time."""
    found: Kwh = {}
    for span in spans:
        length = span.end_s - span.start_s
        for at, share in split(span.start_s, span.end_s) if length > 0 else ():
            _add(found, at, joules_to_kwh(watts * share * length))
    return found


def _deviation(parts: Mapping[float, float]) -> float:
    """Standard deviation of a sum over bins, from the (signed) deviation that each would have alone: the errors of two
    bins fade with the time between them, as those of a forecast do."""
    total = before = 0.0
    last = -math.inf
    for at in sorted(parts):
        before *= math.exp((last - at) / ERROR_MEMORY_S)
        total += parts[at] * (parts[at] + 2.0 * before)
        before += parts[at]
        last = at
    return math.sqrt(max(0.0, total))


def work_of(spans: Sequence[StateSpan], steps: Sequence[tuple[float, float]], done_s: float) -> list[WorkBin]:
    """`done_s` of work over the times at which it was done: between two reports in proportion to the time at work.

    Without steps it is spread over all the time at work."""
    at_work = [span for span in spans if span.state in AT_WORK and span.end_s > span.start_s]
    if not at_work or done_s <= 0:
        return []
    begin, end = at_work[0].start_s, at_work[-1].end_s
    known = [(at, count) for at, count in steps if begin < at < end]
    total = max([count for _, count in steps], default=0.0)
    edges = [(begin, 0.0), *known, (end, total)] if total > 0 else [(begin, 0.0), (end, 1.0)]
    found: dict[tuple[float, str], float] = {}
    ends = [span.end_s for span in at_work]
    gaps = 0.0
    for (a, before), (b, after) in itertools.pairwise(edges):
        worth = done_s * max(0.0, after - before) / edges[-1][1]
        inside: list[StateSpan] = []
        index = bisect_right(ends, a)
        while index < len(at_work) and at_work[index].start_s < b:
            span = at_work[index]
            inside.append(StateSpan(max(a, span.start_s), min(b, span.end_s), span.state))
            index += 1
        seconds = math.fsum(span.end_s - span.start_s for span in inside)
        if seconds <= 0:
            gaps += worth  # reported in a pause: done just before it
            continue
        for span in inside:
            length = span.end_s - span.start_s
            for at, share in split(span.start_s, span.end_s) if length > 0 else ():
                key = (at, span.state)
                found[key] = found.get(key, 0.0) + (worth + gaps) * share * length / seconds
        gaps = 0.0
    told = math.fsum(found.values())
    scale = done_s / told if told > 0 else 0.0
    return [WorkBin(at, state, work * scale) for (at, state), work in sorted(found.items())]


def intensity_of(bins: Mapping[float, float], otherwise: float | None) -> Callable[[float], float]:
    """g/kWh of a bin; `otherwise` replaces unknown bins, None: the mean of the known ones.

    Raises ValueError where nothing at all is known."""
    if otherwise is None and not bins:
        raise ValueError("no intensity is known")
    stand_in = math.fsum(bins.values()) / len(bins) if otherwise is None else otherwise
    return lambda at: bins.get(math.floor(at / BIN_S) * BIN_S, stand_in)
