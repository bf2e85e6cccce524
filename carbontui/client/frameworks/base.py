"""A framework's training loop as carbontui sees it: the end of a step, the total steps, the checkpoint it left."""

import functools
import os
import sys
import time
from types import FunctionType
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from carbontui.client import api, marker
from carbontui.client.checkpoint import REPEAT_MOST_S, barrier, entries, point_to
from carbontui.client.checkpoint.identity import in_job_directory, is_ours, remove, verified
from carbontui.client.detection import stated
from carbontui.client.detection.places import Chain, chain
from carbontui.client.readonly import above, attributes, module_of, name_of, of_class

gate = api.gate


class Loop:
    """One running training loop. Meanwhile it reports the end of each step, and the optimizer hook is inactive.

    A loop inside another (two callbacks for one trainer, a framework that trains with another) counts nothing.
    """

    loops = 0
    """Number of loops in this process so far: only the first can be resumed, since earlier ones would run again."""
    holds: Optional[Tuple[str, Optional[int], float]] = None
    """Path and step of the checkpoint that this process last wrote or resumed from (one that failed to load never
    replaces one that loaded), and the running seconds of the process at that time."""

    def __init__(self, until: Optional[str] = None, at: Optional[Chain] = None) -> None:
        self.until, self.at = until, at
        """What may end it before its last step; the frames that call it, None for those when it begins."""
        self.began_at = 0.0
        self.under_way = False
        self.counts = False
        self.due = 0
        """Steps that have ended, except for what the framework does after them: the next `ended` counts them."""
        self._saver: Optional[Callable[[], Any]] = None

    def begin(self, done: int = 0, steps: Optional[int] = None) -> None:
        """Training starts, with `done` of a total of `steps` steps already done (a resumed run)."""
        if self.under_way:
            self.end(failed=True)
        with gate.cond:
            self.under_way, self.counts, self.due = True, gate.framework == 0, 0
            gate.framework += 1
            if not self.counts:
                return
            Loop.loops += 1
            self.began_at = time.time()
            if gate.counter.done() == 0:
                gate.starts_at(done)
            expected = max(0, int(steps) - done) if steps and steps > 0 else None
            stated.begins(expected, self.until or "", chain() if self.at is None else self.at)

    def ended(self, steps: int = 1) -> None:
        """`steps` steps have ended, including all the framework does after them."""
        steps, self.due = self.due + steps, 0
        if self.counts and steps > 0 and gate.counter is gate.hooked:
            gate.hooked.step(steps)

    def saves_with(
        self,
        save: Callable[[], str],
        framework: str,
        others: Callable[[], Iterable[Tuple[str, Optional[int]]]] = tuple,
        *,
        same_order: bool = True,
        epoch_left: Callable[[], Optional[Tuple[int, int]]] = lambda: None,
    ) -> None:
        """The loop can be unloaded: `save` writes a checkpoint and returns its path; `others` are paths and steps of
        checkpoints written by the script itself; whether the data comes in the `same_order` after a resume, and else
        how many steps are left of an epoch, and its whole. A script's own checkpoint function takes precedence."""
        if not self.counts or Loop.loops != 1 or gate.savers or not os.environ.get("CARBONTUI_MARKER"):
            return
        gate.facts["data_order"], gate.epoch_left = "same" if same_order else "other", epoch_left

        def saver() -> None:
            path = os.path.abspath(save())
            barrier()  # every rank's part is there before its checksum
            if marker.ours():
                earlier = quietly(lambda: self._earlier([*self._one_before(path), *others()])) or []
                named = quietly(entries) or []
                sums = {one["path"]: one["checksum"] for one in named}
                point_to(
                    framework, path, gate.step_total(), [{**one, "checksum": sums.get(one["path"])} for one in earlier]
                )
                kept = {path, *(one["path"] for one in earlier)}
                for before in (one["path"] for one in named):
                    if before not in kept and is_ours(before):
                        remove(before)  # nothing points to it any more
                Loop.holds = (path, gate.step_total(), gate.running_s())

        self._saver = api.on_checkpoint(saver)

    def _one_before(self, path: str) -> List[Tuple[str, Optional[int]]]:
        """The previous checkpoint in the job's directory, if falling back to it repeats little work and no other
        checkpoint function would have to fall back with it."""
        if self.holds is None or len(gate.savers) != 1:
            return []
        before, step, at_s = self.holds
        near = gate.running_s() - at_s <= REPEAT_MOST_S
        return [(before, step)] if near and before != path and _in_job_directory(before) else []

    def _earlier(self, others: Iterable[Tuple[str, Optional[int]]]) -> List[Dict[str, Any]]:
        """Checkpoints that the keeper falls back to if that of the unload cannot be resumed from: newest first, none so
        old that much work would be repeated."""
        oldest = max(self.began_at, time.time() - REPEAT_MOST_S)
        found = [(_saved_at(path), os.path.abspath(path), step) for path, step in others if os.path.exists(path)]
        good = [one for one in found if one[0] >= oldest or _in_job_directory(one[1])]
        newest_first = sorted(good, key=lambda one: one[0], reverse=True)
        return [{"path": path, "step": step} for _, path, step in newest_first]

    def no_more_unloads(self) -> None:
        """No unload from here on: what follows the last step could not be resumed."""
        with gate.cond:
            if self._saver in gate.savers:
                gate.savers.remove(self._saver)
        api.savers_changed()

    def end(self, *, failed: bool = False) -> None:
        """Training has finished or was aborted; `failed`: to be tried again."""
        if not self.under_way:
            return
        with gate.cond:
            if self.counts:
                stated.ends(failed=failed)
                Loop.loops -= failed
            self.under_way = self.counts = False
            gate.framework -= 1
        self.no_more_unloads()


def left_behind(framework: str, given: Any = None) -> Optional[str]:
    """The checkpoint with which an earlier start of this command was unloaded; None for a fresh start, or for a loop
    that is not the first of its process. Ends the process if it is missing or another's.

    It takes precedence over a path `given` by the script, which was meant for the first start: going back to that would
    lose later training. Unless that is newer: a run lost after its resume may have saved again by itself.
    """
    if not os.environ.get("CARBONTUI_RESUME") or Loop.loops:
        return None
    named = entries(framework)
    if not named:
        return None
    path = named[0]["path"]
    newer = isinstance(given, (str, os.PathLike)) and os.path.exists(given) and os.path.exists(path)
    if newer and _saved_at(given) > _saved_at(path):
        return None
    path = verified(named[0])
    sys.stderr.write("carbontui: going on from " + path + "\n")
    Loop.holds = (path, named[0]["step"], gate.running_s())
    return path


def _saved_at(path: Any) -> float:
    """When a checkpoint, a file or a folder of files, was written."""
    inside = [entry.path for entry in os.scandir(path)] if os.path.isdir(path) else []
    return max(os.stat(one).st_mtime for one in (path, *inside))


def quietly(call: Callable[[], Any]) -> Any:
    """Call and ignore any exception: reporting must never affect the training."""
    try:
        return call()
    except Exception:
        return None


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """From now on `owner`.`name` is the decorated function, which gets what it replaces as its first argument."""
    inner = getattr(owner, name)

    def put(outer: Callable[..., Any]) -> Callable[..., Any]:
        setattr(owner, name, functools.wraps(inner)(lambda *args, **kwargs: outer(inner, *args, **kwargs)))
        return outer

    return put


def stopper(objects: Iterable[Any], word: str, library: str, *own: str) -> str:
    """The class of the first of these that may end a training early, '' for none: one of the `library` named in `own`,
    or another that has or says `word` in its code. None of that is run."""
    for one in objects:
        for kind in (one,) if type(one) is FunctionType else above(type(one)):
            has = attributes(kind)
            codes = [part.__code__ for part in (kind, *has.values()) if type(part) is FunctionType]
            says = word in has or any(word in code.co_names for code in codes)
            name, module = (one.__name__, "") if kind is one else (name_of(kind), module_of(kind))
            if name in own if module.startswith(library) else says:
                return str(name)
    return ""


def mine(callbacks: Optional[Iterable[Any]]) -> Any:
    """Our callback among a trainer's; None if it has none."""
    return next((one for one in callbacks or () if of_class(type(one), "is_carbontui")), None)


def _in_job_directory(path: str) -> bool:
    return path == in_job_directory(os.path.basename(path))
