"""How many steps a training will make, as far as its code, loaders, settings, schedules and bars tell.

Each source makes a claim; `combine`, a pure function, makes one guess of them, with the interval in which the total
lies. Runs in the link's thread, never in the training's, and never reads the variables of a running function: that
would keep its tensors alive.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from carbontui.client.detection import ahead, loops, settings, stages
from carbontui.client.detection.conditions import ENDLESS
from carbontui.client.detection.made import displays, schedules
from carbontui.client.detection.places import Chain, Stream, key_of, watch
from carbontui.client.detection.values import Reader

STEPS = (
    *("max_iters", "max_iter", "max_steps", "total_steps", "num_iters", "n_iters", "num_iterations", "iterations"),
    *("total_iters", "train_iters", "num_training_steps", "num_train_steps", "max_train_steps", "train_steps"),
    *("max_update", "max_updates", "train_num_steps"),
)
"""Names that scripts use for the total steps of a run. Not n_steps and num_steps: those of a rollout."""
EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "max_epoch", "num_train_epochs", "total_epochs")
OBJECTS = ("args", "config", "cfg", "conf", "opt", "options", "hparams", "params", "FLAGS")
FROM_STEPS = 3
"""Steps needed to see whether a schedule or a progress bar advances with the steps."""
NEAR = 0.02
"""Totals that differ by less are the same."""
SLACK = 0.01
"""A total that the code states may be off by this much, and by one: loops end a step early or late."""
SURE_SHARE = 0.1
"""A loop without a loader has shown that it goes on as its code says, after this share of it."""
COUNT_MAX = 2**53
SOURCE_MAX = 120
NESTS_MAX = 100


class TotalClaim(NamedTuple):
    """What one source says. `low` and `high` bound the total, high None for no limit."""

    kind: str
    """code, schedule, bar or name: claims of two kinds are independent."""
    steps: float
    source: str
    low: float = 0.0
    high: Optional[float] = None
    at_most: bool = False
    sure: bool = False
    """Borne out by a whole pass, or a good part of the loop."""
    more: bool = False
    """There may be more than this, whatever agrees with it."""


class FoundTotal(NamedTuple):
    steps: int
    source: str
    low: int
    high: Optional[int]
    at_most: bool
    sure: bool
    """Good enough to plan with."""


def combine(steps: int, claims: Sequence[TotalClaim]) -> Optional[FoundTotal]:
    """One guess of all claims, the first of them the best, after `steps`. None if none can hold."""
    holding = [one for one in claims if _holds(one, steps)]
    if not holding:
        return None
    best = holding[0]
    agreeing = [
        one for one in holding[1:] if one.kind != best.kind and abs(one.steps - best.steps) <= NEAR * best.steps
    ]
    if best.kind == "code":  # what the code says comes from the settings: the same source
        agreeing = [one for one in agreeing if one.kind != "name"]
    source = " and ".join(dict.fromkeys(one.source for one in [best, *agreeing[:1]]))
    low, high = best.low, best.high
    if agreeing and high is None and not best.more:
        low, high = _around(best.steps)
    most = max(steps, round(best.steps))
    if best.at_most and high is None:
        high = most
    low_steps = min(max(steps, math.floor(low)), most)
    sure = high is not None and (best.sure or bool(agreeing))
    return FoundTotal(most, source, low_steps, None if high is None else max(most, math.ceil(high)), best.at_most, sure)


def _holds(claim: TotalClaim, steps: int) -> bool:
    most = claim.steps if claim.high is None else claim.high
    return 1 < claim.steps < COUNT_MAX and steps <= max(most, _around(claim.steps)[1])


def _around(steps: float) -> Tuple[float, float]:
    return steps * (1 - SLACK) - 1, steps * (1 + SLACK) + 1


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


class Around(NamedTuple):
    """What is around a place of the code."""

    nest: loops.Nest
    timed: bool
    """A clock ends one of the loops."""
    later: Optional[Tuple[float, str]]
    """Steps of the stages behind, and what says so; None where the code does not tell."""


class Detector:
    """Remembers between looks what is costly to find, and which sources have been wrong."""

    def __init__(self) -> None:
        self.wrong: Set[Tuple[str, str]] = set()
        self.stage: Tuple[Any, ...] = ()
        self.led: Tuple[Any, ...] = ()
        """The stage of the last step that was one for sure."""
        self.stage_from = 0
        self.stages = 0
        self.clocked = False
        """A clock ends one of the loops."""
        self.passes: Optional[Passes] = None
        self._last: Optional[FoundTotal] = None
        self._gone_at: Optional[int] = None
        """So many steps were done when what said the last total was gone."""
        self._nests: Dict[Any, Tuple[Around, int]] = {}
        """By place, and after how many steps that was found."""

    def total(self, steps: int) -> Optional[FoundTotal]:
        """The total steps as far as anything tells; None without a clue. `steps` are done so far."""
        if steps < FROM_STEPS or watch.observe is None:
            return None
        claims: List[TotalClaim] = []
        for source in (self._code, self._bars, self._schedules, self._names):
            try:
                claims += source(steps)
            except Exception:  # a script's objects may raise anything
                continue
        if self.clocked:
            return None
        self.wrong |= {(one.kind, one.source) for one in claims if one.kind != "code" and not _holds(one, steps)}
        found = combine(steps, [one for one in claims if (one.kind, one.source) not in self.wrong])
        return self._standing(found, steps)

    def _standing(self, total: Optional[FoundTotal], steps: int) -> Optional[FoundTotal]:
        """Between two passes, and behind the last, bars and loops are over: until a step is made without them, what
        they said stands."""
        last = self._last
        if last is None or (total is not None and total.sure >= last.sure):
            self._last, self._gone_at = total, None
            return total
        if self._gone_at is None:
            self._gone_at = steps
        if steps > min(self._gone_at, max(last.steps, last.high or 0)):
            self._last, self._gone_at = total, None
        return self._last

    def _code(self, steps: int) -> Iterator[TotalClaim]:
        """From the loops around the steps, and the passes over the loader inside them."""
        assert watch.observe is not None
        counted, chain, values, unsure = watch.observe
        stream = watch.leading
        length = stream.length if stream is not None else None
        nest, self.clocked, later = self._nest(chain, length, steps)
        if nest.key != self.stage:
            self.stage, self.stage_from, self.stages = nest.key, counted if self.stages else 0, self.stages + 1
        unsure, self.led = unsure and self.led == nest.key, self.led if unsure else nest.key
        known = values if [one.name for one in nest.counters] == [name for _, name in watch.globals] else ()
        watch.globals = tuple((one.space, one.name) for one in nest.counters)
        self.passes = None
        depth, at = len(nest.loops), 0
        if stream is not None:
            around = self._nest(stream.at, length, steps)[0]
            at = len(around.loops)
            same = [one.line for one in around.loops] == [one.line for one in nest.loops[:at]] and at < depth
            self.passes = _passes(stream, steps, nest.share) if same and ahead.over(stream.at) else None
        totals: List[TotalClaim] = []
        for counter, value in zip(nest.counters, known):
            if isinstance(value, int):
                total = counted + (counter.end - value) / counter.by
                totals.append(self._stated(nest, total, counter.text, steps, nest.loops))
        if self.passes is not None and (whole := loops.reached(nest, at)) is not None:
            by_passes = self._by_passes(nest, at, whole, steps)
            totals += [by_passes] if by_passes is not None else []
        limits = [bound for bound in nest.bounds if bound.to == depth and bound.of == 0]
        plain = nest._replace(bounds=tuple(one for one in nest.bounds if one not in limits))
        ways = [float(one.times) for one in limits]
        if depth and self.passes is None and (made := loops.reached(plain, depth)) is not None:
            ways.append(made / nest.share)
        total_ = min(ways, default=None)
        if total_ is not None:
            text = min(limits, key=lambda one: one.times).text if limits else " x ".join(one.text for one in nest.loops)
            exact = all(one.exact for one in nest.bounds)
            claim = self._stated(nest, self.stage_from + total_, text, steps, nest.loops)
            totals.append(claim if exact else claim._replace(low=steps, at_most=True))
        if totals:
            best = min(totals, key=lambda one: one.steps)
            if best.steps < ENDLESS or not best.at_most:
                if nest.more or unsure or later is None:
                    yield best._replace(high=None, sure=False, at_most=False, more=True, low=steps)
                else:
                    yield _with(best, *later)

    def _nest(self, chain: Chain, length: Optional[int], steps: int) -> Around:
        """What is around a place; thought about again when half as many steps more are done."""
        key = (length, *key_of(chain))
        known = self._nests.get(key)
        if known is None or steps > known[1] * 1.5 + 10:
            if len(self._nests) >= NESTS_MAX:
                self._nests.clear()
            nest = loops.nest(chain, Reader(length))
            later = stages.steps_of(nest.ahead, Reader())
            known = self._nests[key] = Around(nest, ahead.timed(chain), later), steps
        return known[0]

    def _stated(
        self, nest: loops.Nest, total: float, text: str, steps: int, around: Sequence[loops.LoopAround]
    ) -> TotalClaim:
        at_most = nest.sometimes or any(one.at_most for one in around)
        low, high = _around(total)
        return TotalClaim("code", total, text, steps if at_most else low, high, at_most, steps >= SURE_SHARE * total)

    def _by_passes(self, nest: loops.Nest, at: int, whole: float, steps: int) -> Optional[TotalClaim]:
        passes = self.passes
        assert passes is not None
        left = whole / passes.period - (passes.begun - 1)
        if left < 0.5 and steps > passes.here:
            return None  # more passes than the code says
        lasts = sorted(one for one in (*passes.each[-4:], passes.expected) if one > 0)
        here = float(passes.here)
        steady = len(lasts) and lasts[-1] - lasts[0] <= max(1, NEAR * lasts[-1])
        recent = passes.expected if not passes.each or not steady else sum(passes.each[-4:]) / len(passes.each[-4:])
        total = here + left * recent
        at_most = any(one.at_most for one in nest.loops[:at]) or passes.changes
        text = " x ".join([*(one.text for one in nest.loops[:at] if one.text), "a pass"])
        if not passes.each or not (steady or passes.changes):
            return TotalClaim("code", total, text, steps, None, more=bool(passes.each))
        low = steps if at_most else here + left * lasts[0] * (1 - SLACK) - 1
        return TotalClaim("code", total, text, low, here + left * lasts[-1] * (1 + SLACK) + 1, at_most, True)

    def _bars(self, steps: int) -> Iterator[TotalClaim]:
        """From progress bars that advance with the steps, or with the passes; one of a single pass is restarted."""
        tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
        found = [(one.n, one.total, "tqdm(total=)") for one in list(getattr(tqdm, "_instances", ()))]
        for ref in displays:
            display = ref()
            tasks = display.tasks if display is not None else ()
            found += [(one.completed, one.total, "rich's progress") for one in tasks]
        passes = self._shown_passes()
        found = [one for one in found if isinstance(one[1], (int, float)) and one[1] > 1]
        for (done, total, source), (inside, each, _) in itertools.permutations(found, 2):
            if done > 0 and abs(done * each + inside - steps) <= max(2, each // 10):
                yield TotalClaim("bar", float(total * each), f"{source} x {each:g}", *_around(total * each))
        for done, total, source in found:
            if passes is not None and abs(done - (passes.begun - 1)) <= 1 and passes.begun > 1:
                yield TotalClaim("bar", passes.here + (total - passes.begun + 1) * passes.expected, source, steps)
            elif abs(done - steps) <= max(2, steps // 10) and not self._one_pass(total):
                yield TotalClaim("bar", float(total), source, steps)

    def _schedules(self, steps: int) -> Iterator[TotalClaim]:
        """From learning rate schedules that advance with the steps, or with the passes."""
        passes = self._shown_passes()
        for ref in schedules:
            schedule = ref()
            for name, told in _ends(schedule) if schedule is not None else ():
                source, done = f"{type(schedule).__name__}({name}=)", int(schedule.last_epoch)
                if abs(done - steps) <= max(2, steps // 20) and not self._one_pass(told):
                    yield TotalClaim("schedule", float(told), source, steps)
                elif passes is not None and passes.begun > 1 and done == passes.begun - 1:
                    yield TotalClaim("schedule", passes.here + (told - done) * passes.expected, source, steps)

    def _names(self, steps: int) -> Iterator[TotalClaim]:
        """From what the script's settings call its steps or epochs."""
        for source, value in _settings(STEPS):
            if not self._one_pass(value):
                yield TotalClaim("name", float(value), source, steps)
        passes = self._shown_passes()
        if passes is not None:
            for source, value in _settings(EPOCHS):
                yield TotalClaim(
                    "name", passes.here + (value - passes.begun + 1) * passes.expected, f"{source} x a pass", steps
                )

    def _shown_passes(self) -> Optional[Passes]:
        return self.passes if self.passes is not None and self.passes.expected > 0 else None

    def _one_pass(self, total: float) -> bool:
        """Whether this many steps, or batches, are one pass over a loader."""
        passes = self._shown_passes()
        lengths = {stream.length for stream in watch.streams.values()}
        return total in lengths or (passes is not None and abs(total - passes.expected) <= 1 and passes.first == 0)


def _with(claim: TotalClaim, later: float, text: str) -> TotalClaim:
    """The claim with the steps of later stages."""
    if not later:
        return claim
    low, high = _around(later)
    most = None if claim.high is None else claim.high + high
    return claim._replace(steps=claim.steps + later, source=f"{claim.source} + {text}", low=claim.low + low, high=most)


def _passes(stream: Stream, steps: int, share: int) -> Optional[Passes]:
    """The passes of a stream; None before anything can be said. Between those with steps there may be some without, of
    another phase, that begin at the same line."""
    marks, lengths = list(stream.marks), list(stream.lengths)
    whole = [after - before for before, after in zip(marks, marks[1:])]
    drawn, here = getattr(stream.iterator(), "_num_yielded", 0), steps - marks[-1]
    made = [one for one in whole if one > 0]
    if not made:
        if stream.length is None or here < FROM_STEPS:
            return None
        each = share if share > 1 else max(1, round(drawn / here)) if drawn else 1
        return Passes(stream.first, 1, marks[-1], (), float(math.ceil(stream.length / each)))
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
    return Passes(stream.first, done + 1, marks[-1], tuple(made), expected, period, ahead.replaced(stream.at))


def _ends(schedule: Any) -> Iterator[Tuple[str, int]]:
    for name in ("total_steps", "T_max"):
        told: Any = vars(schedule).get(name)
        if _count(told):
            yield name, int(told)
    for chosen in getattr(schedule, "lr_lambdas", ()):
        told = getattr(chosen, "keywords", {}).get("num_training_steps")
        if _count(told):
            yield "num_training_steps", int(told)


def _settings(names: Sequence[str]) -> Iterator[Tuple[str, int]]:
    """Counts of these names among the script's top-level variables, its settings objects, and what parsers made."""
    main = vars(sys.modules["__main__"])
    for where in ("", *OBJECTS):
        held = main.get(where) if where else main
        space = held if isinstance(held, dict) else getattr(held, "__dict__", None)
        if isinstance(space, dict):
            for name in names:
                told: Any = dict.get(space, name)
                if _count(told):
                    yield (f"{where}.{name}" if where else name), int(told)
    for path, value in settings.leaves():
        if path[-1].lower() in names and _count(value):
            yield ".".join(path), int(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 < value < COUNT_MAX


detector = Detector()


def epoch() -> Optional[int]:
    """The present pass over the training's data, from 0, as the last `total` saw it; None where none is seen."""
    return None if detector.passes is None else detector.passes.begun - 1
