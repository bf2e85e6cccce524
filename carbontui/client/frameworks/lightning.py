"""The Trainer of Lightning: a step ends at on_train_batch_end, when Lightning itself may save a checkpoint; the last of
an epoch ends with that, when its validation and hooks are done.

Unloading writes one of Lightning's own checkpoints below default_root_dir, and the next start of the command resumes
from it, not from an older ckpt_path of the script, which was meant for the first start.
"""

import importlib
import math
import os
import warnings
from typing import Any, Iterator, Optional, Tuple

from carbontui.client import api
from carbontui.client.api import gate
from carbontui.client.checkpoint import random_states, set_random_states
from carbontui.client.checkpoint.identity import folder_below
from carbontui.client.frameworks import loaders
from carbontui.client.frameworks.base import Loop, left_behind, mine, quietly, replaces, stopper

KEY = "carbontui"
"""Of what we add to the checkpoint of an unload, and to no other."""
LOSS_EVERY = 50
"""Batches between two readings of the loss: reading it waits for the device."""


def callback(base: Any) -> Any:
    """A Lightning callback that reports the end of each step, total, epoch and loss; `base` is the Callback class
    of the package in use. With manual optimization and several optimizers a batch is one step."""

    class Reporter(base):  # type: ignore[misc,unused-ignore]
        is_carbontui = True

        def __init__(self) -> None:
            self.loop = Loop()
            self.steps_done = 0
            self.saving = False
            self.left: Any = None
            """The position in the data of the checkpoint that is resumed from, until the loader begins."""
            self.over = False
            """An epoch has made its last step, and the next one has not begun."""
            self.new_epoch = False
            """The checkpoint that is resumed from is one of an epoch's end, and no epoch has begun since."""

        def __reduce__(self) -> Any:  # a trainer that spawns its ranks (ddp_spawn) pickles its callbacks
            return callback, (base,)

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.steps_done = quietly(lambda: _steps(trainer, module)) or 0
            total = quietly(lambda: _total(trainer, module))
            library, every = base.__module__.partition(".")[0] + ".", (*trainer.callbacks, module)
            self.loop.until = quietly(lambda: stopper(every, "should_stop", library, "EarlyStopping", "Timer"))
            self.loop.begin(self.steps_done, total)
            same = bool(quietly(lambda: _known_order(trainer)))
            left, others = lambda: _epoch_left(trainer), lambda: _others(trainer)
            self.loop.saves_with(lambda: _save(self, trainer), "lightning", others, same_order=same, epoch_left=left)
            if self.left is not None:
                quietly(lambda: set_random_states(self.left["now"]))
                self.left = None

        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            if self.saving:
                checkpoint[KEY] = quietly(lambda: _position(trainer)) or {"now": random_states()}
                if self.over:
                    checkpoint[KEY]["over"] = True
                    _at_last_batch(checkpoint["loops"]["fit_loop"])

        def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            self.left = checkpoint.get(KEY)
            self.new_epoch = bool((self.left or {}).get("over"))

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            quietly(lambda: api.report(epoch=trainer.current_epoch))

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx % LOSS_EVERY == 0:
                quietly(lambda: api.report(loss=outputs["loss"] if isinstance(outputs, dict) else outputs))
            done = quietly(lambda: _steps(trainer, module)) or self.steps_done
            new, self.steps_done = done - self.steps_done, done
            self.over = bool(quietly(lambda: _is_over(trainer)))
            if self.over:
                self.loop.due += new
            else:
                self.loop.ended(new)

        def on_epoch_over(self) -> None:
            self.loop.ended(0)
            self.over = False

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.loop.ended(0)
            self.loop.end()

    return Reporter()


def _save(reporter: Any, trainer: Any) -> str:
    """Written under a new name, so that a kill leaves the older one intact."""
    path = os.path.join(folder_below(trainer.default_root_dir), f"step-{trainer.global_step}.ckpt")
    reporter.saving = True
    try:
        trainer.save_checkpoint(path)
    finally:
        reporter.saving = False
    return path


def install(module: Any) -> None:
    """A Lightning trainer module has been imported: fit() adds the callback to a trainer that has none, and resumes
    from the checkpoint of an earlier unload."""
    package = module.__name__.rsplit(".trainer.", 1)[0]

    quietly(lambda: _follow(package))

    @replaces(module.Trainer, "fit")
    def fit(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(getattr(one, "_early_exit", False) for one in self.callbacks):
            return _search(inner, self, *args, **kwargs)
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


def _search(fit: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """A fit() of the Tuner (lr_find, scale_batch_size): its steps are none of the training, which is still to come and
    is what a checkpoint of ours belongs to."""
    with gate.cond:
        gate.framework += 1
    try:
        return fit(trainer, *args, **kwargs)
    finally:
        with gate.cond:
            gate.framework -= 1


def _add(trainer: Any, package: str) -> None:
    if mine(trainer.callbacks) is None:
        trainer.callbacks.append(callback(importlib.import_module(package).Callback))


def _follow(package: str) -> None:
    """Of another version than this knows, a resumed epoch begins its data anew, as Lightning says itself."""
    loop = importlib.import_module(package + ".loops.fit_loop")._FitLoop
    if hasattr(loop, "reset_restart_stage"):

        @replaces(loop, "on_advance_end")
        def ended(inner: Any, self: Any) -> None:
            inner(self)
            reporter = mine(self.trainer.callbacks)
            if reporter is not None:
                reporter.on_epoch_over()

        @replaces(loop, "setup_data")
        def begun(inner: Any, self: Any) -> None:
            inner(self)
            reporter = mine(self.trainer.callbacks)
            if reporter is not None and reporter.new_epoch:
                reporter.left = {"now": random_states()}  # the loader has begun; what follows here draws once more

        @replaces(loop, "reset")
        def reset(inner: Any, self: Any) -> None:
            inner(self)
            reporter = mine(self.trainer.callbacks)
            if reporter is not None and reporter.new_epoch:
                self.reset_restart_stage()  # it begins as any other, with its hooks
                self.epoch_loop.restarting = False
                reporter.new_epoch = False

    @replaces(loop, "_load_combined_loader_states")
    def loaded(inner: Any, self: Any) -> Any:
        inner(self)
        quietly(lambda: _goes_on(self))

    loaders.follow()


def _known_order(trainer: Any) -> bool:
    """Whether a resumed epoch goes on with its next batch: by us, or where every loader keeps its own position."""
    every = trainer.fit_loop._combined_loader.flattened
    own = all(hasattr(one, "state_dict") and hasattr(one, "load_state_dict") for one in every)
    return bool(own or (len(every) == 1 and loaders.position(every[0], 0)))


def _position(trainer: Any) -> Any:
    """The position in the data, and random states; None where Lightning saves its own, or where it is not known."""
    (loader,) = trainer.fit_loop._combined_loader.flattened
    return loaders.position(loader, trainer.fit_loop.epoch_loop.batch_progress.current.ready)


def _goes_on(fit_loop: Any) -> None:
    """The loaders are there, and no iterator has been made of them yet."""
    reporter = mine(fit_loop.trainer.callbacks)
    left = None if reporter is None else reporter.left
    if left is None:
        return
    if left.get("over"):
        set_random_states(left["now"])
    elif "batches" in left:
        (loader,) = fit_loop._combined_loader.flattened
        loaders.go_on(loader, left)
        reporter.left = None
        warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch ended")


def _is_over(trainer: Any) -> bool:
    """Whether this is the last batch of an epoch whose end will be seen."""
    loop = trainer.fit_loop
    return hasattr(loop, "reset_restart_stage") and bool(loop.epoch_loop._num_ready_batches_reached())


def _at_last_batch(progress: Any) -> None:
    """Lightning's progress when an epoch has ended, as it was at its last batch: from there it goes on with the next
    epoch, and what lies between is done."""
    counts = {"epoch_progress": ("processed", "completed"), "epoch_loop.batch_progress": ("completed",)}
    for name, ended in counts.items():
        for kind in ("total", "current"):
            progress[name][kind].update((one, progress[name][kind][one] - 1) for one in ended)


def _epoch_left(trainer: Any) -> Optional[Tuple[int, int]]:
    """Steps to the end of the epoch, and of a whole one."""
    batches, each = trainer.num_training_batches, trainer.accumulate_grad_batches
    if not isinstance(batches, int) or not hasattr(trainer.fit_loop, "reset_restart_stage"):
        return None
    left = batches - trainer.fit_loop.epoch_loop.batch_progress.current.ready
    return max(0, math.ceil(left / each)), math.ceil(batches / each)


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
