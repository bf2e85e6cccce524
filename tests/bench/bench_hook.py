"""What the hook costs an unchanged training, and how soon ranks that count differently are held. Run by hand:
python tests/bench/bench_hook.py [--json FILE]

The hook: us per optimizer.step() with it and without, in slices of one run, the link up; the optimizer does nothing, so
that only what torch and the hook add is timed, in CPU time of the thread. The ranks: seconds from `pause` to the last
rank's standing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from ddp_job import DDP
from fake_supervisor import supervised

from carbontui.client import inject

COST = """
import json, statistics, time, timeit, torch
hooked = torch.optim.Optimizer.profile_hook_step
plain = hooked.__wrapped__

def made(hook):
    class Idle(torch.optim.Optimizer):
        def step(self, closure=None):
            pass
    torch.optim.Optimizer.profile_hook_step = staticmethod(hook)
    return Idle([torch.nn.Parameter(torch.zeros(1))], {})

assert hooked is not plain
SLICES = 100
kinds = {"plain": made(plain), "hooked": made(hooked)}
for _ in range(3):
    kinds["hooked"].step()
time.sleep(1.0)
slices = {name: [] for name in kinds}
for _ in range(SLICES):
    for name, optimizer in kinds.items():
        slices[name].append(timeit.timeit(optimizer.step, timer=time.thread_time, number=500) / 500 * 1e6)
found = {name + "_us": round(statistics.median(values), 3) for name, values in slices.items()}
added = [b - a for a, b in zip(slices["plain"], slices["hooked"])]
found["added_us"] = round(statistics.median(added), 3)
print(json.dumps(found))
"""
ROUNDS = 5


def environment(supervisor, folder: Path, **more: str) -> dict[str, str]:
    base = {k: v for k, v in os.environ.items() if not k.startswith("CARBONTUI_")} | {"OMP_NUM_THREADS": "1"} | more
    hook = inject.build(folder / "hook")
    return inject.environment(base, hook_dir=hook, socket=supervisor.path, job="bench", marker=folder / "marker")


def cost() -> dict[str, float]:
    with supervised() as supervisor, tempfile.TemporaryDirectory() as folder:
        env = environment(supervisor, Path(folder))
        done = subprocess.run([sys.executable, "-c", COST], env=env, text=True, capture_output=True, check=True)
        assert supervisor.ranks, "the link was not up"
        return json.loads(done.stdout)


def ranks(ahead: str) -> dict[str, object]:
    """Rank `ahead` has made three steps alone; the first pause must find that out, the others know it."""
    with supervised() as supervisor, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "ddp.py"
        script.write_text(DDP)
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
        process = subprocess.Popen(
            [*argv, "100000", "0.02"], env=environment(supervisor, folder, ALONE=ahead), cwd=folder,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            supervisor.wait(lambda: len(supervisor.live()) == 2, 120, "both ranks")
            time.sleep(2.0)
            took = []
            for _ in range(ROUNDS):
                asked = time.monotonic()
                supervisor.want("pause")
                supervisor.wait(lambda: {supervisor.last(r).state for r in (0, 1)} == {"paused"}, 60, "both held")
                took.append(round(time.monotonic() - asked, 2))
                supervisor.want("run")
                supervisor.wait(lambda: {supervisor.last(r).state for r in (0, 1)} == {"running"}, 60)
        finally:
            process.terminate()
            process.wait()
        return {"ahead": f"rank {ahead}", "held_after_s": took}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} shared vCPU, Linux, Python {platform.python_version()}",
        "load_before": round(os.getloadavg()[0], 2),
        "step": cost(),
        "ranks_that_count_differently": [ranks(one) for one in ("0", "1")],
    }
    text = json.dumps(found, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
