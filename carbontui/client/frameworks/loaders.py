"""The position of an ordinary DataLoader within its epoch, for a framework that does not save it.

The order of an epoch follows from the random states when its iterator was made and when its sampler drew the first
index. With those states set again the same order is drawn; the batches done are read once more and passed over.
"""

import math
import sys
from typing import Any, Dict, Iterator, Optional

from carbontui.client.checkpoint import random_states, set_random_states
from carbontui.client.frameworks.base import quietly, replaces
from carbontui.client.readonly import length_of

SAMPLERS = ("RandomSampler", "SequentialSampler", "DistributedSampler")
"""Of torch: all that their order follows from is known."""
_coming_back: Dict[int, Dict[str, Any]] = {}
"""Positions by the id of the loader that is to begin there."""


def follow() -> None:
    """From now on every DataLoader keeps how its epoch began. Does nothing a second time."""
    data = sys.modules["torch"].utils.data
    if hasattr(data.RandomSampler.__iter__, "__wrapped__"):
        return

    @replaces(data.DataLoader, "__iter__")
    def begin(inner: Any, self: Any) -> Any:
        left = _coming_back.pop(id(self), None)
        if left is None:
            self._carbontui_began = quietly(lambda: _states(self))
            return inner(self)
        return _rest(inner, self, left)

    @replaces(data.RandomSampler, "__iter__")
    def order(inner: Any, self: Any) -> Iterator[Any]:
        if hasattr(self, "_carbontui_again"):
            _set(self, self._carbontui_again)
            del self._carbontui_again
        self._carbontui_drew = quietly(lambda: _states(self))
        yield from inner(self)


def position(loader: Any, batches: int) -> Optional[Dict[str, Any]]:
    """How the epoch of a loader began of which so many batches are done; None where its order follows from more."""
    plain = type(loader).__name__ == "DataLoader" and type(loader.batch_sampler).__name__ == "BatchSampler"
    began = getattr(loader, "_carbontui_began", None)
    if not plain or began is None or type(loader.sampler).__name__ not in SAMPLERS:
        return None
    drew = getattr(loader.sampler, "_carbontui_drew", None)
    return {"began": began, "drew": drew, "batches": batches, "now": _states(loader)}


def go_on(loader: Any, left: Dict[str, Any]) -> None:
    """The next epoch of this loader is the one of a `position`, from there on."""
    _coming_back[id(loader)] = left


def _rest(inner: Any, loader: Any, left: Dict[str, Any]) -> Any:
    if left["batches"] >= (length_of(loader) or math.inf):  # the epoch was over: the next one begins
        _set(loader, left["now"])
        loader._carbontui_began = quietly(lambda: _states(loader))
        return inner(loader)
    _set(loader, left["began"])
    loader._carbontui_began = left["began"]
    if left["drew"] is not None:
        loader.sampler._carbontui_again = left["drew"]
    return _passed(inner(loader), loader, left)


def _passed(batches: Iterator[Any], loader: Any, left: Dict[str, Any]) -> Iterator[Any]:
    for _ in range(left["batches"]):
        next(batches)
    _set(loader, left["now"])
    yield from batches


def _states(owner: Any) -> Dict[str, Any]:
    """Of a loader or a sampler: the random states, its own generator's too."""
    own = getattr(owner, "generator", None)
    return random_states() if own is None else {**random_states(), "generator": own.get_state()}


def _set(owner: Any, states: Dict[str, Any]) -> None:
    set_random_states(states)
    if "generator" in states:
        owner.generator.set_state(states["generator"])
