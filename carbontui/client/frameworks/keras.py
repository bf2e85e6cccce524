"""Keras 3, on every backend: it has its own optimizers, so that only fit() knows where a step ends.

fit() itself resumes only at the start of an epoch. Unloading therefore saves its complete state, and the next start of
the command draws the epoch's data again and skips the batches already done. The order of an epoch's data follows from
the random states at its start, if it comes from arrays or a plain DataLoader; everything else is in variables of the
model, in Keras' own callbacks and in the present random states.
"""

import inspect
import os
import sys
import types
from typing import Any, Dict, Iterator, List, Optional, Sequence

from carbontui.client import api, marker
from carbontui.client.checkpoint import plain, random_states, set_random_states
from carbontui.client.checkpoint.identity import in_job_directory
from carbontui.client.frameworks.base import Loop, left_behind, mine, quietly, replaces, stopper

_entering: Any = None
"""The callback whose fit() begins an epoch: the next data iterated over is its training data."""
BACKENDS = ("torch", "jax")
"""Not tensorflow, which draws the order of its data from states that cannot be set."""
CALLBACKS = (
    "EarlyStopping",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "TensorBoard",
    "TerminateOnNaN",
)
"""Keras callbacks whose state is in their attributes; where a script's own callback keeps its state is unknown."""


def can_be_kept(callbacks: Sequence[Any]) -> bool:
    """Whether the state of a fit() with these callbacks is completely known."""
    import keras  # type: ignore[import-not-found,unused-ignore]

    if keras.backend.backend() not in BACKENDS or os.environ.get("WORLD_SIZE", "1") != "1":
        return False
    own = [getattr(keras.callbacks, name, None) for name in CALLBACKS]
    return all(any(type(one) is kind for kind in own) or mine([one]) for one in callbacks)


def is_exact(data: Any) -> bool:
    """Whether the same random states give the epoch's data in the same order again."""
    if data.steps_per_epoch is not None or not data.num_batches:
        return False  # one pass over the data spans several epochs, or has no known end
    adapter = data.data_adapter
    if type(adapter).__name__ == "ArrayDataAdapter":
        return True
    loader = getattr(adapter, "_dataloader", None)
    if type(adapter).__name__ != "TorchDataLoaderAdapter" or loader is None or loader.generator is not None:
        return False
    plain = type(loader.sampler).__name__ in ("RandomSampler", "SequentialSampler")
    return plain and getattr(loader.sampler, "generator", None) is None


class Fit:
    """One running fit(); `left` is the state left by an earlier start, until it is restored."""

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self.callbacks = callbacks
        self.left: Optional[Dict[str, Any]] = None
        self.model: Any = None
        self.epoch = self.batch = 0
        """Position: `batch` batches of `epoch` are done."""
        self._begun: Any = None
        """The random states when the epoch's data began."""

    def begin(self, model: Any, epochs: Optional[int]) -> None:
        """on_train_begin: a training unloaded after its last epoch has none to resume in."""
        self.model = model
        if self.left is not None and epochs is not None and self.left["epoch"] >= epochs:
            self._bring_back()

    def batches(self, rest: Iterator[Any]) -> Iterator[Any]:
        """The batches of this epoch, without those already done."""
        if self.left is None:
            self._begun = random_states()
            return rest
        self._begun = self.left["begun"]
        set_random_states(self._begun)
        return self._after(rest, self.left["batch"])

    def _after(self, rest: Iterator[Any], done: int) -> Iterator[Any]:
        if not done:
            self._bring_back()
        for first, last, data in rest:
            if first >= done:
                yield first, last, data
                continue
            for _ in range(first, last + 1):
                next(data)
            if last + 1 >= done:
                self._bring_back()

    def save(self) -> str:
        """Write the complete state; returns the path."""
        now, step = random_states(), api.gate.step_total()
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        kept = {
            "step": step,
            "epoch": self.epoch,
            "batch": self.batch,
            "begun": self._begun if self.batch else now,
            "states": now,
            "variables": [variable.numpy() for variable in all_variables(self.model)],
            "callbacks": [plain_values(vars(one)) for one in self.callbacks],
            "history": plain_values(vars(self.model.history)),
        }
        path = in_job_directory(f"keras-{step}.pickle")
        marker.write_atomic(path, plain.dumps(kept))
        return path

    def _bring_back(self) -> None:
        """Restore everything. Raises ValueError if this is another model."""
        left, self.left = self.left or {}, None
        variables = all_variables(self.model)
        there = [tuple(variable.shape) for variable in variables]
        if there != [value.shape for value in left["variables"]] or len(self.callbacks) != len(left["callbacks"]):
            raise ValueError("carbontui: the checkpoint of the unload is of another model or other callbacks")
        for variable, value in zip(variables, left["variables"]):
            variable.assign(value)
        for one, remembered in zip([*self.callbacks, self.model.history], [*left["callbacks"], left["history"]]):
            vars(one).update(remembered)
        set_random_states(left["states"])


def all_variables(model: Any) -> List[Any]:
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    return [*model.variables, *optimizer.variables, *model.metrics_variables]


def plain_values(attributes: Dict[str, Any]) -> Dict[str, Any]:
    """The state of a callback: numbers, texts, arrays and its Keras comparison function (chosen once, together with
    the sign of min_delta); not the model and its functions."""
    return {name: value for name, value in attributes.items() if name not in ("params", "_params") and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, types.FunctionType):
        return value.__module__.startswith("keras.") and value.__qualname__.isidentifier()
    return value is None or isinstance(value, (bool, int, float, str)) or type(value).__module__ == "numpy"


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
            self.fit: Optional[Fit] = None

        def on_train_begin(self, logs: Any = None) -> None:
            quietly(lambda: _begin(self))
            if self.fit is not None:
                self.fit.begin(self.model, self.params.get("epochs"))

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            global _entering
            if self.fit is not None:
                self.fit.epoch, self.fit.batch = epoch, 0
            self.loop.ended(0)
            self.last_batch = -1
            quietly(lambda: api.report(epoch=epoch))
            _entering = self

        def batches(self, data: Any, rest: Iterator[Any]) -> Iterator[Any]:
            """The batches of the epoch that begins, of `data`, an EpochIterator of Keras."""
            if self.fit is None:
                return rest
            if quietly(lambda: is_exact(data)):
                self.loop.saves_with(self.fit.save, "keras")
            if self.fit.left is not None:  # the batches that are passed over have been counted in an earlier life
                self.last_batch = self.fit.left["batch"] - 1
            return self.fit.batches(rest)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.loop.due += batch - self.last_batch  # more than one where steps_per_execution is
            self.last_batch = batch
            if self.fit is not None:
                self.fit.batch = batch + 1
            if batch + 1 != self.params.get("steps"):  # the end of an epoch belongs to its last step
                self.loop.ended(0)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            quietly(lambda: api.report(loss=(logs or {}).get("loss"), epoch=epoch + 1))

        def on_train_end(self, logs: Any = None) -> None:
            self.loop.no_more_unloads()
            self.loop.ended(0)
            self.loop.end()

    return Reporter()


def _begin(reporter: Any) -> None:
    steps, epochs = reporter.params.get("steps"), reporter.params.get("epochs")
    done = reporter.fit.left["step"] if reporter.fit is not None and reporter.fit.left else 0
    reporter.loop.begin(done, steps * (epochs - reporter.first_epoch) if steps and epochs else None)


def install(module: Any) -> None:
    """keras.src.models.model has been imported: fit() of a model adds the callback."""

    @replaces(module.Model, "fit")
    def fit(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        added = quietly(lambda: _added(inner, self, args, kwargs))
        if added is None:
            return inner(self, *args, **kwargs)
        reporter, bound = added
        left = left_behind("keras") if reporter.fit is not None else None
        if left is not None:
            with open(left, "rb") as file:
                reporter.fit.left = plain.loads(file.read())
            bound.arguments["initial_epoch"] = reporter.fit.left["epoch"]
        try:
            return inner(*bound.args, **bound.kwargs)
        finally:
            reporter.loop.end()

    data = sys.modules.get("keras.src.trainers.epoch_iterator")
    if data is not None:
        quietly(lambda: _watch(data.EpochIterator))  # type: ignore[union-attr,unused-ignore]


def _watch(iterator: Any) -> None:
    """The beginning of an epoch's data, after on_epoch_begin of every callback and before the first batch."""

    @replaces(iterator, "_enumerate_iterator")
    def enumerate_batches(inner: Any, self: Any) -> Any:
        global _entering
        reporter, _entering = _entering, None
        return inner(self) if reporter is None else reporter.batches(self, inner(self))


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
    reporter.loop.until = stopper((*(given or ()), model), "stop_training", "keras.", "EarlyStopping")
    reporter.first_epoch = bound.arguments.get("initial_epoch", 0)
    if can_be_kept(given or ()):
        reporter.fit = Fit([one for one in given or () if one is not reporter])
    return reporter, bound
