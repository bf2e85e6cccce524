"""Accounts recomputed by a stranger: python tests/bench/bench_audit.py [--runs 40] [--out results/audit.md]

Short real jobs on simulated boards, under three boundaries and six ends by seed. `examples/audit.py` recomputes each
from its journal; then copies are altered in one row of joules, one of the grid, or the boundary, which it must refuse.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "campaign"), str(HERE.parent / "nvmlsim")]

from house import House, Job, until
from kills import hit, orphan, simulated_boards

AUDIT = HERE.parents[1] / "examples" / "audit.py"
BOUNDARIES = ("held", "always-on", "given-back")
ENDS = ("none", "supervisor", "agent", "taken up", "alone", "paused")
"""What is killed: nothing; one of two; keeper and supervisor, with and without a successor; a pause."""


def hurt(job: Job, end: str) -> None:
    if end == "supervisor":
        before = job.pids()["supervisor"]
        hit(before, signal.SIGKILL)
        until(lambda: (s := job.served()) and s.pids.supervisor not in (None, before), 90, "a successor")
    elif end == "agent" and (status := job.served()) is not None:
        hit(status.pids.agent, signal.SIGKILL)
    elif end in ("taken up", "alone"):
        orphan(job)
        if end == "taken up":
            job.house.cli("restart", job.id)
    elif end == "paused":
        job.house.cli("pause", job.id, "--for", "4s")


def audited(journal: Path) -> dict | None:
    done = subprocess.run([sys.executable, "-I", AUDIT, journal], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def alterations(journal: Path, dice: random.Random) -> dict[str, bool]:
    """Whether each is refused."""
    with closing(sqlite3.connect(journal)) as db:
        joules = [row for (row,) in db.execute("select rowid from energy where abs(joules) > 0")]
        starts = [row for (row,) in db.execute("select start from grid where signal != 'price'")]
    said = json.loads(sqlite3.connect(journal).execute("select value from state where key = 'accounts'").fetchone()[0])
    other = dice.choice([one for one in BOUNDARIES if one != said["boundary"]])
    changes = {
        "joules": ("update energy set joules = joules * 1.01 where rowid = ?", dice.choice(joules)),
        "grid": ("update grid set value = value * 1.01 where start = ?", dice.choice(starts)),
        "boundary": ("update state set value = ? where key = 'accounts'", json.dumps(said | {"boundary": other})),
    }
    found = {}
    for name, (change, value) in changes.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copy(journal, folder))
            with closing(sqlite3.connect(copy)) as db, db:
                db.execute(change, (value,))
            found[name] = audited(copy) is None
    return found


def run(seed: int, top: Path) -> tuple[str, str, float, dict[str, bool]]:
    dice, boundary, end = random.Random(seed), BOUNDARIES[seed % 3], ENDS[seed // 3 % len(ENDS)]
    (folder := top / str(seed)).mkdir()
    house = House(folder, None)
    try:
        sim = simulated_boards(house, 1)
        sim.load(1.0, period_s=dice.choice([0.0, 3.0]), duty=0.7)
        grid = dice.choice([("--zone", "DE"), ("--intensity", "300")])
        job = house.start("--boundary", boundary, "--host-w", "200", *grid, name=f"j{seed}", pause=0.05)
        job.until_steps()
        until(lambda: job.snapshot().get("energy_wall_kwh"), 60, "energy")
        time.sleep(dice.uniform(12, 18))  # a row of energy is written after ten seconds
        hurt(job, end)
        time.sleep(dice.uniform(6, 12))
        job.let_end()
        job.until_over(120)
        told = json.loads(house.cli("report", job.id, "--json").stdout)
        journal, off = job.dir / "journal.db", float("inf")
        if (found := audited(journal)) is not None:
            names = ("energy_wall_kwh", "gco2_g")
            off = max(abs(found[name] / told[name] - 1) for name in names if told[name])
        # what a copy of the one file needs: a journal without a writer has no other
        sqlite3.connect(journal).execute("pragma wal_checkpoint(truncate)").close()
        return boundary, end, off, alterations(journal, dice)
    finally:
        house.end()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(asked.at_once) as pool:
        rows = []
        for seed, row in enumerate(pool.map(lambda seed: run(seed, Path(top)), range(asked.runs))):
            rows.append(row)
            print(seed, *row, flush=True)
    lines = [
        "# Accounts recomputed from their journals by examples/audit.py",
        "",
        f"{datetime.date.today()}, {os.cpu_count()} shared vCPU, load {os.getloadavg()[0]:.0f}, one simulated board.",
        "",
        "| killed | runs | within 0.1 % of the report | worst, % | altered and refused: joules, grid, boundary |",
        "|---|---|---|---|---|",
    ]
    by_end = collections.defaultdict(list)
    for _, end, off, refused in rows:
        by_end[end].append((off, refused))
    for end, some in by_end.items():
        caught = ", ".join(str(sum(refused[name] for _, refused in some)) for name in ("joules", "grid", "boundary"))
        offs = [off for off, _ in some]
        lines.append(f"| {end} | {len(some)} | {sum(off < 1e-3 for off in offs)} | {100 * max(offs):.2g} | {caught} |")
    if asked.out:
        asked.out.write_text("\n".join([*lines, ""]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
