"""The Trainer of transformers: a step ends when its log, evaluation and checkpoint are done, too.

Unloading writes one of the Trainer's own checkpoints, in a folder not counted by save_total_limit, and the next start
of the command resumes from it, not from an older resume_from_checkpoint of the script, which was meant for the first
start.
"""

import os
from typing import Any, Iterator, Optional, Tuple

from carbontui.client import api
from carbontui.client.api import gate
from carbontui.client.checkpoint.identity import folder_below
from carbontui.client.frameworks.base import Loop, left_behind, mine, quietly, replaces, stopper
from carbontui.client.readonly import attributes

STOP = "should_training_stop"


def callback() -> Any:
    """A transformers.TrainerCallback that reports the end of each step, total, epoch and loss."""
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class Reporter(TrainerCallback):  # type: ignore[misc,unused-ignore]
        is_carbontui = True

        def __init__(self) -> None:
            self.loop = Loop()
            self.trainer: Any = None
            self.epoch_over = False

        def __reduce__(self) -> Any:
            return callback, ()

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            every = quietly(lambda: [*self.trainer.callback_handler.callbacks, self.trainer]) or ()
            self.loop.until = quietly(lambda: stopper(every, STOP, "transformers.", "EarlyStoppingCallback"))
            # where memory is short it is tried anew
            self.loop.at = () if getattr(args, "auto_find_batch_size", False) else None
            quietly(lambda: self.loop.begin(int(state.global_step), int(state.max_steps)))
            if self.trainer is not None:
                same = bool(quietly(lambda: _known_order(self.trainer)))
                others = lambda: _others(self.trainer)  # noqa: E731
                self.loop.saves_with(lambda: _save(self.trainer), "transformers", others, same_order=same)
                every, own = getattr(args, "logging_steps", 1), attributes(self.trainer)
                logged = {"loss": every != 1, "tokens": "_total_train_tokens" in own}
                gate.facts["restarts"] = [name for name in logged if logged[name]]

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.epoch_over = False
            if self.trainer is None:
                self.loop.ended()
            else:
                self.loop.due += 1

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.epoch_over = True

        def settle(self, state: Any) -> None:
            """All work of a step is done; the end of an epoch belongs to its last step."""
            if self.epoch_over or not float(state.epoch).is_integer():
                self.loop.ended(0)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            quietly(lambda: api.report(loss=(logs or {}).get("loss"), epoch=state.epoch))

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.loop.ended(0)
            self.loop.end()

    return Reporter()


def install(module: Any) -> None:
    """transformers.trainer has been imported: every Trainer made from here on has the callback."""
    module.DEFAULT_CALLBACKS.append(type(callback()))
    trainer = getattr(module, "Trainer", None)
    if not hasattr(trainer, "_maybe_log_save_evaluate") or not hasattr(trainer, "_save_checkpoint"):
        return  # another version: the step then ends at on_step_end, and cannot be unloaded there

    @replaces(trainer, "_maybe_log_save_evaluate")
    def after(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        result = inner(self, *args, **kwargs)
        reporter = _reporter(self)
        if reporter is not None:
            reporter.settle(self.state)
        return result

    @replaces(trainer, "train")
    def resumed(train: Any, self: Any, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        reporter = _reporter(self)
        if reporter is None:
            return train(self, resume_from_checkpoint, *args, **kwargs)
        reporter.trainer = self
        left = left_behind("transformers", resume_from_checkpoint)
        try:
            return train(self, left if left is not None else resume_from_checkpoint, *args, **kwargs)
        finally:
            reporter.trainer = None
            reporter.loop.end()


def _reporter(trainer: Any) -> Optional[Any]:
    return mine(getattr(getattr(trainer, "callback_handler", None), "callbacks", None))


def _known_order(trainer: Any) -> bool:
    """Whether the Trainer passes over the batches done, of a loader that it has made itself: not where a subclass makes
    its own batches (TRL's GRPO)."""
    from transformers import Trainer

    own = ("get_train_dataloader", "_prepare_inputs", "get_batch_samples")
    plain = all(getattr(type(trainer), name, None) is getattr(Trainer, name, None) for name in own)
    return plain and not trainer.args.ignore_data_skip


def _others(trainer: Any) -> Iterator[Tuple[str, int]]:
    """The Trainer's own checkpoints, only complete ones: the state is written last."""
    for name in os.listdir(trainer.args.output_dir):
        path, step = os.path.join(trainer.args.output_dir, name), name.rpartition("-")[2]
        whole = name.startswith("checkpoint-") and os.path.exists(os.path.join(path, "trainer_state.json"))
        if whole and step.isdigit() and int(step) <= trainer.state.global_step:
            yield path, int(step)


def _save(trainer: Any) -> str:
    """Write a complete Trainer checkpoint into the job's folder; a collective, as the Trainer's is."""
    args, folder = trainer.args, folder_below(trainer.args.output_dir)
    ours = {"output_dir": folder, "push_to_hub": False, "save_total_limit": None, "save_only_model": False}
    told = {name: getattr(args, name) for name in ours if hasattr(args, name)}
    try:
        vars(args).update({name: ours[name] for name in told})
        trainer._save_checkpoint(trainer.model, None)
    finally:
        vars(args).update(told)
    return os.path.join(folder, f"checkpoint-{trainer.state.global_step}")
