"""Makes a plain loop resumable: everything that determines its next step, saved atomically.

    saved = Checkpoint("run.pt", model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    order = ShuffledIndices(len(data), batch=32, seed=1)
    step = saved.resume()            # 0, or the steps already done
    for indices in order.batches(step):
        ...
        optimizer.step()
        carbontui.step()

A kill at any moment leaves the last complete checkpoint: it is written next to it, synced, then renamed over it. In a
job it is `.carbontui/<job>/run.pt`, and run.pt is the same file, unless another job under way has its own there. The
previous one is kept as run.pt.before: if the newest cannot be resumed from, and the previous one is at most ten minutes
of work older, the keeper uses that. So in a long run call saved.save() every few minutes (on every rank). Only a
checkpoint that this process has written or resumed from is kept as the previous one; one that did not load never
replaces one that did.

A file next to the marker says which checkpoint a training has left, for the next start of the command and for its
keeper. It names the newest one, and earlier ones that the keeper falls back to (`carbontui/job/keeper/resume.py`), with
a checksum of each that is the job's own (identity.py).
"""

import contextlib
import glob
import io
import json
import os
import random
import shutil
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

from carbontui.client import api, device, marker
from carbontui.client.checkpoint import identity

FORMAT = 1
KIND = "script"
REPEAT_MOST_S = 600.0
"""At most this much work is repeated if the checkpoint of an unload proves unusable."""


def point_to(kind: str, path: str, step: int, earlier: Sequence[Dict[str, Any]]) -> None:
    """Point to `path`, of step `step`; `earlier`: path and step (and checksum) each, newest first. `kind`: which
    framework reads them. Does nothing outside a job, or on ranks that are not the first of their host. Raises OSError.
    """
    if marker.ours():
        body: Dict[str, Any] = {"framework": kind, "job": identity.job(), "path": path, "step": step}
        body.update(checksum=identity.checksum(path), earlier=list(earlier), folders=_folders(path))
        marker.write_atomic(_file(), json.dumps(body).encode())


def entries(kind: Optional[str] = None) -> List[Dict[str, Any]]:
    """Path, step and checksum of every checkpoint it names, of this kind if one is given, the one it points to first;
    [] if there is no pointer. Raises OSError, ValueError."""
    body = _pointer()
    if kind not in (None, body.get("framework")):
        return []
    earlier = body.get("earlier")
    named = [body, *(earlier if isinstance(earlier, list) else ())]
    found = [one if isinstance(one, dict) else {} for one in named]
    if not isinstance(found[0].get("path"), str):
        return []
    parts = ("path", "step", "checksum")
    return [{name: one.get(name) for name in parts} for one in found if isinstance(one.get("path"), str)]


def _folders(path: str) -> List[str]:
    """The job's own folders so far, with that of `path`: what its keeper removes after success."""
    known: List[str] = []
    with contextlib.suppress(OSError, ValueError):
        known = _pointer().get("folders", [])
    folder = os.path.dirname(path)
    return sorted({*known, *([folder] if folder.endswith(os.path.join(identity.FOLDER, identity.job())) else ())})


def _pointer() -> Dict[str, Any]:
    try:
        with open(_file()) as file:
            body = json.load(file)
    except FileNotFoundError:
        return {}
    return body if isinstance(body, dict) else {}


def _file() -> str:
    return os.environ.get("CARBONTUI_MARKER", "") + ".checkpoint"


class Kept:
    """The newest checkpoint at `path`, a file or a folder, and the previous one at `path`.before. In a job that is in
    the job's folder beside the script's path, `named`, which is then the same file, for a start by hand."""

    def __init__(self, path: str) -> None:
        self.named = path
        self.path = path
        if identity.job():
            self.path = os.path.join(identity.folder_below(os.path.dirname(path)), os.path.basename(path))
        self.before, self.part = self.path + ".before", self.path + ".part"
        self.good_step: Optional[int] = None
        """Step of the checkpoint that this process last wrote or resumed from."""
        self._good = self.path
        self._named_is_ours = False
        self._worked_s = 0.0
        """Running seconds of the process at that time."""

    def load(self, read: Callable[[str], int]) -> Optional[int]:
        """Have `read` resume from the newest checkpoint, or from the previous one if the keeper says so. Returns its
        step; None if there is no checkpoint. Raises what `read` raises."""
        path = self._chosen()
        if not os.path.exists(path):
            return None
        if path == self.before:
            sys.stderr.write(f"carbontui: going on from {path}\n")
        try:
            step = read(path)
        except Exception:
            if path == self.path and os.path.exists(self.before):
                sys.stderr.write(f"carbontui: cannot resume from {path}; the checkpoint before it: {self.before}\n")
            raise
        self._hold(path, step)
        self._named_is_ours = path == self.named
        return step

    def place(self, put: Callable[[], Any]) -> None:
        """Keep the newest as the previous one, and have `put` write a new one in its place. Raises OSError."""
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        free = not os.path.exists(self.named)
        self._named_is_ours = self._named_is_ours or free or identity.same(self.path, self.named)
        if self._good == self.named != self.path and os.path.exists(self.named):  # of an earlier run, resumed from
            identity.publish(self.named, self.before)
        good = self.good_step is not None and self._good == self.path and os.path.exists(self.path)
        if os.path.isdir(self.path):
            shutil.rmtree(self.before if good else self.path, ignore_errors=True)
            if good:  # a kill between here and the end of `put` leaves .before and .part; see _chosen
                os.replace(self.path, self.before)
        elif good:
            self._link()
        put()
        self.publish()

    def publish(self, ending: str = "") -> None:
        """Put what was written (its part of that ending) where the script says. An unload leaves alone what is not this
        job's there; a script's own save replaces it, as it would alone."""
        unload = api.gate.saving
        if self.path == self.named or (unload and not self._named_is_ours and not identity.same(self.path, self.named)):
            return
        self._named_is_ours = True
        with contextlib.suppress(*((OSError, shutil.Error) if unload else ())):
            identity.publish(self.path + ending, self.named + ending)

    def saved(self, step: int) -> None:
        """The new one is in place: record where to resume from. On every rank."""
        earlier: List[Dict[str, Any]] = []
        repeated_s = api.gate.running_s() - self._worked_s
        # with several checkpoint functions, going back with only one would be inconsistent
        if self.good_step is not None and repeated_s <= REPEAT_MOST_S and len(api.gate.savers) == 1:
            earlier = [{"path": os.path.abspath(self.before), "step": self.good_step}]
        self._hold(self.path, step)
        with contextlib.suppress(OSError):  # a full or missing job directory must not end a training
            point_to(KIND, os.path.abspath(self.path), step, earlier)

    def _chosen(self) -> str:
        """The path to resume from, where nothing may be."""
        if os.path.isdir(self.part) and os.path.isdir(self.before) and not os.path.exists(self.path):
            return self.before  # a kill between two folders
        if os.environ.get("CARBONTUI_MARKER"):
            pointed = entries()[:1]
            for path in (self.path, self.before):
                if pointed and pointed[0]["path"] == os.path.abspath(path):
                    return identity.verified(pointed[0]) and path
            if not pointed and _pointer():
                return ""  # none could be resumed from, and the keeper begins without
        if self.path == self.named or os.path.exists(self.path):
            return self.path
        owner = identity.of_another(self.named)
        if not owner:
            return self.named
        sys.stderr.write(f"carbontui: {self.named} is of job {owner}, which is under way: not resumed from\n")
        return ""

    def _hold(self, path: str, step: int) -> None:
        self._good, self.good_step, self._worked_s = path, step, api.gate.running_s()

    def _link(self) -> None:
        """Hard-link the newest to the second name, so that the first always exists; if impossible, keep no previous."""
        part = self.before + ".part"
        marker.remove(part)
        try:
            os.link(self.path, part)
            os.replace(part, self.before)
        except OSError:
            marker.remove(self.before)


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
        for part in glob.glob(glob.escape(self.kept.path) + ".*.part"):  # left by a killed save
            marker.remove(part)
        step = self.kept.load(self._read)
        # a fresh start here is one even if another script of the command was resumed
        api.gate.starts_at(api.gate.counter.done() if step is None else step)
        return step or 0

    def _read(self, path: str) -> int:
        state = _torch().load(path, map_location="cpu", weights_only=True)
        if state.get("format") != FORMAT or set(state["parts"]) != set(self.parts):
            raise ValueError(f"{path} holds {sorted(state.get('parts', ()))}, not {sorted(self.parts)}")
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        step = int(state["step"])
        rank = _rank()
        if rank:
            parts = [_beside(where, step, rank) for where in (self.kept.path, self.path)]
            part = parts[path == self.path or not os.path.exists(parts[0])]
            state = _torch().load(part, map_location="cpu", weights_only=True)
        set_random_states(state["rng"])
        return step

    def save(self, step: Optional[int] = None) -> None:
        """Write the checkpoint; `step` is the steps of the whole training, as counted when None. Raises OSError."""
        step = api.gate.step_total() if step is None else step
        state: Dict[str, Any] = {"format": FORMAT, "step": step, "rng": random_states()}
        rank = _rank()
        if rank:
            os.makedirs(os.path.dirname(self.kept.path) or ".", exist_ok=True)
            _write(_beside(self.kept.path, step, rank), state)
        barrier()  # every rank's part is on disk before the file that names the step
        if not rank:
            state["parts"] = {name: part.state_dict() for name, part in self.parts.items()}
            self.kept.place(lambda: _write(self.kept.path, state))
        barrier()
        if rank:
            for path in {self.kept.path, self.path}:
                needed = [_beside(path, one, rank) for one in (step, self.kept.good_step) if one is not None]
                for old in glob.glob(_beside(glob.escape(path), "*", rank)):
                    if old not in needed:
                        marker.remove(old)
            self.kept.publish(f".{step}.rank{rank}")
        self.kept.saved(step)


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
        api.gate.facts["data_order"] = "same"
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


def barrier() -> None:
    """All ranks come here, if there are several."""
    dist = device.distributed()
    if dist is not None:
        dist.barrier()


def _beside(path: str, step: Union[int, str], rank: int) -> str:
    return f"{path}.{step}.rank{rank}"


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
