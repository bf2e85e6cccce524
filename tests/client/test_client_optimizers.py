"""Which optimizer steps are boundaries, and which are steps, on real torch."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import warnings

import pytest
from later import IN_PROCESS, Later, needs

from carbontui.client import api, device, hooks
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.wire import DesiredLine

torch = Later("torch")
pytestmark = [needs("torch"), IN_PROCESS]
ENGINE = "_engine_run_backward"
KINDS = ("SGD", "AdamW", "Adam", "LBFGS")


@pytest.fixture
def gate(monkeypatch):
    """A gate of its own, with the hook on every class as if torch were imported only now."""
    fresh = Gate()
    monkeypatch.setattr(hooks, "gate", fresh)
    monkeypatch.setattr(hooks, "leader", hooks.Leader())
    monkeypatch.setattr(hooks, "passes", hooks.BackwardPasses())
    monkeypatch.setattr(torch.autograd, ENGINE, getattr(torch.autograd, ENGINE))
    module = importlib.import_module("torch.optim.optimizer")
    plain = module.Optimizer.__dict__["profile_hook_step"]
    kinds = [getattr(torch.optim, name) for name in KINDS]
    steps = {kind: kind.__dict__["step"] for kind in kinds if "step" in kind.__dict__}
    for kind, step in steps.items():
        bare = step
        while hasattr(bare, "hooked"):
            bare = bare.__wrapped__
        kind.step = bare
    monkeypatch.setattr(torch.amp.grad_scaler.GradScaler, "step", torch.amp.grad_scaler.GradScaler.step)
    hooks.on_optimizer(module)
    hooks.on_grad_scaler(torch.amp.grad_scaler)
    yield fresh
    module.Optimizer.profile_hook_step = plain
    for kind, step in steps.items():
        kind.step = step


def pair(kind="SGD", **options):
    layer = torch.nn.Linear(3, 3)
    return layer, getattr(torch.optim, kind)(layer.parameters(), **{"lr": 0.01, **options})


def backward(layer):
    layer(torch.ones(2, 3)).sum().backward()


def turn(layer, optimizer, times=1):
    for _ in range(times):
        backward(layer)
        optimizer.step()


def seen(gate):
    return gate.counter.done(), gate.boundaries()


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_one_step_one_boundary(gate, kind):
    turn(*pair(kind), times=4)
    assert seen(gate) == (4, 4)


def test_lbfgs_counts_its_steps_not_its_inner_iterations(gate):
    layer, optimizer = pair("LBFGS", max_iter=5)

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
    assert gate.counter.done() == before + hooks.STALE_AFTER + 10
    del idle


def test_trainings_in_turn_that_keep_their_optimizers_lose_no_step(gate):
    """Six trials of a study, five folds, a pretraining and its tuning: nothing of them is freed before the end."""
    trials = [pair() for _ in range(6)]
    for trial in trials:
        turn(*trial, times=60)
    assert seen(gate) == (360, 360)


@pytest.mark.parametrize("critic", [1, 5, 40])
def test_a_critic_with_several_steps_an_iteration_counts_once(gate, critic):
    first, second = pair(), pair()
    for _ in range(100 // critic):
        turn(*first, times=critic)
        turn(*second)
    turn(*first)
    assert seen(gate) == (critic * (100 // critic) + 1, critic * (100 // critic) + 1 + 100 // critic)


def test_an_ensemble_in_step_counts_its_first_member(gate):
    members = [pair() for _ in range(5)]
    for _ in range(20):
        for member in members:
            turn(*member)
    assert seen(gate) == (20, 100)


def test_phases_of_two_optimizers_in_turn_count_every_step(gate):
    """A companion that goes on alone has been a training of its own since the leader's last step."""
    first, second = pair(), pair()
    for _ in range(10):
        turn(*first)
        turn(*second)
    turn(*second, times=200)
    assert gate.counter.done() == 10 + 200 + 1  # its last step beside the leader is one of those alone


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


def test_optimizers_that_step_in_backward_are_one_step_at_its_end(gate):
    layer = torch.nn.Linear(3, 3)
    each = {p: torch.optim.SGD([p], lr=0.01) for p in layer.parameters()}
    for p in layer.parameters():
        p.register_post_accumulate_grad_hook(lambda q: each[q].step())
    for _ in range(6):
        backward(layer)
    assert seen(gate) == (6, 6)
    plain = torch.nn.Linear(3, 3)
    turn(plain, torch.optim.SGD(plain.parameters(), lr=0.01), 3)  # an optimizer by itself: from here on its steps alone
    backward(layer)
    assert seen(gate) == (9, 9)


BY_HAND = """
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(3, 3)
for _ in range(20):
    layer(torch.ones(2, 3)).sum().backward(retain_graph=True)
    extra = layer(torch.ones(2, 3)).square().sum()
    torch.autograd.grad(extra, layer.weight, retain_graph=True)
    extra.backward()
    with torch.no_grad():
        for p in layer.parameters():
            {update}
            p.grad = None
print(layer.weight.sum().item().hex())
"""


@pytest.mark.parametrize("update", ["p -= 0.1 * p.grad", "p.data.add_(p.grad, alpha=-0.1)"])
def test_an_update_by_hand_is_a_step_for_each_pass_of_one_place(update, supervisor, launch, finish):
    script = BY_HAND.format(update=update)
    alone = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert finish(launch(script)) == alone.stdout
    assert supervisor.last().step == 20


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
    for _ in range(4):
        backward(layer)
        step()
    assert seen(gate) == (4, 4)


COMPILED = """
import torch, torch._dynamo.utils as dynamo
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
alone = torch.compile(optimizer.step, backend="eager")
for _ in range(5):
    model(torch.randn(4, 8)).sum().backward()
    alone()
    optimizer.zero_grad()
@torch.compile(backend="eager")
def whole(batch):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(5):
    whole(torch.randn(4, 8))
print("frames", dynamo.counters["frames"]["total"])
print("breaks", sum(dynamo.counters["graph_break"].values()), dict(dynamo.counters["stats"]), flush=True)
"""


def test_compiling_an_optimizer_is_as_it_is_without_the_hook(supervisor, launch, finish):
    """The same graphs and breaks, not a warning more, and one frame more: the wrapper, which is looked at and left."""
    plain = subprocess.run(
        [sys.executable, "-W", "always", "-c", COMPILED], capture_output=True, text=True, timeout=100, check=True
    )
    hooked = finish(launch([sys.executable, "-W", "always", "-c", COMPILED]))
    assert hooked.count("Warning") == (plain.stdout + plain.stderr).count("Warning")
    frames, compiled = plain.stdout.split("\n", 1)
    assert hooked[hooked.index("breaks") :] == compiled
    assert int(hooked[hooked.index("frames") :].split()[1]) <= int(frames.split()[1]) + 1
    assert supervisor.last().step == 10


def test_no_boundary_while_a_cuda_graph_is_recorded(gate, monkeypatch):
    """Nothing runs then, and to wait for the device would spoil the recording. A pause holds at the next real step."""
    monkeypatch.setattr(torch.cuda, "_initialized", True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    waited = []
    gate.quiesce, gate.capturing = lambda: waited.append(1), device.capturing
    pair_ = pair()
    gate.accept(DesiredLine("pause", 1, 0.2))
    turn(*pair_, times=3)
    gate.explicit.step()
    assert gate.hooked.done() == 0 and waited == [] and gate.facts["captured"]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    gate.explicit.step()
    assert waited == [1]


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
    gate.accept(DesiredLine("pause", 1, 60.0))
    turn(layer, optimizer)
    gate.accept(DesiredLine("run", 2, 60.0))

    def leaving():
        raise SystemExit(0)

    monkeypatch.setattr(gate, "on_boundary", leaving)
    gate.accept(DesiredLine("run", 3, 60.0))
    with pytest.raises(SystemExit):
        turn(layer, optimizer)


def test_an_explicit_step_silences_the_hook(gate):
    layer, optimizer = pair()
    for _ in range(4):
        turn(layer, optimizer)
        gate.explicit.step()
    assert seen(gate) == (4, 4)


def test_a_loss_with_its_graph_is_reported_without_a_warning(monkeypatch):
    monkeypatch.setattr(api.gate, "facts", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        api.report(loss=torch.ones(1, requires_grad=True).sum())
    assert api.gate.facts["loss"] == 1.0
