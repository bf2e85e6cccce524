"""The Trainer of Lightning: a step ends at on_train_batch_end, when Lightning itself may save a checkpoint.

Unloading writes one of Lightning's own checkpoints below default_root_dir, and the next start of the command resumes
from it, not from an older ckpt_path of the script, which was meant for the first start.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Iterator, Tuple

from carbontui.client import api
from carbontui.client.frameworks.base import Loop, left_behind, mine, quietly, replaces

LOSS_EVERY = 50
"""Batches between two readings of the loss: reading it waits for the device."""
FOLDER = "carbontui"


def callback(base: Any) -> Any:
    """A Lightning callback that reports the end of each step, total, epoch and loss; `base` is the Callback class
    of the package in use. With manual optimization and several optimizers a batch is one step."""

    class Reporter(base):  # type: ignore[misc,unused-ignore]
        is_carbontui = True

        def __init__(self) -> None:
            self.loop = Loop()
            self.steps_done = 0

        def __reduce__(self) -> Any:  # a trainer that spawns its ranks (ddp_spawn) pickles its callbacks
            return callback, (base,)

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.steps_done = quietly(lambda: _steps(trainer, module)) or 0
            total = quietly(lambda: _total(trainer, module))
            self.loop.begin(self.steps_done, total)
            self.loop.saves_with(lambda: _save(trainer), "lightning", lambda: _others(trainer))

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            quietly(lambda: api.report(epoch=trainer.current_epoch))

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx % LOSS_EVERY == 0:
                quietly(lambda: api.report(loss=outputs["loss"] if isinstance(outputs, dict) else outputs))
            done = quietly(lambda: _steps(trainer, module)) or self.steps_done
            new, self.steps_done = done - self.steps_done, done
            self.loop.ended(new)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.loop.end()

    return Reporter()


def install(module: Any) -> None:
    """A Lightning trainer module has been imported: fit() adds the callback to a trainer that has none, and resumes
    from the checkpoint of an earlier unload."""
    package = module.__name__.rsplit(".trainer.", 1)[0]

    @replaces(module.Trainer, "fit")
    def fit(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(lambda: _add(self, package))
        given = kwargs.get("ckpt_path", args[4] if len(args) > 4 else None)
        left = left_behind("lightning", given)
        if left is not None:
            args, kwargs = args[:4], {**kwargs, "ckpt_path": left}
        try:
            return inner(self, *args, **kwargs)
        finally:
            reporter = mine(self.callbacks)
            if reporter is not None:
                reporter.loop.end()


def _add(trainer: Any, package: str) -> None:
    if mine(trainer.callbacks) is None:
        trainer.callbacks.append(callback(importlib.import_module(package).Callback))


def _optimizers(trainer: Any, module: Any) -> int:
    """Lightning's global_step counts the steps of every optimizer if the module steps them manually."""
    return 1 if getattr(module, "automatic_optimization", True) else max(1, len(trainer.optimizers))


def _steps(trainer: Any, module: Any) -> int:
    return int(trainer.global_step) // _optimizers(trainer, module)


def _total(trainer: Any, module: Any) -> Any:
    """Lightning reports infinity, or -1, for a training without an end."""
    total, most = trainer.estimated_stepping_batches, getattr(trainer, "max_steps", -1)
    if not isinstance(total, int) or total <= 0:
        return None
    return min(total, most // _optimizers(trainer, module)) if isinstance(most, int) and most > 0 else total


def _others(trainer: Any) -> Iterator[Tuple[str, None]]:
    """The checkpoints kept by the script's ModelCheckpoint; Lightning itself knows their steps."""
    for one in trainer.checkpoint_callbacks:
        kept = {
            getattr(one, "best_model_path", ""),
            getattr(one, "last_model_path", ""),
            *getattr(one, "best_k_models", ()),
        }
        yield from ((path, None) for path in kept if path)


def _save(trainer: Any) -> str:
    """Keep one checkpoint; written under a new name, so that a kill leaves the older one intact."""
    folder = os.path.join(trainer.default_root_dir, FOLDER)
    name = f"step-{trainer.global_step}.ckpt"
    trainer.save_checkpoint(os.path.join(folder, name))
    if trainer.is_global_zero:
        for old in os.listdir(folder):
            if old.startswith("step-") and old != name:
                quietly(lambda old=old: os.unlink(os.path.join(folder, old)))  # type: ignore[misc]
    return os.path.join(folder, name)
