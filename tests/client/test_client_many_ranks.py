"""Ranks by the hundred in one process tree: what we hold open is not missing to their training.

The suite forks 64; MANY_RANKS=512, as .ci/run has it, is a node of the largest kind at the usual limit of 1,024.
"""

from __future__ import annotations

import json
import os

import pytest
from later import needs

pytestmark = [needs("torch"), pytest.mark.long, pytest.mark.timeout(280)]

WORLD = int(os.environ.get("MANY_RANKS", "64"))
LIMIT = 2 * WORLD
OWN = LIMIT * 15 // 100
"""What the training may want open beside its save."""
TRAIN = """\
import json, multiprocessing, os, resource, socket, sys, time
from datetime import timedelta
import torch
world, folder = int(sys.argv[1]), sys.argv[2]
limit, own = int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
torch.set_num_threads(1)
come, go = multiprocessing.Semaphore(0), (multiprocessing.Semaphore(0), multiprocessing.Semaphore(0))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
for rank in range(world):
    if os.fork() == 0:
        break
else:
    sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(world)))
os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": f"{world}", "LOCAL_RANK": f"{rank}", "LOCAL_WORLD_SIZE": f"{world}"}
store = torch.distributed.TCPStore("127.0.0.1", port, world, is_master=rank == 0, timeout=timedelta(seconds=250))
import carbontui

def together(turn):
    if rank:
        come.release()
        go[turn % 2].acquire()
        return
    for _ in range(world - 1):
        come.acquire()
    for _ in range(world - 1):
        go[turn % 2].release()

for turn in range(60):
    time.sleep(0.01)
    together(turn)
    carbontui.step()
failed = ""
mine = []
try:
    mine = [open(os.devnull) for _ in range(own if rank == 0 else 0)]
    torch.save({"rank": rank, "weights": torch.ones(64) * rank}, f"{folder}/{rank}.pt")
    again = torch.load(f"{folder}/{rank}.pt")
    assert again["rank"] == rank and bool((again["weights"] == rank).all())
except BaseException as error:
    failed = repr(error)
if rank == 0:
    with open(f"{folder}/open.json", "w") as told:
        json.dump(len(os.listdir("/proc/self/fd")), told)
together(60)  # the store's ends are open until all have saved
if failed:
    print(rank, failed, flush=True)
os._exit(bool(failed))
"""


def test_every_forked_rank_saves_with_torch_under_a_tight_limit_of_files(supervisor, launch, finish, tmp_path):
    process = launch(TRAIN, f"{WORLD}", f"{tmp_path}", f"{LIMIT}", f"{OWN}")
    finish(process, timeout_s=250)
    said = {one.hello.rank for one in supervisor.ranks if one.hello and one.hello.world == WORLD}
    assert said == set(range(WORLD))
    assert len(list(tmp_path.glob("*.pt"))) == WORLD
    assert WORLD + OWN < json.loads((tmp_path / "open.json").read_text()) < LIMIT
