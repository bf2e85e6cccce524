"""Boundaries of unmodified scripts: the end of an optimizer step.

A boundary is the end of an outermost optimizer step, never inside backward. One optimizer counts the steps
(detection/leader.py); those of others are boundaries but not steps. An explicit carbontui.step() switches all of this
off, and so does a framework whose own loop reports the end of a step (frameworks/) while it trains.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any

from carbontui.client import device
from carbontui.client.api import gate
from carbontui.client.around import around
from carbontui.client.detection import evidence
from carbontui.client.detection.leader import Leader

leader = Leader()


def _boundary(stepper: Any, *_args: Any) -> None:
    """A step of this optimizer has ended. One function, since it runs at every step."""
    try:
        if gate.counter is not gate.hooked or gate.framework:
            return
        torch = sys.modules.get("torch")
        if torch is None or torch._C._current_graph_task_id() != -1:
            return  # inside backward every parameter steps alone: such a script must call carbontui.step() itself
        if device.capturing():
            evidence.note(evidence.CAPTURED)
            gate.facts["captured"] = True  # this step is recorded, not executed; its replay runs no Python
            return
        worth = leader.worth(stepper)
        if worth != 1:
            gate.asides += 1 - worth
        gate.hooked.step(worth)
    except Exception:  # SystemExit and KeyboardInterrupt pass: they are intended
        return


def on_optimizer(module: Any) -> None:
    """torch.optim.optimizer has been imported: every optimizer class gets the boundary with its first instance, where
    torch wraps its step(). Not a torch hook: torch.compile would trace that, with graph breaks and warnings."""
    plain = module.Optimizer.profile_hook_step
    if hasattr(plain, "_carbontui"):
        return

    @functools.wraps(plain)
    def profile_hook_step(func: Any) -> Any:
        evidence.note(evidence.OPTIMIZER)
        return around(plain(func), _boundary)

    profile_hook_step._carbontui = True  # type: ignore[attr-defined]
    module.Optimizer.profile_hook_step = staticmethod(profile_hook_step)
    evidence.on_gradients()


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
    if file not in ("frameworks.trackers", "frameworks.sweeps"):  # those do not indicate a training
        evidence.note(name)
    getattr(importlib.import_module("carbontui.client." + file), function)(module)
