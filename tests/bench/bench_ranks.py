"""How soon many ranks stand at one step, and what that takes of the descriptors of the process with the store.

    python tests/bench/bench_ranks.py WORLD NODES [ROUNDS]      # one line of JSON; PYTHONPATH names the tree to measure

The ranks are forked from one process with torch loaded; those of a "node" share a host name of their own (unshare
--uts; as root). Each has a connection to torch's TCPStore, as after init_process_group, and steps of 10 ms in which no
rank runs ahead of another. `ulimit -n` is 1024. Seconds are from the order to the last rank's word that it stands.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "client"), str(HERE.parent)]

TRAIN = """\
import ctypes, mmap, multiprocessing, os, resource, socket, sys, time
import torch
world, nodes, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
torch.set_num_threads(1)
over = mmap.mmap(-1, 1)
come, go = multiprocessing.Semaphore(0), (multiprocessing.Semaphore(0), multiprocessing.Semaphore(0))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
for rank in range(world):
    if os.fork() == 0:
        break
else:
    for _ in range(world):
        os.wait()
    sys.exit()
local = world // nodes
ctypes.CDLL(None).unshare(0x04000000)
socket.sethostname(f"n{rank // local}")
os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": f"{world}", "LOCAL_RANK": f"{rank % local}",
               "LOCAL_WORLD_SIZE": f"{local}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
from datetime import timedelta
store = torch.distributed.TCPStore("127.0.0.1", port, world, is_master=rank == 0, timeout=timedelta(seconds=300))
import carbontui
done = 0
while not over[0]:
    time.sleep(0.01)
    done += 1
    if rank == 0:  # a barrier that sleeps, as a collective on a GPU does
        for _ in range(world - 1):
            come.acquire()
        over[0] = os.path.exists(end)
        for _ in range(world - 1):
            go[done % 2].release()
    else:
        come.release()
        go[done % 2].acquire()
    carbontui.step()
if rank == 0:
    open(end + ".fds", "w").write(str(len(os.listdir("/proc/self/fd"))))
os._exit(0)
"""


def main(world: int, nodes: int, rounds: int) -> dict[str, object]:
    from fake_supervisor import FakeSupervisor

    from carbontui.client import inject

    root = Path(tempfile.mkdtemp(prefix="ct-ranks-"))
    hook = inject.build(root)
    supervisor = FakeSupervisor(root / "s")
    base = {key: value for key, value in os.environ.items() if not key.startswith("CARBONTUI_")}
    env = inject.environment(
        {**base, "OMP_NUM_THREADS": "1"}, hook_dir=hook, socket=supervisor.path, job="bench", marker=root / "m",
        resume=False,
    )  # fmt: skip
    (root / "train.py").write_text(TRAIN)
    end = root / "end"
    process = subprocess.Popen([sys.executable, str(root / "train.py"), str(world), str(nodes), str(end)], env=env)
    try:
        supervisor.wait(
            lambda: len({r.hello.rank for r in supervisor.live() if r.hello.world > 1}) == world, 400, "all"
        )
        supervisor.wait(lambda: all((o := supervisor.last(r)) and o.step > 20 for r in range(world)), 300, "steps")
        time.sleep(4.0 if world < 100 else 20.0)  # until all have a way to the store
        taken, same, rates = [], 0, []
        for _ in range(rounds):
            first, since = supervisor.last(0).step, time.monotonic()
            time.sleep(2.0)
            rates.append((supervisor.last(0).step - first) / (time.monotonic() - since))
            began = time.monotonic()
            steps = supervisor.pause(world, 120)
            taken.append(time.monotonic() - began)
            same += len(set(steps)) == 1
            supervisor.want("run")
        end.touch()
        process.wait(120)
        fds = Path(f"{end}.fds")
        return {
            "world": world, "nodes": nodes, "pauses": rounds, "at_one_step": same,
            "steps_per_s": round(statistics.median(rates), 1),
            "last_stands_after_s": [round(one, 3) for one in taken],
            "median_s": round(statistics.median(taken), 3),
            "descriptors_of_rank_0": int(fds.read_text()) if fds.exists() else None, "of": 1024,
            "load_average": round(os.getloadavg()[0], 1),
        }  # fmt: skip
    finally:
        if process.poll() is None:
            end.touch()
            process.kill()
        supervisor.kill()


if __name__ == "__main__":
    args = [int(one) for one in sys.argv[1:]]
    print(json.dumps(main(args[0], args[1], args[2] if len(args) > 2 else 9)), flush=True)
