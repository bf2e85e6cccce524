"""What an agent costs, paired: python tests/bench/bench_agents.py --beside TREE [--broken FOLDER] [--out FILE]

Agents of this tree and of another one sample the same simulated boards at the same time, 1 and 16 of them: CPU seconds
per second, from the scheduler's own count. And how long an agent takes to its first report without amdsmi, with an
amdsmi that cannot be used (FOLDER holds a real one, on a machine without ROCm), and with one that shows no boards: in
turns.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "nvmlsim"))

from nvmlsim import Sim, build

SUPERVISOR = """
import asyncio, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
began = time.monotonic()
from carbontui.power.agent.handle import AgentHandle
async def main():
    handle = AgentHandle(log=lambda line: None, cwd=Path("/"), job=sys.argv[2])
    began = time.monotonic()
    await handle.start()
    while not handle.readings.mono_s:
        await asyncio.sleep(0.005)
    print(time.monotonic() - began, handle.pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await handle.close()
asyncio.run(main())
"""


class Started:
    """An agent of one tree, under a supervisor of its own."""

    def __init__(self, tree: Path, job: str, **variables: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree), **variables}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(tree), job],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd="/",
        )  # fmt: skip
        assert self.process.stdout is not None
        seconds, pid = self.process.stdout.readline().split()
        self.start_s, self.pid = float(seconds), int(pid)

    def cpu_s(self) -> float:
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def shares(trees: list[Path], seconds: float) -> list[float]:
    """Percent of a core of an agent of each tree, over the same time."""
    agents = [Started(tree, f"bench{n}") for n, tree in enumerate(trees)]
    time.sleep(3)
    before, began = [one.cpu_s() for one in agents], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    found = [100 * (one.cpu_s() - then) / passed for one, then in zip(agents, before, strict=True)]
    for one in agents:
        one.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--beside", type=Path, required=True)
    parser.add_argument("--broken", type=Path)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--starts", type=int, default=12)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, object] = {
        "date": f"{datetime.date.today()}",
        "machine": f"{os.cpu_count()} x {platform.machine()}",
    }
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        assert library is not None
        os.environ["CARBONTUI_LEASE_DIR"] = folder + "/leases"
        for boards in (1, 16):
            sim = Sim(library, Path(folder) / f"state{boards}", boards, frozen=False)
            os.environ |= sim.env()
            found = []
            for pair in range(options.pairs):
                trees = [TREE, options.beside]
                ours, theirs = (
                    shares(trees, options.seconds) if pair % 2 == 0 else shares(trees[::-1], options.seconds)[::-1]
                )
                found.append({"this": round(ours, 3), "beside": round(theirs, 3)})
            result[f"boards_{boards}_percent_of_a_core"] = found
        empty = Path(folder) / "amd.json"
        empty.write_text('{"boards": []}')
        ways = {
            "no amdsmi": {},
            "no boards": {"PYTHONPATH": str(HERE.parent / "power/amd"), "AMDSMI_STATE": str(empty)},
        }
        if options.broken:
            ways["broken amdsmi"] = {"PYTHONPATH": str(options.broken)}
        starts: dict[str, list[float]] = {name: [] for name in (*ways, "the tree beside")}
        for _ in range(options.starts):
            for name, variables in ways.items():
                path = os.pathsep.join(filter(None, (str(TREE), variables.get("PYTHONPATH", ""))))
                one = Started(TREE, "bench", **{**variables, "PYTHONPATH": path})
                starts[name].append(one.start_s)
                one.end()
            one = Started(options.beside, "bench")
            starts["the tree beside"].append(one.start_s)
            one.end()
        result["first_report_s"] = {name: round(statistics.median(found), 3) for name, found in starts.items()}
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
