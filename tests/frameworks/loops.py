"""Plain loops of every make, as people write them: python loops.py KIND [--checkpoint FILE]

With --checkpoint the loop can be unloaded, by the few lines that the README gives; without, nothing of carbontui is in
it. Steps take a moment where a pause is to be met.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import tempfile
import time

import torch
from torch import nn

max_iters = 120
"""Named as scripts do, so that it can be guessed."""
SIZE, BATCH = 256, 8


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 8))


def data() -> torch.Tensor:
    return torch.randn(SIZE, 8, generator=torch.Generator().manual_seed(5))


def plain_order(step: int):
    draw = torch.Generator().manual_seed(9)
    while True:
        yield torch.randint(SIZE, (BATCH,), generator=draw)


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    if "CARBONTUI_SOCKET" in os.environ:
        time.sleep(0.02 if torch.distributed.is_initialized() else 0.005)
    return (model(batch) - batch).square().mean()


class Loop:
    """`parts` are what a checkpoint holds; yields batches from where it goes on."""

    def __init__(self, checkpoint: str | None, **parts) -> None:
        self.step, self.saved, self.order = 0, None, plain_order(0)
        if checkpoint:
            import carbontui
            from carbontui.client.checkpoint import Checkpoint, ShuffledIndices

            self.saved = Checkpoint(checkpoint, **parts)
            self.step = self.saved.resume()
            self.order = ShuffledIndices(SIZE, BATCH, seed=9).batches(self.step)
            carbontui.report(total=max_iters)

    def batches(self):
        inputs = data()
        while self.step < max_iters:
            yield inputs[next(self.order)]

    def stepped(self) -> None:
        self.step += 1
        if self.saved:
            import carbontui

            carbontui.step()


def result(steps: int, *models: nn.Module) -> None:
    weights = b"".join(p.detach().numpy().tobytes() for model in models for p in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
    print("steps", steps, flush=True)


def plain(checkpoint, *, compiled=False):
    model = network(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max_iters)
    loop = Loop(checkpoint, model=model, optimizer=optimizer, schedule=schedule)
    forward = torch.compile(model, backend="eager") if compiled else model
    update = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
    for batch in loop.batches():
        optimizer.zero_grad()
        loss_of(forward, batch).backward()
        update()
        schedule.step()
        loop.stepped()
    result(loop.step, model)


def accumulation(checkpoint):
    model = network(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=20)
    loop = Loop(checkpoint, model=model, optimizer=optimizer, scaler=scaler)
    for batch in loop.batches():
        for half in batch.chunk(2):
            scaler.scale(loss_of(model, half) / 2).backward()
        if loop.step % 40 == 39:  # an overflow: the scaler skips this step, and it counts
            next(model.parameters()).grad.fill_(math.inf)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        loop.stepped()
    result(loop.step, model)


def lbfgs(checkpoint):
    model = network(1).eval()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    loop = Loop(checkpoint, model=model, optimizer=optimizer)
    for batch in loop.batches():

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        optimizer.step(closure)
        loop.stepped()
    result(loop.step, model)


def gan(checkpoint):
    first, second = network(1), network(2)
    optimizers = [torch.optim.AdamW(net.parameters(), lr=1e-2) for net in (first, second)]
    loop = Loop(checkpoint, first=first, second=second, a=optimizers[0], b=optimizers[1])
    for batch in loop.batches():
        for net, other, optimizer in ((first, second, optimizers[0]), (second, first, optimizers[1])):
            optimizer.zero_grad()
            (net(batch) - other(batch).detach() - batch).square().mean().backward()
            optimizer.step()
        loop.stepped()
    result(loop.step, first, second)


def nanogpt(checkpoint):
    """In the manner of nanoGPT: micro-steps, a scaler that is off, clipping, a rate set by hand, an evaluation now and
    then that draws from the random states."""
    model = network(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    loop = Loop(checkpoint, model=model, optimizer=optimizer, scaler=scaler)
    for batch in loop.batches():
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * loop.step / max_iters))
        if loop.step % 25 == 0:
            model.eval()
            with torch.no_grad():
                loss_of(model, torch.randn(BATCH, 8))
            model.train()
        for half in batch.chunk(2):
            scaler.scale(loss_of(model, half) / 2).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        loop.stepped()
    result(loop.step, model)


def folds(checkpoint, count=4):
    """Trainings in turn, every model kept."""
    models = [network(fold) for fold in range(count)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01 * (fold + 1)) for fold, model in enumerate(models)]
    kept = {f"{kind}{i}": part for kind, parts in (("m", models), ("o", optimizers)) for i, part in enumerate(parts)}
    loop = Loop(checkpoint, **kept)
    for batch in loop.batches():
        fold = loop.step * count // max_iters
        optimizers[fold].zero_grad()
        loss_of(models[fold], batch).backward()
        optimizers[fold].step()
        loop.stepped()
    result(loop.step, *models)


def study(checkpoint, trials=4):
    import optuna

    models, kept = [], []

    def objective(trial: optuna.DryRun) -> float:
        model = network(trial.number)
        optimizer = torch.optim.SGD(model.parameters(), lr=trial.suggest_float("lr", 1e-3, 1e-1, log=True))
        models.append(model)
        kept.append(optimizer)
        inputs, order = data(), plain_order(0)
        for _ in range(max_iters // trials):
            optimizer.zero_grad()
            loss_of(model, inputs[next(order)]).backward()
            optimizer.step()
        return float(loss_of(model.eval(), inputs).detach())

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    made = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    made.optimize(objective, n_trials=trials)
    result(max_iters, *models)


def ensemble(checkpoint):
    members = [network(seed) for seed in range(3)]
    optimizers = [torch.optim.SGD(member.parameters(), lr=1e-2) for member in members]
    loop = Loop(checkpoint, **{f"m{i}": m for i, m in enumerate(members)})
    for batch in loop.batches():
        for member, optimizer in zip(members, optimizers, strict=True):
            optimizer.zero_grad()
            loss_of(member, batch).backward()
            optimizer.step()
        loop.stepped()
    result(loop.step, *members)


def distributed(rank: int, world: int, how: str, where: str, checkpoint: str | None) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    if how == "env":
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": where, "RANK": str(rank), "WORLD_SIZE": str(world)}
    method = {"env": "env://", "file": f"file://{where}", "tcp": f"tcp://127.0.0.1:{where}", "torchrun": None}[how]
    more = {} if how == "torchrun" else {"init_method": method, "rank": rank, "world_size": world}
    dist.init_process_group("gloo", **more)
    model = network(1).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loop = Loop(checkpoint, model=model, optimizer=optimizer)
    parallel = nn.parallel.DistributedDataParallel(model)
    for batch in loop.batches():
        optimizer.zero_grad()
        loss_of(parallel, batch).backward()
        optimizer.step()
        loop.stepped()
    whole = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    os.write(1, f"weights {hashlib.sha256(whole).hexdigest()}\nsteps {loop.step}\n".encode())
    dist.destroy_process_group()


def spawned(how: str, checkpoint: str | None) -> None:
    import socket

    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        where = os.path.join(folder, "store") if how == "file" else str(probe.getsockname()[1])
        probe.close()
        torch.multiprocessing.spawn(distributed, (2, how, where, checkpoint), nprocs=2)


KINDS = {
    "plain": plain,
    "accumulation": accumulation,
    "lbfgs": lbfgs,
    "gan": gan,
    "compiled": lambda checkpoint: plain(checkpoint, compiled=True),
    "nanogpt": nanogpt,
    "folds": folds,
    "study": study,
    "ensemble": ensemble,
    "torchrun": lambda checkpoint: distributed(0, 2, "torchrun", "", checkpoint),
    "spawn-env": lambda checkpoint: spawned("env", checkpoint),
    "spawn-file": lambda checkpoint: spawned("file", checkpoint),
    "spawn-tcp": lambda checkpoint: spawned("tcp", checkpoint),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--checkpoint")
    told = parser.parse_args()
    torch.set_num_threads(1)
    KINDS[told.kind](told.checkpoint)
