"""What others than a loop's code state of the total: frameworks, by the trainings that they make in one call, sweeps by
their trials, progress bars and schedules. A loop without any of them loads nothing of this."""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from carbontui.client.detection import places, work
from carbontui.client.detection.places import Chain, key_of, watch
from carbontui.client.readonly import attributes, is_number, name_of, of_class


class Stage(NamedTuple):
    """A training that a framework makes in one call, as it states it: fit(), train()."""

    at: Tuple[Any, ...]
    """The place of the code that calls it."""
    began: int
    """Steps done when it began."""
    expected: Optional[int]
    """Steps from there to its end."""
    until: str = ""
    """What may end it earlier; '' for nothing."""
    number: int = 1
    """How many were begun at its place, itself among them."""
    ended: Optional[int] = None
    """Steps done at its end; None while it is under way."""
    chain: Any = ()
    """The frames that call it."""
    times: Optional[int] = 0
    """Of a sweep's trial: how many its library makes in one call, None for no number; 0 for another stage."""


def begins(expected: Optional[int], until: str, at: Chain) -> None:
    """In the training thread: a framework begins to train."""
    key = key_of(at)
    watch.numbers[key] = number = watch.numbers.get(key, 0) + 1
    watch.stages.append(Stage(key, watch.count(), expected, until, number, chain=at))


def ends(*, failed: bool = False) -> None:
    """It is over; one that has `failed` is tried again."""
    now = watch.stages.pop()
    if failed:
        watch.numbers[now.at] = now.number - 1
    else:
        watch.stages.append(now._replace(ended=watch.count()))


def trial_begins(times: Optional[int], until: str, at: Chain) -> None:
    """In the training thread: a sweep begins a trial, as long as the longest so far; the one before it is over."""
    trial_ends()
    sizes = [one.ended - one.began for one in watch.trials if one.at == key_of(at) and one.ended is not None]
    begins(max(sizes, default=None), until, at)
    watch.trials.append(watch.stages.pop()._replace(times=times))


def trial_ends() -> None:
    if watch.trials and watch.trials[-1].ended is None:
        watch.trials[-1] = watch.trials[-1]._replace(ended=watch.count())


def total(detector: Any, steps: int, framework: bool) -> Optional[work.FoldedWork]:
    """The total, with the trials of a sweep that are to come; they are taken to be as long as others were."""
    trial = watch.trials[-1] if watch.trials else None
    if trial is None or trial.ended not in (None, steps):
        return _of_stages(detector, steps, framework)
    if trial.expected is None and (found := _of_stages(detector, steps, framework)) is not None:
        trial = trial._replace(expected=found.likely - trial.began)
    return _staged(detector, steps, [*watch.trials[:-1], trial])


def _of_stages(detector: Any, steps: int, framework: bool) -> Optional[work.FoldedWork]:
    stage = watch.stages[-1] if watch.stages else None
    if stage is not None and (stage.ended is None or steps == stage.ended):
        detector.passes = None
        return _staged(detector, steps, list(watch.stages))
    return detector.of_loop(steps, framework)  # type: ignore[no-any-return]


def _staged(detector: Any, steps: int, stages: List[Stage]) -> Optional[work.FoldedWork]:
    """By these stages, of a framework or a sweep; until the code around the last is read as before."""
    nest, trial = detector.nest(stages[-1].chain, steps, fits=True), stages[-1].times != 0
    if detector.waits():
        return work.still(detector.staged_last.get(trial), steps)
    claim = _fits(detector, steps, nest or work.Nest(later=None), stages)
    detector.staged_last[trial] = work.fold(steps, [] if claim is None else [claim])
    return detector.staged_last[trial]  # type: ignore[no-any-return]


def _fits(detector: Any, steps: int, nest: work.Nest, every: List[Stage]) -> Optional[work.TotalClaim]:
    """From the stages that were begun, and the code around the call of the last."""
    now = every[-1]
    times = work.reached(nest, len(nest.loops))
    claim = staged(every, steps, times, work.text_of(nest))
    detector.surprised = detector.surprised or detector.stated not in (None, (now.at, now.number))
    if claim is None:
        return None
    if nest.later is None or detector.surprised or claim.more or not now.chain:
        return work.opened(claim, claim.low)
    if not work.certain(nest):
        claim = claim._replace(low=min(claim.low, steps), at_most=True)
    last_one = times and now.number == times * (now.times or 1) and not nest.later[0]
    detector.stated = (now.at, now.number) if last_one else None
    return work.followed(claim, *nest.later)


def staged(stages: Sequence[Stage], done: int, times: Optional[float], text: str) -> Optional[work.TotalClaim]:
    """What the last of these stages and those still to come at its place are, of which the code makes `times` (None:
    not known) by the loops in `text`. More of them than that: then there may be others yet."""
    now = stages[-1]
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
    sizes = [one.ended - one.began for one in stages if one.at == now.at and one.ended is not None]
    few, apart = len(sizes) < 2, not now.until and min(sizes, default=0) < (1 - work.NEAR) * max(sizes, default=0)
    sizes = [now.expected] if now.until else [*sizes, now.expected]
    total = end + left * sum(sizes) / len(sizes)
    if now.times != 0 and (few or apart or done > work.about(end)[1]):
        return work.TotalClaim("framework", total, source, float(done), more=True)
    if now.until and (left or until):
        return work.TotalClaim("framework", total, source, low, total, at_most=True, sure=True)
    if now.times and now.ended is None:  # nobody has stated its length
        end, left = now.began, left + 1
    if not left:
        return work.TotalClaim("framework", end, source, end, end, sure=True)
    if len(sizes) == 1:  # the next may be of another length
        return work.TotalClaim("framework", total, source, end)
    low, high = end + left * min(sizes) * (1 - work.SLACK) - 1, end + left * max(sizes) * (1 + work.SLACK) + 1
    return work.TotalClaim("framework", total, source, low, high, sure=True)


def by_bars(detector: Any, steps: int) -> Iterator[work.TotalClaim]:
    """From progress bars that advance with the steps, or with the passes; one of a single pass is restarted."""
    tqdm = attributes(sys.modules.get("tqdm.std")).get("tqdm")
    bars = of_class(tqdm, "_instances") if issubclass(type(tqdm), type) else None
    bars = map(attributes, list(bars) if type(bars) is weakref.WeakSet else ())
    found = [(one.get("n"), one.get("total"), "tqdm(total=)") for one in bars]
    for ref in list(places.displays):
        tasks = map(attributes, list(dict.values(attributes(ref()).get("_tasks", {}))))
        found += [(one.get("completed"), one.get("total"), "rich's progress") for one in tasks]
    passes = _shown_passes(detector)
    found = [one for one in found if is_number(one[0]) and is_number(one[1]) and one[1] > 1]
    for (done, total, source), (inside, each, _) in itertools.permutations(found, 2):
        if done > 0 and abs(done * each + inside - steps) <= max(2, each // 10):
            yield work.TotalClaim("bar", float(total * each), f"{source} x {each:g}", *work.about(total * each))
    for done, total, source in found:
        if passes is not None and abs(done - (passes.begun - 1)) <= 1 and passes.begun > 1:
            yield work.TotalClaim("bar", passes.here + (total - passes.begun + 1) * passes.expected, source, steps)
        elif abs(done - steps) <= max(2, steps // 10) and not _one_pass(detector, total):
            yield work.TotalClaim("bar", float(total), source, steps)


def by_schedules(detector: Any, steps: int) -> Iterator[work.TotalClaim]:
    """From learning rate schedules that advance with the steps, or with the passes."""
    passes = _shown_passes(detector)
    for ref in list(places.schedules):
        schedule = ref()
        for name, told in _ends(schedule) if schedule is not None else ():
            source, done = f"{name_of(type(schedule))}({name}=)", attributes(schedule)["last_epoch"]
            if abs(done - steps) <= max(2, steps // 20) and not _one_pass(detector, told):
                yield work.TotalClaim("schedule", float(told), source, steps)
            elif passes is not None and passes.begun > 1 and done == passes.begun - 1:
                yield work.TotalClaim("schedule", passes.here + (told - done) * passes.expected, source, steps)


def _shown_passes(detector: Any) -> Any:
    return detector.passes if detector.passes is not None and detector.passes.expected > 0 else None


def _one_pass(detector: Any, total: float) -> bool:
    """Whether this many steps, or batches, are one pass over a loader."""
    passes = _shown_passes(detector)
    lengths = {stream.length for stream in watch.streams.values()}
    return total in lengths or (passes is not None and abs(total - passes.expected) <= 1 and passes.first == 0)


def _ends(schedule: Any) -> List[Tuple[str, int]]:
    """The last steps that a schedule names, by the names."""
    own_, last_step = attributes(schedule), "num_training_steps"
    named = [(name, own_.get(name)) for name in ("total_steps", "T_max")]
    chosen = [one for one in list.__iter__(own_.get("lr_lambdas", [])) if type(one) is functools.partial]
    named += [(last_step, one.keywords.get(last_step)) for one in chosen]
    return [one for one in named if type(one[1]) is type(own_["last_epoch"]) is int and 1 < one[1] < work.COUNT_MAX]
