"""Distributed jobs under real torchrun with gloo: every rank at the same step, or nobody stops."""

from __future__ import annotations

import json
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


def torchrun(launch, tmp_path, supervisor, *args, world=2, resume=False):
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world), str(script)]
    before = len(supervisor.ranks)
    process = launch(argv, *args, resume=resume)
    supervisor.wait(
        lambda: len(supervisor.live()) == world and len(supervisor.ranks) == before + world, 60, "all ranks"
    )
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


def test_unload_leaves_together_and_comes_back(supervisor, launch, finish, tmp_path):
    """Every rank saves, exits 0, the marker says where; a rank that cannot save keeps everybody."""
    target, marker = str(tmp_path / "state"), tmp_path / "marker.json"
    (tmp_path / "state.fail1").touch()
    process = torchrun(launch, tmp_path, supervisor, "100000", "0.005", target)
    gen = supervisor.want("unload")
    supervisor.wait(lambda: all(supervisor.acked(gen, r) for r in (0, 1)), 60, "held instead")
    supervisor.wait(lambda: {supervisor.last(r).state for r in (0, 1)} == {"paused"})
    assert not marker.exists()
    (tmp_path / "state.fail1").unlink()
    gen = supervisor.want("unload", not_before="2030-01-01T00:00:00.000Z")
    supervisor.wait(lambda: all(supervisor.acked(gen, r) for r in (0, 1)), 60, "leaving")
    supervisor.want("run")
    assert "no room" in finish(process)
    told = json.loads(marker.read_text())
    assert told["not_before"] == "2030-01-01T00:00:00.000Z"
    states = [json.loads((tmp_path / f"state.{r}").read_text()) for r in (0, 1)]
    assert states == [{"done": told["step"]}] * 2
    marker.unlink()
    before = len(supervisor.ranks)
    process = torchrun(launch, tmp_path, supervisor, str(told["step"] + 50), "0.0", target, resume=True)
    assert finish(process).count(f"done {told['step'] + 50}") == 2
    assert len(supervisor.ranks) == before + 2


def test_a_dead_supervisor_lets_all_ranks_go(supervisor, launch, finish, tmp_path):
    process = torchrun(launch, tmp_path, supervisor, "100000", "0.0")
    supervisor.lease_s = 2.0
    supervisor.pause(2)
    (tmp_path / "enough").touch()
    supervisor.kill()
    assert len(re.findall(r"rank \d done", finish(process))) == 2


def test_two_agents_stop_at_the_same_step(supervisor, launch, finish, tmp_path):
    """Two torchrun agents, as on two hosts."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
        "--rdzv-backend",
        "c10d",
    ]
    argv += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "7", str(script), "100000", "0.01"]
    agents = [launch(argv) for _ in range(2)]
    supervisor.wait(lambda: all(supervisor.last(r) for r in (0, 1)), 60, "every rank connected")
    for _ in range(4):
        assert len(set(supervisor.pause(2))) == 1
        gen = supervisor.want("run")
        supervisor.wait(lambda gen=gen: all(supervisor.acked(gen, r) for r in (0, 1)))
    (tmp_path / "enough").touch()
    assert len({re.search(r"done (\d+)", finish(agent))[1] for agent in agents}) == 1
