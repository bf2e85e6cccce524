"""Keras 3, on every backend: it has its own optimizers, so that only fit() knows where a step ends.

fit() itself resumes only at the start of an epoch. Unloading therefore saves its complete state (keras_fit.py), and
the next start of the command draws the epoch's data again and skips the batches already done.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Iterator, Optional

from carbontui.client import api
from carbontui.client.frameworks import keras_fit
from carbontui.client.frameworks.base import Loop, left_behind, mine, quietly

_entering: Any = None
"""The callback whose fit() begins an epoch: the next data iterated over is its training data."""


def callback() -> Any:
    """A keras.callbacks.Callback that reports the end of each step, total, epoch and loss."""
    import keras  # type: ignore[import-not-found,unused-ignore]

    class Reporter(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
        is_carbontui = True

        def __init__(self) -> None:
            super().__init__()
            self.loop = Loop()
            self.first_epoch = 0
            self.last_batch = -1
            self.due = 0
            """Steps that have ended, except for work at the end of their epoch."""
            self.fit: Optional[keras_fit.Fit] = None

        def on_train_begin(self, logs: Any = None) -> None:
            quietly(self._begin)
            if self.fit is not None:
                self.fit.begin(self.model, self.params.get("epochs"))

        def _begin(self) -> None:
            steps, epochs = self.params.get("steps"), self.params.get("epochs")
            done = self.fit.left["step"] if self.fit is not None and self.fit.left else 0
            self.loop.begin(done, steps * (epochs - self.first_epoch) if steps and epochs else None)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            global _entering
            if self.fit is not None:
                self.fit.epoch, self.fit.batch = epoch, 0
            self._settle()
            self.last_batch = -1
            quietly(lambda: api.report(epoch=epoch))
            _entering = self

        def batches(self, data: Any, rest: Iterator[Any]) -> Iterator[Any]:
            """The batches of the epoch that begins, of `data`, an EpochIterator of Keras."""
            if self.fit is None:
                return rest
            if quietly(lambda: keras_fit.is_exact(data)):
                self.loop.saves_with(self.fit.save, "keras")
            if self.fit.left is not None:  # the batches that are passed over have been counted in an earlier life
                self.last_batch = self.fit.left["batch"] - 1
            return self.fit.batches(rest)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.due += batch - self.last_batch  # more than one where steps_per_execution is
            self.last_batch = batch
            if self.fit is not None:
                self.fit.batch = batch + 1
            if batch + 1 != self.params.get("steps"):  # the end of an epoch belongs to its last step
                self._settle()

        def _settle(self) -> None:
            due, self.due = self.due, 0
            self.loop.ended(due)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            quietly(lambda: api.report(loss=(logs or {}).get("loss"), epoch=epoch + 1))

        def on_train_end(self, logs: Any = None) -> None:
            self.loop.stays()
            self._settle()
            self.loop.end()

    return Reporter()


def install(module: Any) -> None:
    """keras.src.models.model has been imported: fit() of a model adds the callback."""
    inner = module.Model.fit

    @functools.wraps(inner)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        added = quietly(lambda: _added(inner, self, args, kwargs))
        if added is None:
            return inner(self, *args, **kwargs)
        reporter, bound = added
        left = left_behind("keras") if reporter.fit is not None else None
        if left is not None:
            reporter.fit.left = keras_fit.load(left)
            bound.arguments["initial_epoch"] = reporter.fit.left["epoch"]
        try:
            return inner(*bound.args, **bound.kwargs)
        finally:
            reporter.loop.end()

    module.Model.fit = fit
    data = sys.modules.get("keras.src.trainers.epoch_iterator")
    if data is not None:
        quietly(lambda: _watch(data.EpochIterator))  # type: ignore[union-attr,unused-ignore]


def _watch(iterator: Any) -> None:
    """The beginning of an epoch's data, after on_epoch_begin of every callback and before the first batch."""
    inner = iterator._enumerate_iterator

    @functools.wraps(inner)
    def _enumerate_iterator(self: Any) -> Any:
        global _entering
        reporter, _entering = _entering, None
        return inner(self) if reporter is None else reporter.batches(self, inner(self))

    iterator._enumerate_iterator = _enumerate_iterator


def _added(inner: Any, model: Any, args: Any, kwargs: Any) -> Any:
    """The callback, and fit()'s arguments with it."""
    bound = inspect.signature(inner).bind(model, *args, **kwargs)
    given = bound.arguments.get("callbacks")
    if given is not None and not isinstance(given, (list, tuple)):
        return None  # a CallbackList of the script's own
    reporter = mine(given)
    if reporter is None:
        reporter = callback()
        bound.arguments["callbacks"] = [*(given or ()), reporter]
    reporter.first_epoch = bound.arguments.get("initial_epoch", 0)
    if keras_fit.can_be_kept(given or ()):
        reporter.fit = keras_fit.Fit([one for one in given or () if one is not reporter])
    return reporter, bound
