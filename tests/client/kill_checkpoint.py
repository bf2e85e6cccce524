"""Kill a process that saves without a break, at random moments; count the checkpoints that can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# one process imports torch and forks savers, so that a kill costs a fork and not an import
FORKER = """
import os, random, signal, sys, time, torch
from carbontui.client.checkpoint import Checkpoint
torch.set_num_threads(1)
path, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
good = step = 0
for i in range(count):
    ready_r, ready_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        model = torch.nn.Linear(300, 300)
        saved = Checkpoint(path, model=model)
        step = saved.resume()
        while True:
            step += 1
            with torch.no_grad():
                model.weight.fill_(step)
                model.bias.fill_(step)
            saved.save(step)
            os.write(ready_w, b"!")
    os.read(ready_r, 1)
    time.sleep(rng.random() * 0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(ready_r)
    os.close(ready_w)
    try:
        state = torch.load(path, weights_only=True)
        model = state["parts"]["model"]
        assert bool((model["weight"] == state["step"]).all() and (model["bias"] == state["step"]).all())
        good, step = good + 1, state["step"]
    except Exception as error:
        print("unreadable", error, file=sys.stderr)
print(good, step)
"""


def kills(folder: Path, count: int, seed: int) -> int:
    """How many of `count` kills left a readable, whole checkpoint."""
    argv = [sys.executable, "-c", FORKER, str(folder / "killed.pt"), str(count), str(seed)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=True)
    good, steps = done.stdout.split()
    assert int(steps) >= count, f"the savers got to save: {done.stderr}"
    return int(good)
