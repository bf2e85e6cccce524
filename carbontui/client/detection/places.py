"""Where in the code the training thread is: its frames' code and instructions, never their variables.

A variable of a running function must not be read: that would keep its tensors alive. Code, line, instruction and a
module's own namespace are safe to hold. Everything here is cheap, and is thought about elsewhere, in the link's thread.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import weakref
from collections import deque
from types import CodeType
from typing import Any, Callable, ContextManager, Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

from carbontui.client.readonly import after, attributes, length_of, listen, text

FRAMES_MAX = 60
MARKS_MAX = 64
STREAMS_MAX = 32
MADE_MAX = 256
SAMPLES = 10
OURS = __file__.rpartition("/detection/")[0]


schedules: Deque[Callable[[], Any]] = deque(maxlen=MARKS_MAX)
displays: Deque[Callable[[], Any]] = deque(maxlen=MARKS_MAX)


class Place(NamedTuple):
    """A frame that is running."""

    code: CodeType
    line: int
    space: Dict[str, Any]
    """The namespace of its module."""
    instruction: int
    """Offset of the one at work in the code: with it a place is known where several are on one line."""

    @property
    def module(self) -> str:
        """The name of its module."""
        return text(dict.get(self.space, "__name__"))


Chain = Tuple[Place, ...]
"""The frames of a thread, the innermost first, without ours."""


@functools.lru_cache(maxsize=1024)
def column_of(code: CodeType, instruction: int) -> Optional[int]:
    """Where in its line an instruction, or the cache behind it, has its expression; None before Python 3.11."""
    spans: Iterator[Any] = iter(getattr(code, "co_positions", tuple)())
    return next(itertools.islice(spans, instruction // 2, None), (None,) * 4)[2]


def key_of(chain: Chain) -> Tuple[Any, ...]:
    return tuple((place.code, place.line, column_of(place.code, place.instruction)) for place in chain)


def chain() -> Chain:
    """Of the calling thread."""
    found: List[Place] = []
    frame = sys._getframe(1)
    while frame is not None and len(found) < FRAMES_MAX:
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            found.append(Place(code, frame.f_lineno, frame.f_globals, frame.f_lasti))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


class Stream:
    """The passes that begin at one place of the code, over one loader or several that follow each other."""

    def __init__(self, at: Chain) -> None:
        self.at = at
        self.begun = 0
        """Passes begun."""
        self.marks: Deque[int] = deque(maxlen=MARKS_MAX)
        """The steps done when each of the last passes began."""
        self.lengths: Deque[Optional[int]] = deque(maxlen=MARKS_MAX)
        """Batches of the loader of each, where that is known."""
        self.first = 0
        """The steps done when the first one began."""
        self.iterator: Callable[[], Any] = lambda: None
        self.loader: Callable[[], Any] = lambda: None

    def measure(self) -> None:
        """A sampler may be told its data's length only when the pass has begun."""
        if (found := length_of(self.loader(), promised=True)) is not None:
            self.lengths[-1] = found

    @property
    def drawn(self) -> Optional[int]:
        """Batches taken in the present pass; None where the iterator does not tell."""
        drawn = attributes(self.iterator()).get("_num_yielded")
        return drawn if type(drawn) is int else None

    @property
    def at_work(self) -> bool:
        """Whether its present pass has begun and is not over."""
        drawn = self.drawn or 0
        return drawn > 0 and (self.length is None or drawn < self.length or self.length <= 2)

    def left(self, steps: int) -> Optional[Tuple[int, int]]:
        """After so many steps, those to the end of the present pass, and of a whole one. None where a pass is over
        between two steps, or nothing can be said yet."""
        drawn, length, here = self.drawn or 0, self.length, steps - self.marks[-1]
        # steps and batches: of the last whole pass, else of this one
        made, of = (self.marks[-1] - self.marks[-2], self.lengths[-2]) if len(self.marks) > 1 else (here, drawn)
        if not length or not drawn or not of or made < 1:
            return None
        share = max(1, round(of / made))
        whole = length // share
        if length % share or drawn < here * share:
            return None
        return 0 if here >= whole and drawn == length else max(1, whole - here), whole

    @property
    def length(self) -> Optional[int]:
        return self.lengths[-1] if self.lengths else None


class Watch:
    """What the training thread leaves for the link's. `count` gives the steps done."""

    def __init__(self) -> None:
        self.count: Callable[[], int] = lambda: 0
        self.unforked: ContextManager[Any] = contextlib.nullcontext()
        """No fork comes meanwhile: a child could wait for ever for a module that this thread was loading."""
        self.streams: Dict[Tuple[Any, ...], Stream] = {}
        self.observe: Optional[Tuple[int, Chain, Dict[str, Any], bool]] = None
        """The last step looked at: its number, its place, the values of `globals` then, and whether it was unsure."""
        self.aside = False
        """The boundary at hand is no step: another optimizer's."""
        self.unsure: Callable[[], bool] = lambda: False
        """Whether the last step is another optimizer's, which may turn out to be no step."""
        self.resumed = False
        """An optimizer has been given an earlier one's state."""
        self.leading: Any = None
        """The Stream of passes in which the steps are made: at work when one ends, the innermost of several."""
        self.made: Deque[Tuple[Place, Callable[[], Any], Optional[int]]] = deque(maxlen=MADE_MAX)
        """The last loaders made, where, and their batches then."""
        self.stages: Deque[Any] = deque(maxlen=MARKS_MAX)
        """The last trainings of frameworks, each a Stage (stated.py); one without an end is under way."""
        self.trials: List[Any] = []
        """Those of sweeps, in which other stages are."""
        self.numbers: Dict[Any, int] = {}
        """How many of them were begun at a place."""
        self.globals: Dict[str, Tuple[Dict[str, Any], str]] = {}
        """Names of modules that count something, to be read at the next look."""
        self._samples = deque([""] * SAMPLES, SAMPLES)
        """What the training did at each of the last."""

    def restart(self) -> None:
        """Forget what was made so far: the steps are counted anew."""
        unsure, stages = self.unsure, [one._replace(began=0) for one in self.stages if one.ended is None]
        self.__init__()  # type: ignore[misc]
        self.unsure = unsure
        self.stages.extend(stages)

    def stepped(self, count: int) -> None:
        """In the training thread, about once a second: a step has just been counted."""
        if self.aside:
            return
        with contextlib.suppress(Exception):
            for one in list(self.streams.values()):
                one.measure()
            at_work = [one for one in list(self.streams.values()) if one.at_work]
            if at_work and not (self.leading in at_work and self.leading.marks[-1] >= at_work[-1].marks[-1]):
                self.leading = max(at_work, key=lambda one: one.marks[-1])
            values = {named: dict.get(space, name) for named, (space, name) in self.globals.items()}
            self.observe = count, chain(), values, self.unsure()

    def doing(self) -> Optional[str]:
        """In the link's thread, about once a second: "evaluates" twice in a row, "loads" more than half of the last
        ten, or None; by the names of files and functions in which the main thread is and does not step."""
        if self.observe is None:
            return None
        stepping, found = {id(place.code) for place in self.observe[1]}, ""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        while frame is not None:
            code, frame = frame.f_code, frame.f_back
            if id(code) not in stepping:
                if code.co_name.lstrip("_").startswith(("eval", "valid", "test")):
                    found = "evaluates"
                elif not found and "/torch/utils/data/" in code.co_filename:
                    found = "loads"
        self._samples.append(found)
        again = found if found == self._samples[-2] == "evaluates" else None
        return "loads" if 2 * self._samples.count("loads") > SAMPLES else again

    def loader_made(self, loader: Any) -> None:
        """In the training thread: a loader has been made."""
        self.made.append((chain()[0], weakref.ref(loader), length_of(loader)))

    def passed(self, loader: Any, iterator: Any) -> None:
        """In the training thread: a pass over a loader begins."""
        at, steps = chain(), self.count()
        key = key_of(at)
        stream = self.streams.get(key)
        if stream is None:
            if len(self.streams) >= STREAMS_MAX:
                return
            stream = self.streams[key] = Stream(at)
            stream.first = steps
        if stream.marks and steps == stream.marks[-1] and stream.drawn == 0:
            return  # zip() begins several at once: the first one's passes are counted
        stream.begun += 1
        stream.marks.append(steps)
        stream.lengths.append(length_of(loader, promised=True))
        stream.iterator, stream.loader = weakref.ref(iterator), weakref.ref(loader)


watch = Watch()


def on_schedules(module: Any) -> None:
    """torch.optim.lr_scheduler has been imported: its objects are remembered, weakly."""
    _remember(getattr(module, "LRScheduler", None) or module._LRScheduler, schedules)


def on_rich(module: Any) -> None:
    """rich.progress has been imported."""
    _remember(module.Progress, displays)


def on_loaders(module: Any) -> None:
    """torch.utils.data.dataloader has been imported: its loaders are noted, and the passes over them as they begin."""
    listen(module)
    after(module.DataLoader, "__init__", lambda _, self, *args, **kwargs: watch.loader_made(self))
    after(module.DataLoader, "__iter__", lambda iterator, self: watch.passed(self, iterator))


def _remember(kind: Any, into: Deque[Callable[[], Any]]) -> None:
    after(kind, "__init__", lambda _, self, *args, **kwargs: into.append(weakref.ref(self)))
