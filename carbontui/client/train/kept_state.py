"""Restores all that a trial changes, bit for bit: weights, buffers, gradients, optimizer, modes, random states."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

from carbontui.client.checkpoint import random_states, set_random_states


@contextlib.contextmanager
def kept(model: Any, optimizer: Any) -> Iterator[None]:
    """Restore model, optimizer and Python's, numpy's and torch's random generators afterwards, whatever happens inside.
    Copies are in host memory: nothing is duplicated on a board."""
    import torch

    tensors = [*model.parameters(), *model.buffers()]
    values = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
    gradients = [None if p.grad is None else p.grad.detach().to("cpu", copy=True) for p in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    states = {parameter: _copied(state) for parameter, state in optimizer.state.items()}
    groups = [{name: _copied(value) for name, value in g.items() if name != "params"} for g in optimizer.param_groups]
    dice = random_states()
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, values):
                tensor.copy_(value)
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        for module, training in modes:
            module.training = training
        optimizer.state.clear()
        for parameter, state in states.items():
            optimizer.state[parameter] = _placed(state)
        for group, was in zip(optimizer.param_groups, groups):
            for name in set(group) - set(was) - {"params"}:
                del group[name]
            group.update(_placed(was))
        set_random_states(dice)


class _Away:
    """A tensor's value in host memory, and the device it belongs to."""

    def __init__(self, tensor: Any) -> None:
        self.value, self.device = tensor.detach().to("cpu", copy=True), tensor.device


def _copied(value: Any) -> Any:
    if hasattr(value, "detach"):
        return _Away(value)
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    if isinstance(value, tuple):
        return tuple(_copied(part) for part in value)
    return value


def _placed(value: Any) -> Any:
    if isinstance(value, _Away):
        return value.value.to(value.device, copy=True)
    if isinstance(value, dict):
        return {name: _placed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_placed(part) for part in value]
    if isinstance(value, tuple):
        return tuple(_placed(part) for part in value)
    return value
