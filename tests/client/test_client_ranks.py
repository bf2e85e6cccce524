"""Distributed jobs under real torchrun with gloo: every rank at the same step, or nobody stops."""

from __future__ import annotations

import re
import sys

import pytest

pytest.importorskip("torch")

DDP = """
import json, os, random, sys, time, torch, torch.distributed as dist
import carbontui
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
steps, jitter = int(sys.argv[1]), float(sys.argv[2])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
done = 0
if len(sys.argv) > 3:
    path = sys.argv[3] + f".{rank}"
    if os.environ.get("CARBONTUI_RESUME"):
        done = json.load(open(path))["done"]
    @carbontui.on_checkpoint
    def save():
        dist.barrier()
        if os.path.exists(sys.argv[3] + f".fail{rank}"):
            raise RuntimeError("no room")
        json.dump({"done": done}, open(path, "w"))
rng = random.Random(rank)
while done < steps:
    if jitter:
        time.sleep(rng.random() * jitter)
    done += 1
    model(torch.randn(4, 8)).sum().backward()
    opt.step(); opt.zero_grad()
    flag = torch.tensor([float(os.path.exists("enough"))])
    dist.all_reduce(flag)
    if flag.item() > 0:
        break
print("rank", rank, "done", done, flush=True)
dist.destroy_process_group()
"""


def torchrun(launch, tmp_path, supervisor, *args, world=2):
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world), str(script)]
    process = launch(argv, *args)
    supervisor.wait(lambda: all(supervisor.last(r) for r in range(world)), 60, "every rank connected")
    return process


def test_all_ranks_stop_at_the_same_step(supervisor, launch, finish, tmp_path):
    process = torchrun(launch, tmp_path, supervisor, "100000", "0.01")
    for _ in range(6):
        steps = supervisor.pause(2)
        assert len(set(steps)) == 1
        supervisor.wait(lambda: {supervisor.last(r).state for r in (0, 1)} == {"paused"})
        assert [supervisor.last(r).step for r in (0, 1)] == steps
        gen = supervisor.want("run")
        supervisor.wait(lambda gen=gen: all(supervisor.acked(gen, r) for r in (0, 1)))
    (tmp_path / "enough").touch()
    out = finish(process)
    assert len(re.findall(r"rank \d done", out)) == 2
    assert len(set(re.findall(r"done (\d+)", out))) == 1
