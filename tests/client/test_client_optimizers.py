"""Which optimizer steps are boundaries, and which are steps, on real torch."""

from __future__ import annotations

import importlib
import os
import warnings

import pytest

torch = pytest.importorskip("torch")

from carbontui.client import hooks  # noqa: E402
from carbontui.client.gate import Gate  # noqa: E402
from carbontui.client.wire import Want  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def registered():
    handles = hooks.on_optimizer(importlib.import_module("torch.optim.optimizer"))
    plain = torch.amp.grad_scaler.GradScaler.step
    hooks.on_grad_scaler(torch.amp.grad_scaler)
    yield
    torch.amp.grad_scaler.GradScaler.step = plain
    for handle in handles:
        handle.remove()


@pytest.fixture
def gate(monkeypatch):
    fresh = Gate()
    monkeypatch.setattr(hooks, "gate", fresh)
    monkeypatch.setattr(hooks, "_leader", hooks._Leader())
    hooks._stack().clear()
    return fresh


def pair(kind=torch.optim.SGD, **options):
    layer = torch.nn.Linear(3, 3)
    return layer, kind(layer.parameters(), **{"lr": 0.01, **options})


def backward(layer):
    layer(torch.ones(2, 3)).sum().backward()


def turn(layer, optimizer, times=1):
    for _ in range(times):
        backward(layer)
        optimizer.step()


def seen(gate):
    return gate.counter.done(), gate.boundaries()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_one_step_one_boundary(gate, kind):
    turn(*pair(kind), times=4)
    assert seen(gate) == (4, 4)


def test_lbfgs_counts_its_steps_not_its_inner_iterations(gate):
    layer, optimizer = pair(torch.optim.LBFGS, max_iter=5)

    def closure():
        optimizer.zero_grad()
        loss = layer(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert seen(gate) == (3, 3)


def test_accumulated_gradients_step_once(gate):
    layer, optimizer = pair()
    for micro in range(12):
        backward(layer)
        if micro % 4 == 3:
            optimizer.step()
    assert seen(gate) == (3, 3)


def test_two_optimizers_are_two_boundaries_and_one_step(gate):
    first, second = pair(), pair()
    for _ in range(5):
        turn(*first)
        turn(*second)
    assert seen(gate) == (5, 10)


def test_a_new_optimizer_leads_when_the_first_is_gone_or_idle(gate):
    layer, optimizer = pair()
    turn(layer, optimizer, 3)
    del optimizer
    turn(*pair(), times=2)
    assert gate.counter.done() == 5
    keep, idle = pair()
    late, busy = pair()
    turn(keep, idle, hooks.STALE_AFTER + 2)
    before = gate.counter.done()
    turn(late, busy, hooks.STALE_AFTER + 10)
    assert gate.counter.done() == before + 10
    del idle


def test_an_optimizer_inside_another_is_no_boundary(gate):
    layer, inner = pair()

    class Outer(torch.optim.Optimizer):
        def __init__(self):
            super().__init__(layer.parameters(), {})

        def step(self, closure=None):
            inner.step()
            inner.step()

    turn(layer, Outer(), 6)
    assert seen(gate) == (6, 6)


def test_a_step_that_raises_does_not_close_the_gate(gate):
    layer, bad = pair()
    good_layer, good = pair()

    def closure():
        raise ValueError("loss is gone")

    turn(layer, bad)
    with pytest.raises(ValueError):
        bad.step(closure)
    turn(good_layer, good)  # the stack still names the step that raised
    assert gate.boundaries() == 2
    turn(layer, bad)
    assert seen(gate) == (2, 3)


def test_optimizer_in_backward_is_refused(gate):
    layer = torch.nn.Linear(3, 3)
    each = {p: torch.optim.SGD([p], lr=0.01) for p in layer.parameters()}
    for p in layer.parameters():
        p.register_post_accumulate_grad_hook(lambda q: each[q].step())
    for _ in range(6):
        backward(layer)
    assert seen(gate) == (0, 0)


def test_a_skipped_amp_step_is_a_boundary_too(gate):
    layer, optimizer = pair()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for i in range(6):
        backward(layer)
        scaler.scale(layer(torch.ones(2, 3)).sum()).backward()
        if i % 3 == 1:
            layer.weight.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert seen(gate) == (6, 6)


def test_compiled_steps_count(gate):
    layer, optimizer = pair()
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            backward(layer)
            step()
    assert seen(gate) == (4, 4)


def test_zero_redundancy_counts_once(gate, tmp_path):
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer

    dist.init_process_group("gloo", store=dist.FileStore(os.fspath(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        layer = torch.nn.Linear(3, 3)
        optimizer = ZeroRedundancyOptimizer(layer.parameters(), optimizer_class=torch.optim.SGD, lr=0.01)
        turn(layer, optimizer, 6)
        assert seen(gate) == (6, 6)
    finally:
        dist.destroy_process_group()


def test_system_exit_passes_and_other_faults_do_not(gate, monkeypatch):
    layer, optimizer = pair()
    turn(layer, optimizer)

    def broken():
        raise RuntimeError("ours, never theirs")

    monkeypatch.setattr(gate, "quiesce", broken)
    gate.accept(Want("pause", 1, 60.0))
    turn(layer, optimizer)
    gate.accept(Want("run", 2, 60.0))

    def leaving():
        raise SystemExit(0)

    monkeypatch.setattr(gate, "on_boundary", leaving)
    gate.accept(Want("run", 3, 60.0))
    with pytest.raises(SystemExit):
        turn(layer, optimizer)
    assert hooks._stack() == []


def test_an_explicit_step_silences_the_hook(gate):
    layer, optimizer = pair()
    for _ in range(4):
        turn(layer, optimizer)
        gate.explicit.step()
    assert seen(gate) == (4, 4)
