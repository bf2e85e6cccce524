"""What each of carbontui's means gave: the avoided grams of one job, split without a rest that nobody explains.

Run-now does the same work flat out from the start. Between it and what was emitted stand, in this order:

- moved: the same work, flat out, at the times when it was really done;
- parked: what was drawn while the work stood still, with the model in memory (negative). While the job was unloaded it
  counts as if it had been parked;
- unloaded: what was not drawn because the boards were let go, against staying parked;
- capped: the work done under a cap (or a duty cycle), flat out, less what was really drawn for it;
- rest: starting, switching and reloading, and the watts flat out of each moment beside their mean.

Each is a difference of two of these lines, so they add up to the avoided grams whatever the numbers are.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from carbontui.account.accounts import BIN_S, split
from carbontui.units import joules_to_kwh

AT_WORK = frozenset({"running", "throttled", "pausing"})
"""States in which steps are made."""
PARKED = frozenset({"paused", "waiting"})


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


class Worked(NamedTuple):
    """Reference-speed seconds of work done in one bin, in one state."""

    bin_s: float
    state: str
    work_s: float


@dataclass(frozen=True, slots=True)
class Split:
    """Grams. The five parts add up to `avoided_g`, which is `run_now_g - emitted_g`."""

    run_now_g: float
    emitted_g: float
    moved_g: float
    parked_g: float
    unloaded_g: float
    capped_g: float
    rest_g: float

    @property
    def avoided_g(self) -> float:
        return self.run_now_g - self.emitted_g

    @property
    def shifting_g(self) -> float:
        """What shifting in time gave: the work moved, less what waiting drew."""
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
) -> Split:
    """`intensity` gives g/kWh of a bin; `steps` are (time, steps done) as reported, rising; `full_w` and `parked_w` are
    watts at the wall. `before_g` was emitted before the rows begin (a lost journal) and counts to the rest. Where
    parked watts are not known, unloading is not told apart: what was drawn meanwhile counts as parked."""
    drawn: dict[str, float] = {}
    emitted = before_g
    for cell in cells:
        grams = joules_to_kwh(cell.joules) * intensity(cell.bin_s)
        emitted += grams
        drawn[cell.state] = drawn.get(cell.state, 0.0) + grams
    run_now = _grams(full_w, [StateSpan(start_s, start_s + done_s, "")], intensity)
    flat: dict[str, float] = {}
    for done in work_of(spans, steps, done_s):
        grams = joules_to_kwh(full_w * done.work_s) * intensity(done.bin_s)
        flat[done.state] = flat.get(done.state, 0.0) + grams
    moved = run_now - math.fsum(flat.values())
    parked = -math.fsum(drawn.get(state, 0.0) for state in PARKED)
    away = drawn.get("unloaded", 0.0)
    if parked_w is None:
        parked, unloaded = parked - away, 0.0
    else:
        stayed = _grams(parked_w, [span for span in spans if span.state == "unloaded"], intensity)
        parked, unloaded = parked - stayed, stayed - away
    capped = flat.get("throttled", 0.0) - drawn.get("throttled", 0.0)
    rest = run_now - emitted - math.fsum((moved, parked, unloaded, capped))
    return Split(run_now, emitted, moved, parked, unloaded, capped, rest)


def _grams(watts: float, spans: Iterable[StateSpan], intensity: Callable[[float], float]) -> float:
    parts = []
    for span in spans:
        length = span.end_s - span.start_s
        if length > 0:
            parts += [share * length * intensity(at) for at, share in split(span.start_s, span.end_s)]
    return joules_to_kwh(watts * math.fsum(parts))


def work_of(spans: Sequence[StateSpan], steps: Sequence[tuple[float, float]], done_s: float) -> list[Worked]:
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
            gaps += worth  # told in a pause: done just before it
            continue
        for span in inside:
            length = span.end_s - span.start_s
            for at, share in split(span.start_s, span.end_s) if length > 0 else ():
                key = (at, span.state)
                found[key] = found.get(key, 0.0) + (worth + gaps) * share * length / seconds
        gaps = 0.0
    told = math.fsum(found.values())
    scale = done_s / told if told > 0 else 0.0
    return [Worked(at, state, work * scale) for (at, state), work in sorted(found.items())]


def intensity_of(bins: Mapping[float, float], otherwise: float | None) -> Callable[[float], float]:
    """g/kWh of a bin; `otherwise` stands for bins nobody knows, None: the mean of the known ones.

    Raises ValueError where nothing at all is known."""
    if otherwise is None and not bins:
        raise ValueError("no intensity is known")
    stand_in = math.fsum(bins.values()) / len(bins) if otherwise is None else otherwise
    return lambda at: bins.get(math.floor(at / BIN_S) * BIN_S, stand_in)
