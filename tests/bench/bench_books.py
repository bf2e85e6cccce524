"""What the sums of the account cost a tick, by the length of the job: microseconds after one bin has got a few joules.

python tests/bench/bench_books.py
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from carbontui.account import accounts
from carbontui.account.accounts import RunNow
from carbontui.grid.types import Row
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options

TICKS = 50


def tick_us(days: int, folder: Path) -> float:
    """Median over ticks of a job that has run for `days`; the intensity of the last two hours is not known yet."""
    end = 1_900_000_200.0
    start, bins = end - days * 86400.0, int(days * 86400 / accounts.BIN_S)
    spec = Options(
        job="b", name="b", dir=str(folder), argv=("true",), cwd=str(folder), log="", socket="", created_s=start,
        currency="EUR", price_per_kwh=0.3,
    )  # fmt: skip
    account = Accounting(spec, Clock(), Journal(folder / f"{days}.db"), "boot")
    for index in range(bins):
        at = start + index * accounts.BIN_S
        account.ledger.add("g", at, at + accounts.BIN_S, 2e5 + index % 7, "counter", "running", 0.0, gpu=True)
    rows = [Row(start + k * 900.0, 900.0, 300.0 + k % 90, "actual") for k in range(bins // 3 - 8)]
    account.realised(rows, "average_direct", "bench")
    spent = []
    for tick in range(TICKS):
        account.ledger.add("g", end - 1.0, end, 700.0, "counter", "running", 0.0, gpu=True)
        begun = time.perf_counter()
        account.totals(start_s=start, run_now=RunNow(0.9 * (end - start) + tick, 800.0), nowcast=310.0, gpus=1)
        spent.append(1e6 * (time.perf_counter() - begun))
    return statistics.median(spent)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for days in (1, 30, 300):
            sys.stdout.write(f"{days:4d} days: {tick_us(days, Path(folder)):10.1f} us\n")
