"""GPUs that are lost and come back: python tests/bench/bench_lost.py [--away 2 15 60] [--out results/lost.md]

A real job under `cap 400W` on two simulated boards loses the first in one of five ways; seconds from its return until
400 W are its limit again.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "campaign"), str(HERE.parent / "nvmlsim")]

from house import House, until
from nvmlsim import Sim, build

Act = Callable[[Sim], object]
WAYS: dict[str, tuple[Act, Act]] = {
    "every call fails": (lambda sim: sim.set("lost", 1), lambda sim: sim.set("lost", 0)),
    "no handle": (lambda sim: sim.set("lost", 2), lambda sim: sim.set("lost", 0)),
    "its UUID alone answers": (lambda sim: sim.set("lost", 3), lambda sim: sim.set("lost", 0)),
    "driver reloaded": (lambda sim: sim.driver(loaded=False), lambda sim: sim.driver(reload=True)),
    "board reset": (lambda sim: sim.set("lost", 2), lambda sim: sim.set("reset_board", 0)),
}


def run(way: str, away_s: float, top: Path) -> float | None:
    """Seconds until it is capped again; None: not within a minute."""
    (folder := top / f"{way} {away_s:.0f}").mkdir()
    house, (lose, give_back) = House(folder, None), WAYS[way]
    try:
        sim = Sim(build(folder), folder / "nvml.state", 2, frozen=False)
        house.env |= sim.env()
        for board in (0, 1):
            sim.load(1.0, device=board)
        job = house.start("--boundary", "held", "--intensity", "300", pause=0.05)
        job.until_steps()
        house.cli("cap", "400W", job.id, check=True)
        until(lambda: sim.get("limit_mw") == 400_000, 30, "the cap")
        time.sleep(5)
        lose(sim)
        time.sleep(away_s)
        sim.set("limit_mw", 700_000)  # what came back has forgotten it
        give_back(sim)
        back = time.monotonic()
        try:
            until(lambda: sim.get("limit_mw") == 400_000, 60, "the cap again")
        except AssertionError:
            return None
        return time.monotonic() - back
    finally:
        house.end()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--away", type=float, nargs="*", default=[2.0, 15.0, 60.0])
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    pairs = list(itertools.product(WAYS, asked.away))
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(asked.at_once) as pool:

        def of(pair: tuple[str, float]) -> float | None:
            found = run(*pair, Path(top))
            print(*pair, found, flush=True)
            return found

        found = dict(zip(pairs, pool.map(of, pairs), strict=True))
    machine = f"{os.cpu_count()} shared vCPU, load {os.getloadavg()[0]:.0f}, simulated NVML, two boards a job"
    lines = ["# GPUs that were lost, capped again", "", f"{datetime.date.today()}, {machine} (bench_lost.py)."]
    lines += ["", f"| seconds from the return, after s away | {' | '.join(f'{s:.0f}' for s in asked.away)} |"]
    lines.append("|---" * (1 + len(asked.away)) + "|")
    for way in WAYS:
        cells = (found[way, s] for s in asked.away)
        lines.append(f"| {way} | {' | '.join('not' if one is None else f'{one:.1f}' for one in cells)} |")
    print("\n".join(lines))
    if asked.out:
        asked.out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
