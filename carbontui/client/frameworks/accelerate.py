"""accelerate: the loop is the script's own, so the script resumes it; the Accelerator does the saving.

saved = Resumable(accelerator, "state")
step = saved.resume()                          # after accelerator.prepare(); optimizer steps already done
for epoch in range(epochs):
    for batch in saved.rest_of(loader, epoch):  # skips the batches of this epoch that are done
        with accelerator.accumulate(model):
            ...
        saved.batch_ended()                     # at the very end of the body

The previous one is kept as state.before, in case the newest cannot be resumed from: see client/checkpoint.
"""

import os
from typing import Any, Iterator

from carbontui.client import api
from carbontui.client.checkpoint import Kept, random_states, set_random_states


class Resumable:
    """An accelerate loop that can be unloaded between two optimizer steps. A collective, as save_state is."""

    def __init__(self, accelerator: Any, folder: str) -> None:
        self.accelerator, self.folder = accelerator, os.fspath(folder)
        self.kept = Kept(self.folder)
        self.epoch = self.batch = self.steps = 0
        self._skip = (0, 0)
        self._states: Any = None
        accelerator.register_for_checkpointing(self)
        api.on_checkpoint(self.save)

    def state_dict(self) -> Any:
        return {"epoch": self.epoch, "batch": self.batch, "steps": self.steps}

    def load_state_dict(self, state: Any) -> None:
        self.epoch, self.batch, self.steps = state["epoch"], state["batch"], state["steps"]

    def resume(self) -> int:
        """Load the saved state, if any; returns the optimizer steps done."""
        self.kept.load(self._read)
        self._skip = (self.epoch, self.batch)
        api.gate.starts_at(self.steps)
        return self.steps

    def _read(self, path: str) -> int:
        self.accelerator.load_state(path)
        self._states = random_states()
        return self.steps

    def rest_of(self, loader: Any, epoch: int) -> Iterator[Any]:
        """The batches of this epoch still to be done: none if the epoch is over.

        Their order is that of an undisturbed run if the sampler's follows from a seed and the epoch
        (DataLoaderConfiguration(use_seedable_sampler=True)).
        """
        first, done = self._skip
        if epoch < first:
            return
        self.epoch, self.batch = epoch, done if epoch == first else 0
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        if not self.batch:
            yield from loader
            return
        rest = iter(self.accelerator.skip_first_batches(loader, self.batch))
        batch = next(rest, None)
        set_random_states(self._states)  # the new iterator and the skipped batches have drawn from them once more
        if batch is not None:
            yield batch
            yield from rest

    def batch_ended(self) -> None:
        """A batch is done; if the gradients were applied it is a step, and a pause may hold here."""
        self.batch += 1
        if self.accelerator.sync_gradients:
            self.steps += 1
            api.step()

    def save(self) -> None:
        """Save atomically (write, then rename): a kill leaves a complete one. In a long run call it regularly."""
        self.accelerator.save_state(self.kept.part)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self.kept.place(lambda: os.replace(self.kept.part, self.kept.path))
        self.accelerator.wait_for_everyone()
        self.kept.saved(self.steps)
