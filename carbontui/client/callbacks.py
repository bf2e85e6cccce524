"""What a training framework knows and a hook cannot see: the steps in all, the loss, and how to save.

The injected hook adds these by itself to the Trainer of transformers and of Lightning; both can also be given by hand.
They report; the boundary stays the optimizer's step. Unloading needs more than a report: a script that resumes when
CARBONTUI_RESUME is set, so the checkpoint functions are registered only by `save_with`.
"""

from __future__ import annotations

from typing import Any, Callable

from carbontui.client import api

LOSS_EVERY = 50
"""Batches between two looks at Lightning's loss."""


def _resumed_at(step: Any) -> None:
    """The framework says how many steps were done before this process began."""
    if isinstance(step, int) and step >= 0:
        with api.gate.cond:
            api.gate.facts["start_step"] = max(0, step - api.gate.counter.done())


def transformers_callback() -> Any:
    """A transformers.TrainerCallback that reports total, epoch and loss."""
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class Reporter(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def __reduce__(self) -> Any:
            return transformers_callback, ()

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _quietly(lambda: _resumed_at(state.global_step))
            _quietly(lambda: api.report(total=state.max_steps))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            _quietly(lambda: api.report(loss=(logs or {}).get("loss"), epoch=state.epoch))

    return Reporter()


def lightning_callback(base: Any) -> Any:
    """A Lightning callback that reports total, epoch and loss; `base` is the Callback class of the package in use."""

    class Reporter(base):  # type: ignore[misc,unused-ignore]
        def __reduce__(self) -> Any:  # a trainer that spawns its ranks (ddp_spawn) pickles its callbacks
            return lightning_callback, (base,)

        def on_train_start(self, trainer: Any, module: Any) -> None:
            _quietly(lambda: _resumed_at(trainer.global_step))
            _quietly(lambda: api.report(total=_whole_total(trainer.estimated_stepping_batches)))

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            _quietly(lambda: api.report(epoch=trainer.current_epoch))

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx % LOSS_EVERY == 0:  # reading the loss waits for the device
                _quietly(lambda: api.report(loss=outputs["loss"] if isinstance(outputs, dict) else outputs))

    return Reporter()


def save_with(trainer: Any, path: str) -> Callable[[], Any]:
    """Let a Lightning trainer be unloaded: its own checkpoint is written to `path`; resume with fit(ckpt_path=path).

    A collective in a distributed job, as trainer.save_checkpoint is.
    """
    return api.on_checkpoint(lambda: trainer.save_checkpoint(path))


def on_transformers(module: Any) -> None:
    """transformers.trainer has been imported: every Trainer made from here on gets the callback."""
    module.DEFAULT_CALLBACKS.append(type(transformers_callback()))


def on_lightning(module: Any) -> None:
    """A Lightning trainer module has been imported: fit() adds the callback to a trainer that has none."""
    package = module.__name__.rsplit(".trainer.", 1)[0]
    inner = module.Trainer.fit

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        _quietly(lambda: _add(self, package))
        return inner(self, *args, **kwargs)

    fit.__wrapped__ = inner  # type: ignore[attr-defined]
    fit.__doc__, fit.__name__ = inner.__doc__, inner.__name__
    module.Trainer.fit = fit


def _add(trainer: Any, package: str) -> None:
    import importlib

    if not any(type(callback).__module__ == __name__ for callback in trainer.callbacks):
        trainer.callbacks.append(lightning_callback(importlib.import_module(package).Callback))


def _whole_total(total: Any) -> Any:
    """Lightning says infinity, or -1, for a training without an end."""
    return total if isinstance(total, int) and total > 0 else None


def _quietly(call: Callable[[], Any]) -> None:
    """What is only told may not hurt what is trained."""
    try:
        call()
    except Exception:
        return
