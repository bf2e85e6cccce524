"""What others than a loop's code state of the total: frameworks, by the trainings that they make in one call, sweeps by
their trials, progress bars and schedules. A loop without any of them loads nothing of this."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from carbontui.client.detection import places
from carbontui.client.detection.places import Chain, key_of, watch
from carbontui.client.readonly import COUNT_MAX, attributes, count_of, is_number, name_of, of_class

UNTIL_MAX = 120


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


def reported(reporter: Any, steps: int) -> Dict[str, Any]:
    """What is seen of frameworks, sweeps, bars and schedules, as fields of carbontui.protocol.WorkReport."""
    found: Dict[str, Any] = {}
    for name, source in (("bars", bars), ("schedules", ends_of_schedules)):
        with contextlib.suppress(Exception):  # a script's objects may raise anything
            found[name] = [one for one in source() if all(0 <= number < COUNT_MAX for number in one[1:])]
    counted_at = watch.observe[0] if watch.observe is not None else 0
    every = [*watch.stages, *watch.trials]
    found["ended"] = max((end for end in (one.ended or one.began for one in every) if end < counted_at), default=0)
    for name, stages in (("stage", list(watch.stages)), ("trial", list(watch.trials))):
        if stages:
            now = stages[-1]
            at_hand = now.chain and now.ended in (None, steps)
            found[name] = last_of(stages, reporter.around(now.chain, steps, fits=True).number if at_hand else None)
    return found


def last_of(stages: List[Stage], place: Optional[int]) -> Tuple[Any, ...]:
    """The last stage, as a carbontui.protocol.FrameworkStage."""
    now = stages[-1]
    sizes = [one.ended - one.began for one in stages if one.at == now.at and one.ended is not None]
    sized = len(sizes), min(sizes, default=0), max(sizes, default=0), sum(sizes)
    until = now.until[:UNTIL_MAX]
    return place, now.began, count_of(now.expected), until, now.number, now.ended, count_of(now.times), sized


def bars() -> Iterator[Tuple[str, float, float]]:
    """Progress bars: source, how far it is, its total."""
    tqdm = attributes(sys.modules.get("tqdm.std")).get("tqdm")
    every = of_class(tqdm, "_instances") if issubclass(type(tqdm), type) else None
    shown = map(attributes, list(every) if type(every) is weakref.WeakSet else ())
    found = [("tqdm(total=)", one.get("n"), one.get("total")) for one in shown]
    for ref in list(places.displays):
        tasks = map(attributes, list(dict.values(attributes(ref()).get("_tasks", {}))))
        found += [("rich's progress", one.get("completed"), one.get("total")) for one in tasks]
    return (one for one in found if is_number(one[1]) and is_number(one[2]) and one[2] > 1)


def ends_of_schedules() -> Iterator[Tuple[str, int, int]]:
    """Learning rate schedules: source, how far it is, the last step that it names."""
    for ref in list(places.schedules):
        schedule = ref()
        for name, end in _ends(schedule) if schedule is not None else ():
            yield f"{name_of(type(schedule))}({name}=)", attributes(schedule)["last_epoch"], end


def _ends(schedule: Any) -> List[Tuple[str, int]]:
    """The last steps that a schedule names, by the names."""
    own_, last_step = attributes(schedule), "num_training_steps"
    named = [(name, own_.get(name)) for name in ("total_steps", "T_max")]
    chosen = [one for one in list.__iter__(own_.get("lr_lambdas", [])) if type(one) is functools.partial]
    named += [(last_step, one.keywords.get(last_step)) for one in chosen]
    return [one for one in named if type(one[1]) is type(own_["last_epoch"]) is int and 1 < one[1] < COUNT_MAX]
