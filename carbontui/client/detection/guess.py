"""How many steps a training will make, as far as its frameworks, code, loaders, settings, schedules and bars tell.

Each source makes claims, of which work.py makes one, with the interval in which the total lies. Runs in the link's
thread, never in the training's, and never reads the variables of a running function: that would keep its tensors
alive.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from carbontui.client.detection import places, sight, work
from carbontui.client.detection.places import Chain, Stream, key_of, watch

FROM_STEPS = 3
"""Steps needed to see whether a schedule or a progress bar advances with the steps."""
SURE_SHARE = 0.1
"""A loop without a loader has shown that it goes on as its code says, after this share of it."""
SOURCE_MAX = 120
ANSWER_S = 10.0
"""A place that nobody has read by then may be known to other sources."""
NESTS_MAX = 100


class Passes(NamedTuple):
    """The passes over the training's data so far."""

    first: int
    """Steps done when the first began."""
    begun: int
    """Passes with steps that have begun, the present one among them."""
    here: int
    """Steps done when the present one began."""
    each: Tuple[int, ...]
    """Steps of the last whole ones."""
    expected: float
    """Steps of the present one, as far as can be said."""
    period: int = 1
    """One of so many passes at that place of the code has steps."""
    changes: bool = False
    """The loader is replaced on some condition."""


class CodeAround:
    """What the source says of a place, as soon as that has been read."""

    def __init__(self, chain: Chain, fits: bool, steps: int) -> None:
        self.chain, self.fits, self.steps, self.since = chain, fits, steps, time.monotonic()
        self.nest: Optional[work.Nest] = None
        self.number: Optional[int] = 0
        """Of its sighting; 0 of one that is to be sent, None once it is answered."""
        self.lacks: Tuple[str, ...] = ()


class Detector:
    """Remembers between looks what is costly to find."""

    def __init__(self) -> None:
        self.stage = ""
        self.led = ""
        """The stage of the last step that was one for sure."""
        self.stage_from = 0
        self.stages = 0
        self.own_end = 0
        """Steps done at the end of the present one, where nothing may end it earlier."""
        self.clocked = False
        """A clock ends one of the loops."""
        self.passes: Optional[Passes] = None
        self.stated: Any = None
        """The framework's stage that was said to be the last."""
        self.surprised = False
        """Another one came after it."""
        self.staged_last: Dict[bool, Optional[work.FoldedWork]] = {}
        """Of a sweep's trials, and of other stages."""
        self._last: Optional[work.FoldedWork] = None
        self._gone_at: Optional[int] = None
        """So many steps were done when what said the last total was gone."""
        self._places: Dict[Any, CodeAround] = {}
        self._number = 0

    def total(self, steps: int, *, framework: bool = False) -> Optional[work.FoldedWork]:
        """The total steps as far as anything tells; None without a clue. `steps` are done so far, those at hand by a
        `framework`."""
        if watch.stages or watch.trials:
            from carbontui.client.detection import stated

            return stated.total(self, steps, framework)
        return self.of_loop(steps, framework)

    def of_loop(self, steps: int, framework: bool = False) -> Optional[work.FoldedWork]:
        """As far as code, bars and schedules tell."""
        if framework or steps < FROM_STEPS or watch.observe is None:
            return None
        claims: List[work.TotalClaim] = []
        sources = [self._code]
        if places.schedules or places.displays or "tqdm.std" in sys.modules:
            with watch.unforked:
                from carbontui.client.detection import stated

            sources += [functools.partial(one, self) for one in (stated.by_bars, stated.by_schedules)]
        for source in sources:
            try:
                claims += source(steps)
            except Exception:  # a script's objects may raise anything
                continue
        if self.clocked:
            return None
        if self.waits():
            return work.still(self._last, steps)
        return self._standing(work.fold(steps, claims), steps)

    def _standing(self, total: Optional[work.FoldedWork], steps: int) -> Optional[work.FoldedWork]:
        """Between two passes, and behind the last, bars and loops are over: until a step is made without them, what
        they said stands."""
        last, gone_at = self._last, steps if self._gone_at is None else self._gone_at
        worse = last is not None and (total is None or total.sure < last.sure)
        stands = last is not None and worse and steps <= min(gone_at, max(last.likely, last.high or 0))
        self._last, self._gone_at = (last, gone_at) if stands else (total, None)
        return self._last

    def _code(self, steps: int) -> Iterator[work.TotalClaim]:
        """From the loops around the steps, and the passes over the loader inside them."""
        assert watch.observe is not None
        counted, chain, values, unsure = watch.observe
        stream = watch.leading
        nest, there = self.nest(chain, steps), work.Nest() if stream is None else self.nest(stream.at, steps)
        if nest is None or there is None:
            return
        self.clocked = nest.timed
        if nest.key != self.stage:
            ends = (one.ended or one.began for one in (*watch.stages, *watch.trials))
            before = max((end for end in ends if end < counted), default=0)  # the last may have ended since
            own_end = self.own_end if self.stage_from < self.own_end <= counted else counted
            begun = before if before > self.stage_from or not self.stages else own_end
            self.stage, self.stage_from, self.stages = nest.key, begun, self.stages + 1
        unsure, self.led = unsure and self.led in ("", nest.key), self.led if unsure else nest.key
        known = values if [one.name for one in nest.counters] == [name for _, name in watch.globals] else ()
        spaces = {place.module: place.space for place in chain}
        watch.globals = tuple((spaces[one.module], one.name) for one in nest.counters)
        self.passes = None
        depth, at = len(nest.loops), 0
        if stream is not None:
            at = len(there.loops)
            same = [one.line for one in there.loops] == [one.line for one in nest.loops[:at]] and at < depth
            if same and there.over:
                self.passes = _passes(stream, steps, nest.share, nest.loops[at].times, there.replaced)
        totals: List[work.TotalClaim] = []
        for counter, value in zip(nest.counters, known):
            if type(value) is int:
                total = counted + (counter.end - value) / counter.by
                totals.append(self._stated(nest, total, counter.text, steps))
        if self.passes is not None and (whole := work.reached(nest, at)) is not None:
            by_passes = self._by_passes(nest, at, whole, steps)
            totals += [by_passes] if by_passes is not None else []
        limits = [bound for bound in nest.bounds if bound.to == depth and bound.of == 0]
        plain = nest._replace(bounds=tuple(one for one in nest.bounds if one not in limits))
        ways = [float(one.times) for one in limits]
        if depth and self.passes is None and (made := work.reached(plain, depth)) is not None:
            ways.append(made / nest.share)
        total_ = min(ways, default=None)
        if total_ is not None:
            text = min(limits, key=lambda one: one.times).text if limits else " x ".join(one.text for one in nest.loops)
            exact = all(one.exact for one in nest.bounds)
            claim = self._stated(nest, self.stage_from + total_, text, steps)
            totals.append(claim if exact else claim._replace(low=steps, at_most=True))
        if totals:
            best = min(totals, key=lambda one: one.steps)
            self.own_end = 0 if best.at_most or best.high is None else round(best.steps)
            if best.steps < work.ENDLESS or not best.at_most:
                tried = bool(watch.trials) and watch.trials[-1].ended is None
                if nest.more or unsure or tried or nest.later is None:
                    yield work.opened(best, steps)
                else:
                    yield work.followed(best, *nest.later)

    def nest(self, chain: Chain, steps: int, *, fits: bool = False) -> Optional[work.Nest]:
        """What is around a place; asked again when half as many steps more are done. None until that is answered."""
        key = (fits, *key_of(chain))
        one = self._places.get(key)
        if one is None:
            if len(self._places) >= NESTS_MAX:
                self._places.clear()
            one = self._places[key] = CodeAround(chain, fits, steps)
        elif one.number is None and steps > one.steps * 1.5 + 10:
            one.number, one.steps = 0, steps
        return one.nest

    def waits(self) -> bool:
        """Whether a place is not known yet, and may be soon."""
        unread = (one for one in self._places.values() if one.nest is None and one.number is not None)
        return any(time.monotonic() - one.since < ANSWER_S for one in unread)

    def sighting(self) -> Optional[Dict[str, Any]]:
        """What to send next: of a place that is to be read."""
        for one in list(self._places.values()):
            if one.number == 0:
                place = sight.sighting(one.chain, one.fits, one.lacks)
                if place is not None:
                    one.number = self._number = self._number + 1
                    return {"id": one.number, "place": place}
                one.number, one.nest = None, work.Nest()
        return None

    def unsent(self) -> None:
        """Nobody will answer any more."""
        for one in list(self._places.values()):
            one.number = one.number and 0

    def read(self, number: int, nest: Any, lacks: Tuple[str, ...]) -> None:
        """The answer to a sighting."""
        for one in (one for one in list(self._places.values()) if one.number == number):
            again = bool(lacks and not one.lacks)
            one.number, one.lacks = 0 if again else None, lacks
            one.nest = one.nest if nest is None else work.nest_of(nest)

    def _stated(self, nest: work.Nest, total: float, text: str, steps: int) -> work.TotalClaim:
        at_most = nest.sometimes or any(one.at_most for one in nest.loops)
        low, high = work.about(total)
        return work.TotalClaim(
            "code", total, text, steps if at_most else low, high, at_most, steps >= SURE_SHARE * total
        )

    def _by_passes(self, nest: work.Nest, at: int, whole: float, steps: int) -> Optional[work.TotalClaim]:
        passes = self.passes
        assert passes is not None
        left = whole / passes.period - (passes.begun - 1)
        if left < 0.5 and steps > passes.here:
            return None  # more passes than the code says
        lasts = sorted(one for one in (*passes.each[-4:], passes.expected) if one > 0)
        here = float(passes.here)
        steady = len(lasts) and lasts[-1] - lasts[0] <= max(1, work.NEAR * lasts[-1])
        recent = passes.expected if not passes.each or not steady else sum(passes.each[-4:]) / len(passes.each[-4:])
        total = here + left * recent
        at_most = any(one.at_most for one in nest.loops[:at]) or passes.changes
        text = " x ".join([*(one.text for one in nest.loops[:at] if one.text), "a pass"])
        if not passes.each or not (steady or passes.changes):
            return work.TotalClaim("code", total, text, steps, None, more=bool(passes.each))
        if nest.sometimes and watch.leading is not None:  # more of the batches may make a step
            lasts.append(max(lasts[-1], (watch.leading.length or 0) / nest.share))
        low = steps if at_most else here + left * lasts[0] * (1 - work.SLACK) - 1
        return work.TotalClaim("code", total, text, low, here + left * lasts[-1] * (1 + work.SLACK) + 1, at_most, True)


def _passes(stream: Stream, steps: int, share: float, times: Optional[int], replaced: bool) -> Optional[Passes]:
    """The passes of a stream, of which the code makes `times` rounds; None before anything can be said. Between those
    with steps there may be some without, of another phase, that begin at the same line."""
    marks, lengths = list(stream.marks), list(stream.lengths)
    whole = [after - before for before, after in zip(marks, marks[1:])]
    drawn, here = stream.drawn or 0, steps - marks[-1]
    made = [one for one in whole if one > 0]
    if not made:
        if stream.length is None or here < FROM_STEPS:
            return None
        rounds = min(stream.length, times or stream.length)
        each = share if share > 1 or rounds < stream.length else max(1, round(drawn / here)) if drawn else 1
        return Passes(stream.first, 1, marks[-1], (), float(math.ceil(rounds / each)))
    at = [number for number, one in enumerate(whole) if one > 0]
    before = lengths[at[-1]]
    idle = here == 0 and drawn > 3 * max(1.0, (before or 0) / made[-1])
    whole += [0] * idle
    empty = len(whole) - 1 - at[-1]
    period = at[-1] - at[-2] if len(at) > 1 else empty + 1
    done = -(-(stream.begun - 1 + idle) // period)
    expected = float(made[-1])
    if period == 1 and before and stream.length and stream.length != before:
        expected = stream.length * made[-1] / before
    return Passes(stream.first, done + 1, marks[-1], tuple(made), expected, period, replaced)


detector = Detector()


def epoch() -> Optional[int]:
    """The present pass over the training's data, from 0, as the last `total` saw it; None where none is seen."""
    return None if detector.passes is None else detector.passes.begun - 1
