"""Keras 3, on every backend: its optimizers are its own, so that only fit() knows where a step ends.

It cannot be unloaded: fit() resumes at the beginning of an epoch only, and the steps of a half one would be done twice.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from carbontui.client import api
from carbontui.client.frameworks.base import Loop, quietly


def callback() -> Any:
    """A keras.callbacks.Callback that says where a step ends, and reports total, epoch and loss."""
    import keras  # type: ignore[import-not-found,unused-ignore]

    class Reporter(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
        is_carbontui = True

        def __init__(self) -> None:
            super().__init__()
            self.loop = Loop()
            self.first_epoch = 0
            self.seen = -1

        def on_train_begin(self, logs: Any = None) -> None:
            quietly(self._begin)

        def _begin(self) -> None:
            steps, epochs = self.params.get("steps"), self.params.get("epochs")
            self.loop.begin(0, steps * (epochs - self.first_epoch) if steps and epochs else None)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.seen = -1
            quietly(lambda: api.report(epoch=epoch))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            new, self.seen = batch - self.seen, batch  # more than one where steps_per_execution is
            self.loop.ended(new)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            quietly(lambda: api.report(loss=(logs or {}).get("loss"), epoch=epoch + 1))

        def on_train_end(self, logs: Any = None) -> None:
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
        mine, arguments, named = added
        try:
            return inner(*arguments, **named)
        finally:
            mine.loop.end()

    module.Model.fit = fit


def _added(inner: Any, model: Any, args: Any, kwargs: Any) -> Any:
    """The callback, and fit()'s arguments with it."""
    bound = inspect.signature(inner).bind(model, *args, **kwargs)
    given = bound.arguments.get("callbacks")
    if given is not None and not isinstance(given, (list, tuple)):
        return None  # a CallbackList of the script's own
    if any(getattr(one, "is_carbontui", False) for one in given or ()):
        return None
    mine = callback()
    mine.first_epoch = bound.arguments.get("initial_epoch", 0)
    bound.arguments["callbacks"] = [*(given or ()), mine]
    return mine, bound.args, bound.kwargs
