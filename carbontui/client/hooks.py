"""Boundaries of scripts that were never changed: torch's own optimizer hooks.

A boundary is the end of an outermost optimizer step, never inside backward. The first optimizer seen counts the steps;
others (a GAN's second one) are boundaries that count none. An explicit carbontui.step() switches all of this off.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from typing import Any, Callable, List, Optional, Tuple

from carbontui.client.api import gate

STALE_AFTER = 64
"""Boundaries of others without one of the leading optimizer, after which another one leads."""

_local = threading.local()


class _Leader:
    """Which optimizer counts the steps: the first seen, until it is gone or steps no more."""

    def __init__(self) -> None:
        self.ref: Optional[Callable[[], Any]] = None
        self.others = 0

    def worth(self, stepper: Any) -> int:
        """Steps that a boundary of this stepper is: 1, or 0 for one beside the leader."""
        leader = self.ref() if self.ref is not None else None
        if leader is stepper:
            self.others = 0
            return 1
        if leader is not None and self.others < STALE_AFTER:
            self.others += 1
            return 0
        self.ref = weakref.ref(stepper)
        self.others = 0
        return 1


_leader = _Leader()


def _stack() -> List[Tuple[int, int]]:
    """Steps under way in this thread, outermost first: (id of the stepper, id of the frame that runs it)."""
    try:
        return _local.stack  # type: ignore[no-any-return]
    except AttributeError:
        _local.stack = []
        return _local.stack  # type: ignore[no-any-return]


def _enter(stepper: Any, frame: Any) -> None:
    stack = _stack()
    if stack:  # a frame of the same id is one that is gone
        stack[:] = [entry for entry in stack if entry[1] != id(frame)]
    stack.append((id(stepper), id(frame)))


def _leave(stepper: Any, frame: Any) -> None:
    """A step has ended: take it off, and what an exception left above or below it; outermost means boundary."""
    stack = _stack()
    mine = id(stepper)
    while stack and stack.pop()[0] != mine:
        pass
    if stack:  # inside another step, or one that raised and never ended? Only a frame on the stack is alive
        alive = set()
        while frame.f_back is not None:
            frame = frame.f_back
            alive.add(id(frame))
        stack[:] = [entry for entry in stack if entry[1] in alive]
    if not stack:
        _boundary(stepper)


def _boundary(stepper: Any) -> None:
    if gate.counter is not gate.hooked:
        return
    torch = sys.modules.get("torch")
    if torch is None or torch._C._current_graph_task_id() != -1:
        return  # inside backward every parameter steps alone: such a script must call carbontui.step() itself
    worth = _leader.worth(stepper)
    if worth == 0:
        gate.asides += 1
    gate.hooked.step(worth)


def _before(optimizer: Any, args: Any, kwargs: Any) -> None:
    try:
        _enter(optimizer, sys._getframe(1))
    except Exception:
        return


def _after(optimizer: Any, args: Any, kwargs: Any) -> None:
    try:
        _leave(optimizer, sys._getframe(1))
    except Exception:  # SystemExit and KeyboardInterrupt pass: they are meant
        return


def on_optimizer(module: Any) -> List[Any]:
    """torch.optim.optimizer has been imported; returns the handles by which torch removes the hooks."""
    return [module.register_optimizer_step_pre_hook(_before), module.register_optimizer_step_post_hook(_after)]


def on_grad_scaler(module: Any) -> None:
    """A module with a GradScaler has been imported: a step it skips is a boundary too, once per call."""
    scaler = module.GradScaler
    inner = scaler.__dict__.get("step")
    if inner is None or hasattr(inner, "_carbontui"):
        return

    @functools.wraps(inner)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe()
        _enter(self, frame)
        result = inner(self, optimizer, *args, **kwargs)
        try:
            _leave_scaler(self, optimizer, frame)
        except Exception:
            pass
        return result

    step._carbontui = True  # type: ignore[attr-defined]
    scaler.step = step


def _leave_scaler(scaler: Any, optimizer: Any, frame: Any) -> None:
    """As _leave, but the step is the optimizer's, so that one without a scaler before it goes on leading."""
    stack = _stack()
    while stack and stack.pop()[0] != id(scaler):
        pass
    stack.append((id(optimizer), id(frame)))
    _leave(optimizer, frame)


def _later(name: str) -> Callable[[Any], None]:
    """A function of callbacks.py, which is loaded only where its framework is."""

    def call(module: Any) -> None:
        from carbontui.client import callbacks

        getattr(callbacks, name)(module)

    return call


# module name -> what to do once it has been imported; sitecustomize.py lists the same names
WATCHED = {
    "torch.optim.optimizer": on_optimizer,
    "torch.amp.grad_scaler": on_grad_scaler,
    "torch.cuda.amp.grad_scaler": on_grad_scaler,
    "transformers.trainer": _later("on_transformers"),
    "pytorch_lightning.trainer.trainer": _later("on_lightning"),
    "lightning.pytorch.trainer.trainer": _later("on_lightning"),
}
