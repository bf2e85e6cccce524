"""Makes a plain loop resumable: everything that determines its next step, saved atomically.

    saved = Checkpoint("run.pt", model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    order = ShuffledIndices(len(data), batch=32, seed=1)
    step = saved.resume()            # 0, or the steps already done
    for indices in order.batches(step):
        ...
        optimizer.step()
        carbontui.step()

A kill at any moment leaves the last complete checkpoint: it is written next to it, synced, then renamed over it. The
previous one is kept as run.pt.before: if the newest cannot be resumed from, and the previous one is at most ten minutes
of work older, the keeper uses that. So in a long run call saved.save() every few minutes (on every rank).
"""

from __future__ import annotations

import glob
import io
import os
import random
import sys
from typing import Any, Dict, Iterator, List, Optional, Union

from carbontui.client import api, device, marker
from carbontui.client.checkpoint.kept import Kept

FORMAT = 1


class Checkpoint:
    """A file with the state_dict of every named part, the random states, and the steps done.

    Parts need state_dict() and load_state_dict(); None is ignored. In a distributed job rank 0 writes the parts, every
    rank its own random states, and save() is a collective: all ranks must call it at the same step, as they do when
    the supervisor requests it. Registers itself with carbontui.on_checkpoint.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], **parts: Any) -> None:
        self.path = os.fspath(path)
        self.kept = Kept(self.path)
        self.parts = {name: part for name, part in parts.items() if part is not None}
        api.on_checkpoint(self.save)

    def resume(self) -> int:
        """Load the checkpoint if there is one; returns the steps done of the whole training, 0 for a fresh start.

        Raises what torch.load raises for an invalid file, ValueError for a checkpoint with other parts.
        """
        _sweep(self.path)
        step = self.kept.load(self._read)
        if step is None:
            with api.gate.cond:  # a fresh start here, even if another script of the command was resumed
                api.gate.facts["start_step"], api.gate.facts["start_known"] = 0, True
            return 0
        with api.gate.cond:
            api.gate.facts["start_step"], api.gate.facts["start_known"] = step - api.gate.counter.done(), True
        return step

    def _read(self, path: str) -> int:
        state = _torch().load(path, map_location="cpu", weights_only=True)
        if state.get("format") != FORMAT or set(state["parts"]) != set(self.parts):
            raise ValueError(f"{path} holds {sorted(state.get('parts', ()))}, not {sorted(self.parts)}")
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        step = int(state["step"])
        rank = _rank()
        if rank:
            state = _torch().load(self._beside(step, rank), map_location="cpu", weights_only=True)
        set_random_states(state["rng"])
        return step

    def save(self, step: Optional[int] = None) -> None:
        """Write the checkpoint; `step` is the steps of the whole training, as counted when None. Raises OSError."""
        step = api.gate.step_total() if step is None else step
        state: Dict[str, Any] = {"format": FORMAT, "step": step, "rng": random_states()}
        dist = device.distributed()
        rank = _rank()
        if rank:
            _write(self._beside(step, rank), state)
        if dist is not None:
            dist.barrier()  # every rank's part is on disk before the file that names the step
        if not rank:
            state["parts"] = {name: part.state_dict() for name, part in self.parts.items()}
            self.kept.place(lambda: _write(self.path, state))
        if dist is not None:
            dist.barrier()
        if rank:
            needed = [self._beside(one, rank) for one in (step, self.kept.good_step) if one is not None]
            for old in glob.glob(glob.escape(self.path) + f".*.rank{rank}"):
                if old not in needed:
                    marker.remove(old)
        self.kept.saved(step)

    def _beside(self, step: int, rank: int) -> str:
        return f"{self.path}.{step}.rank{rank}"


class ShuffledIndices:
    """Batches of indices 0..size-1 in an order determined only by seed and step, endless, reshuffled every epoch.

    The position follows from the step alone, so batches that a DataLoader has prefetched are not lost. With
    `world` ranks every rank takes its share of each batch of `batch * world` indices.
    """

    def __init__(self, size: int, batch: int, seed: int = 0, rank: int = 0, world: int = 1) -> None:
        if not (0 < batch * world <= size and 0 <= rank < world):
            raise ValueError(f"a batch of {batch} x {world} does not fit {size} samples")
        self.size, self.batch, self.seed, self.rank, self.world = size, batch, seed, rank, world

    def batches(self, step: int = 0) -> Iterator[List[int]]:
        """The batches from `step` on; an incomplete last batch of an epoch is dropped."""
        whole = self.batch * self.world
        per_epoch = self.size // whole
        while True:
            epoch, first = divmod(step, per_epoch)
            order = list(range(self.size))
            random.Random(f"{self.seed}/{epoch}").shuffle(order)
            for number in range(first, per_epoch):
                start = number * whole + self.rank * self.batch
                yield order[start : start + self.batch]
            step = (epoch + 1) * per_epoch


def _torch() -> Any:
    import torch

    return torch


def _rank() -> int:
    dist = device.distributed()
    return int(dist.get_rank()) if dist is not None else 0


def _write(path: str, state: Dict[str, Any]) -> None:
    buffer = io.BytesIO()
    _torch().save(state, buffer)
    marker.write_atomic(path, buffer.getvalue())


def _sweep(path: str) -> None:
    """Remove files left by a killed save."""
    for part in glob.glob(glob.escape(path) + ".*.part"):
        marker.remove(part)


def random_states() -> Dict[str, Any]:
    """States of the random generators of Python, torch and numpy (global), if loaded; plain data and tensors."""
    state: Dict[str, Any] = {"python": random.getstate()}
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, place, has_gauss, gauss = numpy.random.get_state()
        state["numpy"] = (name, keys.tolist(), place, has_gauss, gauss)
    return state


def set_random_states(state: Dict[str, Any]) -> None:
    random.setstate(state["python"])
    if "torch" in state:
        torch = _torch()
        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
