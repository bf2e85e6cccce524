"""Saves and restores the complete state of a Keras fit() at one batch of one epoch.

The order of an epoch's data follows from the random states at its start, if it comes from arrays or a plain
DataLoader; everything else is in variables of the model, in Keras' own callbacks and in the present random states.
"""

from __future__ import annotations

import os
import pickle
import types
from typing import Any, Dict, Iterator, List, Optional, Sequence

from carbontui.client import api, marker
from carbontui.client.checkpoint import random_states, set_random_states
from carbontui.client.frameworks.base import in_job_directory

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
    return all(type(one) in own or getattr(one, "is_carbontui", False) for one in callbacks)


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


def load(path: str) -> Dict[str, Any]:
    """What `Fit.save` wrote. Raises OSError, or what pickle raises."""
    with open(path, "rb") as file:
        kept: Dict[str, Any] = pickle.load(file)
    return kept


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
        marker.write_atomic(path, pickle.dumps(kept))
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
