"""A pause outlasts the timeouts of collectives and loaders: no rank is held inside one."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from later import needs

pytestmark = [needs("torch"), pytest.mark.long]

TIMEOUT_S = 4

SCRIPT = f"""
import os, sys, time, torch, torch.distributed as dist
from datetime import timedelta
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds={TIMEOUT_S}))
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(400_000, 8))
loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, timeout={TIMEOUT_S})
for done, (batch,) in enumerate(loader):
    model(batch).sum().backward()
    opt.step(); opt.zero_grad()
    if rank == 1 and os.path.exists("alone"):
        time.sleep({3 * TIMEOUT_S})  # by itself, while the other rank waits in its collective
    flag = torch.tensor([float(os.path.exists("enough"))])
    dist.all_reduce(flag)
    if flag.item() > 0:
        break
os.write(1, f"rank {{rank}} done {{done}}\\n".encode())
dist.destroy_process_group()
"""


def started(supervisor, launch, tmp_path):
    script = tmp_path / "timed.py"
    script.write_text(SCRIPT)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    process = launch(argv)
    supervisor.wait(lambda: all((one := supervisor.last(rank)) and one.step > 5 for rank in (0, 1)), 60, "both train")
    return process


@pytest.mark.timeout(180)
def test_a_pause_outlasts_the_timeouts_of_collectives_and_loaders(supervisor, launch, finish, tmp_path):
    process = started(supervisor, launch, tmp_path)
    supervisor.pause(2)
    supervisor.wait(lambda: supervisor.last(0).state == supervisor.last(1).state == "paused", 60, "both held")
    until = time.monotonic() + 3 * TIMEOUT_S
    supervisor.wait(lambda: time.monotonic() > until, 60, "longer than any timeout")
    assert supervisor.last(0).step == supervisor.last(1).step
    before = supervisor.last(0).step
    supervisor.want("run")
    supervisor.wait(lambda: supervisor.last(0).step > before + 20, 60, "it trains on")
    (Path(tmp_path) / "enough").touch()
    told = finish(process)
    assert "rank 0 done" in told and "rank 1 done" in told, told


@pytest.mark.timeout(180)
def test_a_rank_that_stands_still_alone_is_what_the_timeout_is_for(supervisor, launch, tmp_path):
    process = started(supervisor, launch, tmp_path)
    (tmp_path / "alone").touch()
    told = process.communicate(timeout=120)[0]
    assert process.returncode != 0 and "imed out" in told + str(process.stderr or ""), told
