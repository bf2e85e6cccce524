"""Boundaries of unmodified scripts: the end of an optimizer step.

A boundary is the end of an outermost optimizer step, never inside backward. One optimizer counts the steps
(the leader); those of others are boundaries but not steps. An explicit carbontui.step() switches all of this
off, and so does a framework whose own loop reports the end of a step (frameworks/) while it trains.
"""

import functools
import importlib
import os
import sys
import weakref
from typing import Any, Callable, List

from carbontui.client import device, marker
from carbontui.client.around import around
from carbontui.client.detection.places import chain, key_of, watch
from carbontui.client.process import gate
from carbontui.client.readonly import after

STALE_AFTER = 64
"""After this many boundaries of others without one of the leading optimizer, another one leads."""


class Leader:
    """The first optimizer that steps leads: its steps are the training's, those of a GAN's second one do not count.

    Successive trainings (trials, folds, pretraining and tuning) may keep their optimizers alive, so a stranger's steps
    count at once. If the leader steps again, the stranger was its companion: the steps counted for it are compensated
    by not counting as many of the leader's, and from then on the companion's steps do not count.
    """

    def __init__(self) -> None:
        self._ref: Callable[[], Any] = lambda: None
        self._companions: List[Callable[[], Any]] = []
        self._foreign: List[Callable[[], Any]] = []
        self.lent = 0
        """Strangers' steps counted since the leader's last."""
        self._owed = 0
        """Steps to be compensated by the leader, counted for strangers that were companions."""
        self._held_back = 0
        """Companions' steps not counted since the leader's last."""
        self._others = 0

    def worth(self, stepper: Any) -> int:
        """How many steps a boundary of this stepper counts: 0 for a companion of the leader, more than 1 if some were
        held back until it was clear that they count."""
        leading = self._ref()
        if leading is stepper:
            return self._returned() if self._others or self._owed else 1
        self._others += 1
        if leading is None or self._others > STALE_AFTER:
            held_back = self._held_back if leading is not None else 0
            self.__init__()  # type: ignore[misc]
            self._ref = weakref.ref(stepper)
            return 1 + held_back
        if _among(stepper, self._companions):
            self._held_back += 1
            return 0
        if not _among(stepper, self._foreign):
            self._foreign.append(weakref.ref(stepper))
        self.lent += 1
        return 1

    def _returned(self) -> int:
        if self._others:
            self._companions = [ref for ref in self._companions + self._foreign if ref() is not None]
            self._foreign = []
            self._owed += self.lent
            self.lent = self._held_back = self._others = 0
        if self._owed:
            self._owed -= 1
            return 0
        return 1


def _among(one: Any, refs: List[Callable[[], Any]]) -> bool:
    return any(ref() is one for ref in refs)


leader = Leader()
watch.unsure = lambda: leader.lent > 0


def _boundary(stepper: Any, *_args: Any) -> None:
    """A step of this optimizer has ended. One function, since it runs at every step."""
    try:
        if gate.counter is not gate.hooked or gate.framework:
            return
        if sys.modules["torch"]._C._current_graph_task_id() != -1:
            passes.stepped = True  # every parameter steps alone, and all of them are one step
            return
        if device.capturing():
            marker.note(marker.CAPTURED)
            gate.facts["captured"] = True  # this step is recorded, not executed; its replay runs no Python
            return
        worth = leader.worth(stepper)
        if worth != 1:
            gate.asides += 1 - worth
        watch.aside = not worth
        gate.hooked.step(worth)
    except Exception:  # SystemExit and KeyboardInterrupt pass: they are intended
        return


class BackwardPasses:
    """The end of a pass is a step if optimizers have stepped inside it; or if there is none at all, once a script has
    made a few from one place: it applies the gradients by hand, and other passes are of the same step."""

    def __init__(self) -> None:
        self.optimizer = self.stepped = False
        """Whether there is an optimizer; whether one has stepped inside the present pass."""
        self.place: Any = None
        self.waiting = 0
        """Passes that are not counted yet."""
        self.least = 3
        """So many without an optimizer are a training that applies gradients by hand."""

    def ended(self) -> None:
        try:
            inside = sys.modules["torch"]._C._current_graph_task_id() != -1
            if gate.counter is not gate.hooked or gate.framework or inside or device.capturing():
                return
            stepped, self.stepped = self.stepped, False
            if not stepped:
                if self.optimizer:
                    return
                calls = (one for one in chain() if not one.module.startswith("torch."))
                place = next((key_of((one,)) for one in calls), None)
                self.place = self.place or place
                if place != self.place:
                    return
            self.waiting += 1
            if stepped or self.waiting >= self.least:
                worth, self.waiting, self.least = self.waiting, 0, 1
                gate.hooked.step(worth)
        except Exception:
            return


passes = BackwardPasses()


def on_gradients() -> None:
    """torch.optim is being imported: gradients are followed until an optimizer has stepped after them."""
    autograd: Any = sys.modules["torch.autograd"]
    inner = autograd._engine_run_backward  # none in another version, which is not followed

    def ran(_: Any, *args: Any, **kwargs: Any) -> None:
        if leader._ref() is not None:
            autograd._engine_run_backward = inner
        elif kwargs.get("accumulate_grad"):
            passes.ended()

    after(autograd, "_engine_run_backward", ran)


def on_optimizer(module: Any) -> None:
    """torch.optim.optimizer has been imported: every optimizer class gets the boundary with its first instance, where
    torch wraps its step(). Not a torch hook: torch.compile would trace that, with graph breaks and warnings."""
    plain = module.Optimizer.profile_hook_step
    if hasattr(plain, "_carbontui"):
        return

    @functools.wraps(plain)
    def profile_hook_step(func: Any) -> Any:
        passes.optimizer = True
        return around(plain(func), _boundary)

    after(module.Optimizer, "load_state_dict", lambda *args, **kwargs: setattr(watch, "resumed", True))
    classes = [module.Optimizer]
    for kind in classes:  # those with instances already, where a job begins in the middle of a script
        classes += kind.__subclasses__()
        if hasattr(vars(kind).get("step"), "hooked"):
            passes.optimizer, kind.step = True, around(kind.step, _boundary)
    profile_hook_step._carbontui = True  # type: ignore[attr-defined]
    module.Optimizer.profile_hook_step = staticmethod(profile_hook_step)
    on_gradients()


def on_grad_scaler(module: Any) -> None:
    """A module with a GradScaler has been imported: a step it skips is a boundary too, once per call. The step counts
    as the optimizer's, so that an optimizer that led before the scaler continues to lead."""
    inner = module.GradScaler.__dict__.get("step")
    if inner is not None and not hasattr(inner, "_carbontui"):
        module.GradScaler.step = around(inner, lambda scaler, optimizer, *args: _boundary(optimizer))


def on_trace_rules(module: Any) -> None:
    """torch._dynamo has been imported: code that runs at a boundary inside a compiled function must not be compiled.
    Except the wrapper (around.py): dynamo must try that one, and skip it by itself."""
    for name in os.listdir(os.path.dirname(__file__)):
        stem, _, ending = name.partition(".")
        if ending in ("", "py") and stem not in ("around", "__init__", "__pycache__"):
            module.add("carbontui.client." + stem)


def imported(module: Any, name: str, taker: str) -> None:
    """One of the modules that sitecustomize.py waits for has been imported; `taker` is the client's function for it."""
    file, _, function = taker.rpartition(".")
    if file != "frameworks.sweeps" and name != "rich.progress":  # those do not indicate a training
        marker.note(name)
    getattr(importlib.import_module("carbontui.client." + file), function)(module)
