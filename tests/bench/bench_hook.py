"""What the hook costs an unchanged training, and how soon ranks that count differently are held. Run by hand:
python tests/bench/bench_hook.py [--json FILE] [--trees FOLDER ...]

The hook: us per optimizer.step() with it and without, in slices of one run, the link up; the optimizer does nothing, so
that only what torch and the hook add is timed, in CPU time of the thread. The ranks: seconds from `pause` to the last
rank's standing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
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
ALONE = """
import itertools, sys, time, timeit, types
sys.path.insert(0, sys.argv[1])
from carbontui.client import hooks
from carbontui.client.around import around
torch, cuda = types.ModuleType("torch"), types.ModuleType("torch.cuda")
torch._C, torch.cuda = types.SimpleNamespace(_current_graph_task_id=itertools.repeat(-1).__next__), cuda
cuda._initialized, cuda.is_initialized = False, lambda: False
sys.modules.update({"torch": torch, "torch.cuda": cuda})
hooks.gate.enabled = False
class Plain:
    def step(self):
        pass
class Hooked:
    step = around(Plain.step, hooks._boundary)
least = [min(timeit.repeat(one.step, timer=time.thread_time, number=2000, repeat=60)) for one in (Plain(), Hooked())]
assert hooks.gate.hooked.done() > 100_000, "not counted"
print((least[1] - least[0]) / 2000 * 1e6)
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


def alone(trees: list[Path]) -> dict[str, float]:
    """us that the boundary of each source tree adds to a step, beside a stand-in for torch: the median of five
    processes, in turn, of the least of 60 slices each."""
    took: dict[str, list[float]] = {tree.name: [] for tree in trees}
    for _ in range(5):
        for tree in trees:
            argv = [sys.executable, "-I", "-c", ALONE, str(tree.resolve())]
            took[tree.name].append(float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout))
    return {name: round(statistics.median(values), 3) for name, values in took.items()}


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
    parser.add_argument("--trees", type=Path, nargs="+", help="compare the boundary alone of these source trees, only")
    args = parser.parse_args()
    if args.trees:
        print(json.dumps(alone(args.trees)))
        return
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
