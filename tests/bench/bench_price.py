"""Own forecast of prices beyond the day-ahead horizon, on recorded markets: train and test halves apart.

By hand: `python tests/bench/bench_price.py [--json FILE] [--epf DIR]`. What is published ends with a day of the market;
the 48 hours beyond it are forecast, once a day. `halves`: fitted on the first half of the market's hours alone;
`rolling`: as a job does it, fitted on the last 56 days, again each day. Both are judged on the second half by mean
absolute errors, against the same hour of the last known day, and (for comparison) the same hour a week before.

CAISO's prices are read from $CARBONTUI_DATA (else ../shared/data); Belgium, Germany, France, Nord Pool and PJM from the
column "Real price" of `forecasts/*.csv` in a checkout of github.com/jeslago/epftoolbox (DIR). Neither is kept here.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import statistics
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np

from carbontui.grid.forecast import Forecaster

DATA = Path(os.environ.get("CARBONTUI_DATA", "../shared/data"))
EPF = ("BE", "DE", "FR", "NP", "PJM")
DAY = 24
HISTORY_H = 56 * DAY
RECENT_H = 36 * DAY


def caiso() -> np.ndarray:
    with gzip.open(DATA / "US-CAL-CISO_price_2021.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    # days of the market begin at midnight in California
    first = next(k for k, (when, _) in enumerate(rows) if when.endswith("T08:00:00Z"))
    return np.array([float(value) for _, value in rows[first:]]) / 1000


def epf(market: str, folder: Path) -> np.ndarray:
    with (folder / f"Forecasts_{market}_DNN_LEAR_ensembles.csv").open() as file:
        return np.array([float(row["Real price"]) for row in csv.DictReader(file)]) / 1000


def times(first: int, count: int) -> list[float]:
    """The calendar does not matter but for its weekday, which every market keeps."""
    begin = datetime(2021, 1, 4, tzinfo=timezone.utc) + timedelta(hours=first)
    return [begin.timestamp() + 3600.0 * k for k in range(count)]


def judged(prices: np.ndarray, rolling: bool) -> dict[str, object]:
    half = prices.size // 2 // DAY * DAY
    model = Forecaster.fit(times(0, half), prices[:half], signed=True)
    ours: dict[int, list[float]] = {0: [], 1: []}
    naive: dict[int, list[float]] = {0: [], 1: []}
    weekly: dict[int, list[float]] = {0: [], 1: []}
    hits: dict[int, list[bool]] = {0: [], 1: []}
    for now in range(half, prices.size - 2 * DAY + 1, DAY):
        if rolling:
            since, band = max(0, now - HISTORY_H), model.band
            model = Forecaster.fit(times(since, now - since), prices[since:now], signed=True)
            model.band = band
        since = max(0, now - RECENT_H)
        made = model.predict(times(now, 1)[0], times(since, now - since), prices[since:now], 2 * DAY)
        for day in (0, 1):
            hours = slice(day * DAY, (day + 1) * DAY)
            came, last = prices[now + day * DAY : now + (day + 1) * DAY], prices[now - DAY : now]
            ours[day] += list(np.abs(made.mean[hours] - came))
            naive[day] += list(np.abs(last - came))
            weekly[day] += list(np.abs(prices[now + (day - 7) * DAY : now + (day - 6) * DAY] - came))
            hits[day] += list((made.lo[hours] <= came) & (came <= made.hi[hours]))
    return {
        "hours": len(ours[0]),
        "negative": int((prices[half:] < 0).sum()),
        "ratio": {f"{24 * (day + 1)} h": statistics.fmean(ours[day]) / statistics.fmean(naive[day]) for day in (0, 1)},
        "ratio_to_a_week_before": {
            f"{24 * (day + 1)} h": statistics.fmean(ours[day]) / statistics.fmean(weekly[day]) for day in (0, 1)
        },
        "mae_per_mwh": {f"{24 * (day + 1)} h": 1000 * statistics.fmean(ours[day]) for day in (0, 1)},
        "coverage": {f"{24 * (day + 1)} h": 100 * statistics.fmean(hits[day]) for day in (0, 1)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epf", type=Path, help="folder with Forecasts_*_DNN_LEAR_ensembles.csv")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    markets = {}
    if (DATA / "US-CAL-CISO_price_2021.csv.gz").exists():
        markets["CAISO"] = caiso()
    if options.epf:
        markets |= {name: epf(name, options.epf) for name in EPF}
    if not markets:
        sys.exit(f"no recorded prices in {DATA}; set CARBONTUI_DATA or give --epf DIR")
    results = []
    for rolling in (False, True):
        rows = []
        for name, prices in markets.items():
            row = {"market": name, "fit": "rolling" if rolling else "halves", **judged(prices, rolling)}
            rows.append(row)
            week = row["ratio_to_a_week_before"]
            cells = "  ".join(
                f"{row['ratio'][lead]:.3f} ({row['coverage'][lead]:.0f} %, week {week[lead]:.3f})" for lead in week
            )
            print(f"{row['fit']:8} {name:6} {row['hours']:6} h  ratio (coverage) at 24, 48 h: {cells}", flush=True)
        mean = {lead: statistics.fmean(row["ratio"][lead] for row in rows) for lead in ("24 h", "48 h")}
        print(f"{'rolling' if rolling else 'halves':8} mean of {len(rows)}: {mean['24 h']:.3f} {mean['48 h']:.3f}")
        results += [*rows, {"fit": "rolling" if rolling else "halves", "mean_ratio": mean}]
    if options.json:
        stamp = {"date": time.strftime("%Y-%m-%d"), "machine": "2 shared vCPU, Linux", "numpy": np.__version__}
        options.json.write_text(json.dumps({**stamp, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
