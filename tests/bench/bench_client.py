"""Costs of the training side, run by hand: python tests/bench/bench_client.py [--force] [--json FILE]

ns per step() against an empty call in slices of one run, with the link up; ms from the supervisor's `pause` to the
blocked step with 10 ms steps, in a loop that sleeps and in one that hogs the interpreter lock. Refuses to start on a
busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from fake_supervisor import FakeSupervisor, supervised

from carbontui.client import inject

COST = """
import json, statistics, time, timeit, carbontui
def empty(n=1):
    pass
carbontui.step(); time.sleep(0.5); carbontui.step()
slices = {"empty": [], "step": []}
for _ in range(400):
    for name, call in (("empty", empty), ("step", carbontui.step)):
        slices[name].append(timeit.timeit("call()", globals={"call": call}, number=10_000) / 1e4 * 1e9)
ratio = statistics.median(s / e for s, e in zip(slices["step"], slices["empty"]))
medians = {name + "_ns": statistics.median(values) for name, values in slices.items()}
print(json.dumps({**medians, "ratio": ratio}))
"""
BLOCK = """
import sys, time, carbontui
from carbontui.client.api import gate
carbontui.step()
gate.quiesce = lambda: print(time.monotonic(), flush=True)
hog = sys.argv[1] == "hog"
while True:
    if hog:
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            pass
    else:
        time.sleep(0.01)
    carbontui.step()
"""


def start(code: str, supervisor: FakeSupervisor, *args: str) -> subprocess.Popen[str]:
    hook = inject.build(supervisor.path.parent / "hook")
    base = {k: v for k, v in os.environ.items() if not k.startswith("CARBONTUI_")}
    env = inject.environment(
        base, hook_dir=hook, socket=supervisor.path, job="bench", marker=supervisor.path.parent / "m"
    )
    return subprocess.Popen([sys.executable, "-c", code, *args], env=env, text=True, stdout=subprocess.PIPE)


def cost() -> dict[str, float]:
    with supervised() as supervisor:
        return json.loads(start(COST, supervisor).communicate()[0])


def latency(kind: str, rounds: int) -> dict[str, float]:
    with supervised() as supervisor:
        process = start(BLOCK, supervisor, kind)
        supervisor.wait(lambda: supervisor.live() and supervisor.last())
        took = []
        assert process.stdout
        for i in range(rounds):
            time.sleep(0.05 + 0.0037 * (i % 7))  # another phase of the step each time
            asked = time.monotonic()
            gen = supervisor.want("pause")
            took.append((float(process.stdout.readline()) - asked) * 1000)
            supervisor.wait(lambda gen=gen: supervisor.acked(gen))
            gen = supervisor.want("run")
            supervisor.wait(lambda gen=gen: supervisor.acked(gen))
        process.kill()
        process.communicate()
    took.sort()
    return {
        "median_ms": statistics.median(took),
        "p95_ms": took[int(0.95 * len(took))],
        "max_ms": took[-1],
        "n": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--force", action="store_true", help="run on a busy machine too")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.5 * (os.cpu_count() or 1) and not args.force:
        sys.exit(f"the machine is busy (load {load:.1f}); wait or use --force")
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} shared vCPU, {platform.machine()}, Python {platform.python_version()}",
        "load_before": round(load, 2),
        "step": cost(),
        "pause_10ms_steps": latency("sleep", 100),
        "pause_10ms_steps_gil_held": latency("hog", 100),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
