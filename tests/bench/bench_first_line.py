"""From `run` to the command's first line, beside the plain command: seconds at our own output, and CPU until then.

    python tests/bench/bench_first_line.py [--repeats 20] [--load 20] [--before TREE]

Each repeat runs the plain command, then `run` of this tree, then of the tree BEFORE (another checkout, for the CPU),
one after the other. Medians and their ratios; the load is that of busy loops of our own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "print('here', flush=True); import time; time.sleep(0.3)"]


def spent_s(top: int) -> float:
    """CPU seconds of a process and all its descendants."""
    parents, whole = {}, 0.0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for pid in parents:
        above = pid
        while above not in (top, 0, 1) and above in parents:
            above = parents[above]
        if above == top:
            try:
                whole += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
            except OSError:
                continue
    return whole


def first_line(words: list[str], tree: Path | None, home: str) -> tuple[float, float]:
    """Seconds until its first line, and CPU seconds spent by then."""
    environment = {**os.environ, "CARBONTUI_HOME": home, "CARBONTUI_OFFLINE": "1", "PYTHONPATH": str(tree or "")}
    if tree is None:
        del environment["PYTHONPATH"]
    begun = time.perf_counter()
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline().startswith(b"here")
        return time.perf_counter() - begun, spent_s(one.pid)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--repeats", type=int, default=20)
    asked.add_argument("--load", type=int, default=0)
    asked.add_argument("--before", type=Path)
    given = asked.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.load)]
    run = [sys.executable, "-c", "from carbontui.__main__ import main; main()", "run", "--zone", "DE", "--", *COMMAND]
    trees = {"plain": None, "run": HERE} | ({"before": given.before.absolute()} if given.before else {})
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
    try:
        with tempfile.TemporaryDirectory() as home:
            for _ in range(given.repeats):
                for name, tree in trees.items():
                    rows[name].append(first_line(COMMAND if tree is None else run, tree, home))
    finally:
        for one in busy:
            one.kill()
    medians = {name: [statistics.median(column) for column in zip(*row, strict=True)] for name, row in rows.items()}
    told = {name: {"s": round(s, 4), "cpu_s": round(cpu_s, 4)} for name, (s, cpu_s) in medians.items()}
    told["run"] |= {"times_plain": round(medians["run"][0] / medians["plain"][0], 2)}
    if given.before:
        told["run"] |= {"cpu_times_before": round(medians["run"][1] / medians["before"][1], 3)}
    print(json.dumps({"repeats": given.repeats, "load": given.load, "machine": os.uname().machine, **told}, indent=1))


if __name__ == "__main__":
    main()
