"""A distributed training under real torchrun, and rounds of pausing it."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

from leaks import Leaks

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
if rank == int(os.environ.get("ALONE", -1)):  # a search for the learning rate, a head that is warmed up
    other = torch.nn.Linear(8, 8)
    warm = torch.optim.SGD(other.parameters(), lr=0.01)
    for _ in range(3):
        other(torch.randn(4, 8)).sum().backward()
        warm.step()
    del warm
dist.barrier()
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
if os.environ.get("ADVERSE"):  # proposals three steps ahead that reach the others up to 30 ms late
    from carbontui.client.pausing import ranks
    slow, ranks.LEAD_S = random.Random(100 + rank), 0.0
    plain = ranks.Store.take
    def late(self, key):
        value = plain(self, key)
        time.sleep(slow.random() * 0.03)
        return value
    ranks.Store.take = late
    first = ranks.Store.first
    def decided(self, key, value):
        if value == "abort":
            print("aborted", key, flush=True)
        return first(self, key, value)
    ranks.Store.first = decided
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
os.write(1, f"rank {rank} done {done}\\n".encode())  # one write: the ranks share one file
dist.destroy_process_group()
"""


def agree(
    supervisor, launch, finish, folder: Path, *, agents: int, per_agent: int, rounds: int, adverse: bool, orphaned=False
) -> int:
    """Pause `rounds` times; every time all ranks must name the same step. Orphaned: at last the supervisor dies while
    they are held. Returns the proposals that were aborted."""
    world = agents * per_agent
    script = folder / "ddp.py"
    script.write_text(DDP)
    argv = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={agents}", f"--nproc-per-node={per_agent}"]
    if agents > 1:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        argv += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=7"]
    else:
        argv += ["--standalone"]
    extra = {"ADVERSE": "1"} if adverse else {}
    jobs = [launch([*argv, str(script), "1000000", "0.004"], **extra) for _ in range(agents)]
    supervisor.wait(lambda: len(supervisor.live()) == world, 90, "all ranks")
    leaks = Leaks()
    for i in range(rounds):
        assert len(set(supervisor.pause(world))) == 1, f"round {i}: {supervisor.seen()}"
        gen = supervisor.want("run")
        supervisor.wait(lambda gen=gen: all(supervisor.acked(gen, r) for r in range(world)))
        leaks.sample(*(rank.hello.pid for rank in supervisor.live()))
    leaks.check()
    if orphaned:
        supervisor.lease_s = 1.0
        supervisor.pause(world)
    (folder / "enough").touch()
    if orphaned:
        supervisor.kill()  # held without a lease? Nobody is, on any rank
    outs = [finish(job, timeout_s=100) for job in jobs]
    done = [step for out in outs for step in re.findall(r"rank \d+ done (\d+)", out)]
    assert len(done) == world and len(set(done)) == 1
    return sum(out.count("aborted") for out in outs)
