"""The past of a job of 30 days on 8 boards, as a screen asks for it: how long it takes, how late a tick gets meanwhile.

python tests/bench/bench_history.py [RESULTS.json]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

from carbontui.job.files import history
from carbontui.job.files.journal import Journal

DAYS, BOARDS, ROW_S, COLUMNS = 30, 8, 10.0, 240
START = 1_800_000_000.0
REPEATS = 7
TICK_S = 0.01
ASIDE_S = 137.0
"""Columns do not begin where ten minutes do."""


def write(path: Path) -> float:
    """A journal full of rows; microseconds a row."""
    Journal(path).close()
    rows = (
        (START + k * ROW_S, START + (k + 1) * ROW_S, f"GPU-{board}", 3000.0 + k % 97, "counter", "running")
        for k in range(int(DAYS * 86400 / ROW_S))
        for board in range(BOARDS)
    )
    begun = time.perf_counter()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.executemany("insert into energy values (?,?,?,?,?,?)", rows)
    return 1e6 * (time.perf_counter() - begun) / (DAYS * 86400 / ROW_S * BOARDS)


async def ask(path: Path, span_s: float, columns: int = COLUMNS) -> tuple[float, float]:
    """(milliseconds to the answer, lateness of the worst tick meanwhile in milliseconds)."""
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            worst = max(worst, time.perf_counter() - due)

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    begun = time.perf_counter()
    await asyncio.to_thread(history.read, path, START + DAYS * 86400 - span_s - ASIDE_S, span_s, columns)
    took = time.perf_counter() - begun
    await asyncio.sleep(TICK_S)
    ticking.cancel()
    return 1000 * took, 1000 * worst


async def measure(path: Path) -> dict[str, float]:
    found: dict[str, float] = {"write_row_us": round(write(path), 2)}

    async def several(name: str, *args: float) -> None:
        each = [await ask(path, *args) for _ in range(REPEATS)]
        found[f"{name}_ms"] = round(statistics.median(took for took, _ in each), 1)
        found[f"{name}_worst_tick_ms"] = round(max(late for _, late in each), 1)

    book = Journal(path)
    await several("30d", DAYS * 86400.0)
    await several("30d_2000_columns", DAYS * 86400.0, 2000)
    await several("24h", 86400.0)
    await several("6h", 6 * 3600.0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for each in ("trigger energy_added", "trigger energy_removed", "table energy_10min"):
            db.execute(f"drop {each}")
    took, late = await ask(path, DAYS * 86400.0)
    found |= {"old_journal_30d_ms": round(took, 1), "old_journal_worst_tick_ms": round(late, 1)}
    book.close()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(Path(folder) / "journal.db"))
    machine = f"{os.cpu_count()} shared vCPU, {platform.machine()}, Python {platform.python_version()}"
    said = {"date": time.strftime("%Y-%m-%d"), "machine": machine, "load_before": round(os.getloadavg()[0], 2)}
    text = json.dumps(said | {"rows": DAYS * 8640 * BOARDS, **result}, indent=2)
    sys.stdout.write(text + "\n")
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(text + "\n")
