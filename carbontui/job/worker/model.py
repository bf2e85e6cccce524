"""How many steps a training will make, as far as its frameworks, code, loaders, schedules and bars tell.

Each source makes claims about what a rank has seen, of which work.py makes one, with the interval in which the total
lies. Runs in the supervisor, which is handed what the worker reads around each place.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from carbontui.job.worker import work
from carbontui.protocol import CodeRead, FrameworkStage, LoaderPasses, RankReport, WorkReport

FROM_STEPS = 3
"""Steps of a pass needed to see how many batches are one step."""
SURE_SHARE = 0.1
"""A loop without a loader has shown that it goes on as its code says, after this share of it."""
ANSWER_S = 10.0
"""A place that nobody has read by then may be known to other sources."""
NESTS_MAX = 300


class Passes(NamedTuple):
    """The passes over the training's data so far."""

    first: int
    """Steps done when the first began."""
    begun: int
    """Passes with steps that have begun, the present one among them."""
    here: int
    """Steps done when the present one began."""
    each: tuple[int, ...]
    """Steps of the last whole ones."""
    expected: float
    """Steps of the present one, as far as can be said."""
    period: int = 1
    """One of so many passes at that place of the code has steps."""
    changes: bool = False
    """The loader is replaced on some condition."""


class FoldMemory(msgspec.Struct, array_like=True):
    """What is remembered from one report to the next."""

    stage: str = ""
    led: str = ""
    """The stage of the last step that was one for sure."""
    stage_from: int = 0
    stages: int = 0
    own_end: int = 0
    """Steps done at the end of the present one, where nothing may end it earlier."""
    stated: tuple[int | None, int] | None = None
    """The framework's stage that was said to be the last: its place and number."""
    surprised: bool = False
    """Another one came after it."""
    last: work.FoldedWork | None = None
    gone_at: int | None = None
    """So many steps were done when what said the last total was gone."""
    of_trials: work.FoldedWork | None = None
    of_stages: work.FoldedWork | None = None


class WorkModel:
    """Of one training process."""

    def __init__(self) -> None:
        self.memory: FoldMemory | None = None
        self._sent = b""
        self._nests: dict[int, work.Nest | None] = {}
        """What is around each place; None where that could not be read."""
        self._since: dict[int, float] = {}
        """Since when the unread places have been named, on the monotonic clock."""
        self._passes: Passes | None = None
        self._now_s = 0.0

    def read(self, answer: CodeRead) -> None:
        """The worker's answer to a sighting; one that lacks a file is asked again."""
        if not answer.lacks:
            before = self._nests.pop(answer.id, None)
            self._nests[answer.id] = msgspec.json.decode(answer.nest, type=work.Nest | None) or before
        while len(self._nests) > NESTS_MAX:
            del self._nests[next(iter(self._nests))]

    def folded(self, report: RankReport, now_s: float) -> RankReport:
        """The report with the total, or a guess and its interval, and the epoch, in place of what was seen."""
        facts, steps = report.work, report.step
        if facts is None:
            return report
        if self.memory is None:
            self.memory = _memory(facts.kept)
        self._now_s, self._passes = now_s, None
        found, before = self._total(self.memory, facts, steps), facts.before
        epoch = report.epoch if report.epoch is not None or self._passes is None else self._passes.begun - 1
        report = msgspec.structs.replace(report, work=None, epoch=epoch)
        if found is None or before + max(found.likely, found.high or 0) > work.COUNT_MAX:
            return report
        if found.known:
            return msgspec.structs.replace(report, total=before + found.likely)
        told = before + found.low, None if found.high is None else before + found.high, found.at_most, found.sure
        return msgspec.structs.replace(report, guess=(before + found.likely, found.source), guess_range=told)

    def to_keep(self) -> CodeRead | None:
        """What the rank is to tell again, where that has changed."""
        if self.memory is None:
            return None
        last = self.memory.last
        if last is not None:  # a low that goes up with the steps is no news
            last = last._replace(done=0, low=last.low if last.low > last.done else 0)
        kept = msgspec.json.encode(msgspec.structs.replace(self.memory, last=last))
        if kept == self._sent:
            return None
        self._sent = kept
        return CodeRead(kept=msgspec.Raw(kept))

    def _nest(self, place: int | None) -> work.Nest | None:
        """What is around a place; None until that is answered. 0: no code of a script."""
        return self._nests.get(place) if place else work.Nest()

    def _waits(self, *named: FrameworkStage | LoaderPasses | WorkReport | None) -> bool:
        """Whether a place of these is not known yet, and may be soon."""
        places = [one.place for one in named if one is not None and one.place and one.place not in self._nests]
        return any(self._now_s - self._since.setdefault(place, self._now_s) < ANSWER_S for place in places)

    def _total(self, memory: FoldMemory, facts: WorkReport, steps: int) -> work.FoldedWork | None:
        """With the trials of a sweep that are to come; they are taken to be as long as others were."""
        trial = facts.trial
        if trial is None or trial.ended not in (None, steps):
            return self._of_stages(memory, facts, steps)
        if trial.expected is None and (found := self._of_stages(memory, facts, steps)) is not None:
            trial = msgspec.structs.replace(trial, expected=max(0, found.likely - trial.began))
        return self._staged(memory, steps, trial)

    def _of_stages(self, memory: FoldMemory, facts: WorkReport, steps: int) -> work.FoldedWork | None:
        if facts.stage is not None and facts.stage.ended in (None, steps):
            return self._staged(memory, steps, facts.stage)
        return self._of_loop(memory, facts, steps)

    def _staged(self, memory: FoldMemory, steps: int, now: FrameworkStage) -> work.FoldedWork | None:
        """By a stage of a framework or a sweep; until the code around it is read as before."""
        nest, trial = self._nest(now.place), now.times != 0
        found = work.still(memory.of_trials if trial else memory.of_stages, steps)
        if not self._waits(now):
            claim = _fits(memory, steps, nest or work.Nest(later=None), now)
            found = work.fold(steps, [] if claim is None else [claim])
        memory.of_trials, memory.of_stages = (found, memory.of_stages) if trial else (memory.of_trials, found)
        return found

    def _of_loop(self, memory: FoldMemory, facts: WorkReport, steps: int) -> work.FoldedWork | None:
        """As far as code, bars and schedules tell."""
        if facts.framework or facts.place is None:
            return None
        nest = self._nest(facts.place)
        there = work.Nest() if facts.leading is None else self._nest(facts.leading.place)
        claims: list[work.TotalClaim] = []
        if nest is not None and there is not None:
            if nest.timed:
                return None
            claims = list(self._by_code(memory, facts, nest, there, steps))
        if self._waits(facts, facts.leading):
            return work.still(memory.last, steps)
        claims += [*_by_bars(facts, self._passes, steps), *_by_schedules(facts, self._passes, steps)]
        return _standing(memory, work.fold(steps, claims), steps)

    def _by_code(
        self, memory: FoldMemory, facts: WorkReport, nest: work.Nest, there: work.Nest, steps: int
    ) -> Iterator[work.TotalClaim]:
        """From the loops around the steps, and the passes over the loader inside them."""
        counted, unsure, stream = facts.counted, facts.unsure, facts.leading
        if nest.key != memory.stage:
            own_end = memory.own_end if memory.stage_from < memory.own_end <= counted else counted
            # the last stage of a framework may have ended since
            begun = facts.ended if facts.ended > memory.stage_from or not memory.stages else own_end
            memory.stage, memory.stage_from, memory.stages = nest.key, begun, memory.stages + 1
        unsure, memory.led = unsure and memory.led in ("", nest.key), memory.led if unsure else nest.key
        depth, at = len(nest.loops), 0
        if stream is not None:
            at = len(there.loops)
            same = [one.line for one in there.loops] == [one.line for one in nest.loops[:at]] and at < depth
            if same and there.over:
                self._passes = _passes(stream, steps, nest.share, nest.loops[at].times, there.replaced)
        totals: list[work.TotalClaim] = []
        for counter in nest.counters:
            value = facts.values.get(f"{counter.module}.{counter.name}")
            if value is not None:
                totals.append(_stated(nest, counted + (counter.end - value) / counter.by, counter.text, steps))
        if self._passes is not None and (whole := work.reached(nest, at)) is not None:
            nest = nest._replace(varies=there.varies)
            totals += filter(None, [by_passes(self._passes, stream, nest, at, whole, steps)])
        limits = [bound for bound in nest.bounds if bound.to == depth and bound.of == 0]
        plain = nest._replace(bounds=tuple(one for one in nest.bounds if one not in limits))
        ways = [float(one.times) for one in limits]
        if depth and self._passes is None and (made := work.reached(plain, depth)) is not None:
            ways.append(made / nest.share)
        total = min(ways, default=None)
        if total is not None:
            text = min(limits, key=lambda one: one.times).text if limits else " x ".join(one.text for one in nest.loops)
            exact = all(one.exact for one in nest.bounds)
            claim = _stated(nest, memory.stage_from + total, text, steps)
            totals.append(claim if exact else claim._replace(low=steps, at_most=True))
        if totals:
            best = min(totals, key=lambda one: one.steps)
            memory.own_end = 0 if best.at_most or best.high is None else round(best.steps)
            if best.steps < work.ENDLESS or not best.at_most:
                tried = facts.trial is not None and facts.trial.ended is None
                if nest.more or unsure or tried or nest.later is None:
                    yield work.opened(best, steps)
                else:
                    yield work.followed(best, *nest.later)


def _memory(raw: msgspec.Raw) -> FoldMemory:
    """As the rank tells it again; anew where that is nothing of ours."""
    try:
        return msgspec.json.decode(raw, type=FoldMemory | None) or FoldMemory()
    except msgspec.DecodeError:
        return FoldMemory()


def _standing(memory: FoldMemory, total: work.FoldedWork | None, steps: int) -> work.FoldedWork | None:
    """Between two passes, and behind the last, bars and loops are over: until a step is made without them, what they
    said stands."""
    last, gone_at = memory.last, steps if memory.gone_at is None else memory.gone_at
    worse = last is not None and (total is None or total.sure < last.sure)
    stands = last is not None and worse and steps <= min(gone_at, max(last.likely, last.high or 0))
    memory.last, memory.gone_at = (last, gone_at) if stands else (total, None)
    return memory.last


def _stated(nest: work.Nest, total: float, text: str, steps: int) -> work.TotalClaim:
    at_most = nest.sometimes or any(one.at_most for one in nest.loops)
    low, high = work.about(total)
    return work.TotalClaim("code", total, text, steps if at_most else low, high, at_most, steps >= SURE_SHARE * total)


def by_passes(
    passes: Passes, stream: LoaderPasses | None, nest: work.Nest, at: int, whole: float, steps: int
) -> work.TotalClaim | None:
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
    if nest.sometimes and stream is not None:  # more of the batches may make a step
        lasts.append(max(lasts[-1], (stream.lengths[-1] or 0) / nest.share))
    low = steps if at_most else here + left * lasts[0] * (1 - work.SLACK) - 1
    high = here + left * lasts[-1] * (1 + work.SLACK) + 1
    claim = work.TotalClaim("code", total, text, low, high, at_most, True)
    if nest.varies is not None:
        rounds = work.reached(nest, nest.varies + 1)
        alike = rounds and passes.begun > whole / passes.period / rounds + 1
        if not alike or max(passes.each) - min(passes.each) > max(1, work.NEAR * max(passes.each)):
            return work.opened(claim, steps)
    return claim


def _passes(stream: LoaderPasses, steps: int, share: float, times: int | None, replaced: bool) -> Passes | None:
    """The passes of a stream, of which the code makes `times` rounds; None before anything can be said. Between those
    with steps there may be some without, of another phase, that begin at the same line."""
    marks, length = stream.marks, stream.lengths[-1]
    whole = [after - before for before, after in itertools.pairwise(marks)]
    drawn, here = stream.drawn or 0, steps - marks[-1]
    made = [one for one in whole if one > 0]
    if not made:
        if length is None or here < FROM_STEPS:
            return None
        rounds = min(length, times or length)
        each = share if share > 1 or rounds < length else max(1, round(drawn / here)) if drawn else 1
        return Passes(stream.first, 1, marks[-1], (), float(math.ceil(rounds / each)))
    at = [number for number, one in enumerate(whole) if one > 0]
    before = stream.lengths[min(at[-1], len(stream.lengths) - 1)]
    idle = here == 0 and drawn > 3 * max(1.0, (before or 0) / made[-1])
    whole += [0] * idle
    empty = len(whole) - 1 - at[-1]
    period = at[-1] - at[-2] if len(at) > 1 else empty + 1
    done = -(-(stream.begun - 1 + idle) // period)
    expected = float(made[-1])
    if period == 1 and before and length and length != before:
        expected = length * made[-1] / before
    return Passes(stream.first, done + 1, marks[-1], tuple(made), expected, period, replaced)


def _fits(memory: FoldMemory, steps: int, nest: work.Nest, now: FrameworkStage) -> work.TotalClaim | None:
    """From the last stage that was begun, and the code around its call."""
    times = work.reached(nest, len(nest.loops))
    claim = staged(now, steps, times, work.text_of(nest))
    memory.surprised = memory.surprised or memory.stated not in (None, (now.place, now.number))
    if claim is None:
        return None
    if nest.later is None or memory.surprised or claim.more or now.place is None:
        return work.opened(claim, claim.low)
    if not work.certain(nest):
        claim = claim._replace(low=min(claim.low, steps), at_most=True)
    last_one = times and now.number == times * (now.times or 1) and not nest.later[0]
    memory.stated = (now.place, now.number) if last_one else None
    return work.followed(claim, *nest.later)


def staged(now: FrameworkStage, done: int, times: float | None, text: str) -> work.TotalClaim | None:
    """What this stage and those still to come at its place are, of which the code makes `times` (None: not known) by
    the loops in `text`. More of them than that: then there may be others yet."""
    if now.expected is None:
        return None
    end = now.began + now.expected if now.ended is None else now.ended
    until = now.until if now.ended is None else ""
    each = f"{now.times} trials" if now.times else ""
    source = " x ".join(one for one in (text, each, "a fit") if one) + (f" until {now.until}" if now.until else "")
    low, left = float(done if until or (now.times != 0 and now.ended is None) else end), -1.0
    if times is not None and now.times is not None:
        left = times * (now.times or 1) - now.number
    if left < 0:
        return work.TotalClaim("framework", end, source, low, more=True)
    made, least, most, whole = now.sizes
    few, apart = made < 2, not now.until and least < (1 - work.NEAR) * most
    if now.until or not made:
        made, least, most, whole = 0, now.expected, now.expected, 0
    least, most, each_ = min(least, now.expected), max(most, now.expected), (whole + now.expected) / (made + 1)
    total = end + left * each_
    if now.times != 0 and (few or apart or done > work.about(end)[1]):
        return work.TotalClaim("framework", total, source, float(done), more=True)
    if now.until and (left or until):
        return work.TotalClaim("framework", total, source, low, total, at_most=True, sure=True)
    if now.times and now.ended is None:  # nobody has stated its length
        end, left = now.began, left + 1
    if not left:
        return work.TotalClaim("framework", end, source, end, end, sure=True)
    if not made:  # the next may be of another length
        return work.TotalClaim("framework", total, source, end)
    low, high = end + left * least * (1 - work.SLACK) - 1, end + left * most * (1 + work.SLACK) + 1
    return work.TotalClaim("framework", total, source, low, high, sure=True)


def _by_bars(facts: WorkReport, passes: Passes | None, steps: int) -> Iterator[work.TotalClaim]:
    """From progress bars that advance with the steps, or with the passes; one of a single pass is restarted."""
    passes = _shown(passes)
    for (source, done, total), (_, inside, each) in itertools.permutations(facts.bars, 2):
        if done > 0 and abs(done * each + inside - steps) <= max(2, each // 10):
            yield work.TotalClaim("bar", float(total * each), f"{source} x {each:g}", *work.about(total * each))
    for source, done, total in facts.bars:
        if passes is not None and abs(done - (passes.begun - 1)) <= 1 and passes.begun > 1:
            yield work.TotalClaim("bar", passes.here + (total - passes.begun + 1) * passes.expected, source, steps)
        elif abs(done - steps) <= max(2, steps // 10) and not _one_pass(facts, passes, total):
            yield work.TotalClaim("bar", float(total), source, steps)


def _by_schedules(facts: WorkReport, passes: Passes | None, steps: int) -> Iterator[work.TotalClaim]:
    """From learning rate schedules that advance with the steps, or with the passes."""
    passes = _shown(passes)
    for source, done, told in facts.schedules:
        if abs(done - steps) <= max(2, steps // 20) and not _one_pass(facts, passes, told):
            yield work.TotalClaim("schedule", float(told), source, steps)
        elif passes is not None and passes.begun > 1 and done == passes.begun - 1:
            yield work.TotalClaim("schedule", passes.here + (told - done) * passes.expected, source, steps)


def _shown(passes: Passes | None) -> Passes | None:
    return passes if passes is not None and passes.expected > 0 else None


def _one_pass(facts: WorkReport, passes: Passes | None, total: float) -> bool:
    """Whether this many steps, or batches, are one pass over a loader."""
    return total in facts.lengths or (passes is not None and abs(total - passes.expected) <= 1 and passes.first == 0)
