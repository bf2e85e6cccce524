"""A training on two nodes of a real Slurm is unloaded: all ranks leave at one step, and come back bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import free_port
from house import until
from several import Several

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(300)]

TRAIN = """\
import hashlib, os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
import carbontui
if "SLURM_PROCID" in os.environ:
    os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", sys.argv[2]
folder, steps = Path(sys.argv[1]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
state, step = folder / "state.pt", 0
if state.exists():
    kept = torch.load(state)
    model.load_state_dict(kept["model"]), optimizer.load_state_dict(kept["optimizer"])
    step = kept["step"]

@carbontui.on_checkpoint
def save():
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{state}.part")
        os.replace(f"{state}.part", state)

marks = open(folder / f"marks.{rank}", "a", buffering=1)
marks.write("life\\n")
while step < steps:
    torch.manual_seed(2 * step + rank)
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    time.sleep(float(sys.argv[4]))
    step += 1
    marks.write(f"{step}\\n")
    carbontui.step()
values = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
(folder / f"weights.{rank}").write_text(hashlib.sha256(values).hexdigest())
dist.barrier()
dist.destroy_process_group()
"""
STEPS = 600


def alone(folder: Path, script: Path, steps: int = STEPS) -> str:
    """The weights of the same two ranks that nothing happened to."""
    folder.mkdir()
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, script, folder, port, str(steps), "0"],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in (0, 1)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    return (folder / "weights.0").read_text()


def test_all_ranks_of_all_nodes_leave_at_one_step_and_come_back_bit_for_bit(two_nodes):
    cluster, house = two_nodes
    folder = house.root / "left"
    folder.mkdir()
    command = f"{sys.executable} {house.root}/ranks.py {folder} {free_port()} {STEPS} 0.03"
    job = Several(cluster, house, script=TRAIN, command=command)
    job.until_all()
    lines = lambda rank: (folder / f"marks.{rank}").read_text().split()  # noqa: E731
    until(lambda: len(lines(0)) > 40, 60, "some steps")
    told = job.tell("rehearse")
    assert told
    until(lambda: all(lines(rank).count("life") == 2 for rank in (0, 1)), 90, "both ranks again")
    before, _after = " ".join(lines(0)).split("life")[1:]
    left_at = before.split()[-1]
    assert " ".join(lines(1)).split("life")[1].split()[-1] == left_at, "one step for all"
    until(lambda: all((folder / f"weights.{rank}").exists() for rank in (0, 1)), 90, "the end of the work")
    for rank in (0, 1):
        assert [word for word in lines(rank) if word != "life"] == [str(step) for step in range(1, STEPS + 1)]
        assert (folder / f"weights.{rank}").read_text() == alone(house.root / f"alone{rank}", house.root / "ranks.py")
    assert job.until_over() == "COMPLETED"
    assert job.left_over() == []
