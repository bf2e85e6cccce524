"""Accuracy, coverage and speed of the forecaster on recorded zones, July to December 2021, issued every hour.

By hand: `python tests/bench/bench_forecast.py [--every N] [--json FILE]`. Fit on the values before July 2021 alone
(from $CARBONTUI_DATA, else ../shared/data); then each hour a prediction with the last 28 days of values and issues.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from carbontui.grid import truth
from carbontui.grid.forecast import Forecaster
from carbontui.grid.issues import Issue

DATA = Path(os.environ.get("CARBONTUI_DATA", "../shared/data"))
ZONES = [
    ("US-CAL-CISO", "direct"), ("DE", "direct"), ("US-MIDA-PJM", "direct"), ("US-NY-NYIS", "direct"),
    ("US-CAL-CISO", "lifecycle"), ("DE", "lifecycle"),
]  # fmt: skip
LEADS = (1, 6, 24, 48)
START = datetime(2021, 7, 1, tzinfo=timezone.utc).timestamp()


def lines(name: str) -> list[list[str]]:
    with gzip.open(DATA / name, "rt") as file:
        return [line.split(",") for line in file.read().split("\n")[1:] if line]


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def load(zone: str, signal: str) -> tuple[list[float], np.ndarray, list[Issue]]:
    rows: dict[float, float] = {}
    for year in (2020, 2021):
        name = f"{zone}_ci-{signal}-prod_{year}.csv.gz"
        if (DATA / name).exists():
            rows.update((moment(when), float(value)) for when, value in lines(name))
    issues: dict[float, tuple[list[float], list[float]]] = {}
    for issued, target, value, _ in lines(f"{zone}_ci-{signal}-forecast96h_2021H2.csv.gz"):
        times, values = issues.setdefault(moment(issued), ([], []))
        times.append(moment(target))
        values.append(float(value))
    times = sorted(rows)
    return (
        times,
        np.array([rows[when] for when in times]),
        [Issue(issued_at_s=when, times_s=issues[when][0], values=issues[when][1]) for when in sorted(issues)],
    )


def run(zone: str, signal: str, every: int, blended: bool) -> dict[str, object]:
    times, values, issues = load(zone, signal)
    first = times.index(START)
    came = dict(zip(times, values, strict=True))
    begun = time.perf_counter()
    forecaster = Forecaster.fit(times[:first], values[:first])
    spent: list[float] = []
    errors = {lead: [] for lead in LEADS}
    naive = {lead: [] for lead in LEADS}
    nowcast = {lead: [] for lead in LEADS}
    as_is = {lead: [] for lead in LEADS}
    beside = {lead: [] for lead in LEADS}
    hits = {lead: [] for lead in LEADS}
    judged: list[truth.Judged] = []
    until = 0
    for now_k in range(first, len(times) - 48, every):
        now = times[now_k]
        while until < len(issues) and issues[until]["issued_at_s"] <= now:
            until += 1
        known = (
            [i for i in issues[max(0, until - 29) : until] if i["issued_at_s"] > now - 28 * 86400.0] if blended else ()
        )
        since = max(0, now_k - 28 * 24)
        started = time.perf_counter()
        made = forecaster.predict(now, times[since:now_k], values[since:now_k], 48, known)
        spent.append(time.perf_counter() - started if len(spent) else time.perf_counter() - begun)
        for lead in LEADS:
            target = now + 3600.0 * (lead - 1)
            actual = came.get(target)
            before = came.get(target - 3600.0 * (24 if lead <= 24 else 48))
            if actual is None or before is None:
                continue
            errors[lead].append(abs(made.mean[lead - 1] - actual) / actual)
            naive[lead].append(abs(before - actual) / actual)
            hits[lead].append(made.lo[lead - 1] <= actual <= made.hi[lead - 1])
            judged.append(truth.Judged(lead, target, made.mean[lead - 1], None, None, actual, None))
            if blended and known:
                newest = dict(zip(known[-1]["times_s"], known[-1]["values"], strict=True))
                if target in newest:
                    as_is[lead].append(abs(newest[target] - actual) / actual)
                    beside[lead].append(errors[lead][-1])
                last = now - 3600.0
                source = (
                    newest
                    if last in newest
                    else dict(zip(known[-2]["times_s"], known[-2]["values"], strict=True))
                    if len(known) > 1
                    else {}
                )
                if target in newest and last in source:
                    guess = newest[target] + (came[last] - source[last]) * 0.9 ** (lead - 1)
                    nowcast[lead].append(abs(guess - actual) / actual)
    mape = {lead: 100 * statistics.fmean(errors[lead]) for lead in LEADS}
    return {
        "zone": zone,
        "signal": signal,
        "published": blended,
        "mape": mape,
        "naive": {lead: 100 * statistics.fmean(naive[lead]) for lead in LEADS},
        "published_nowcast": {lead: 100 * statistics.fmean(nowcast[lead]) if nowcast[lead] else None for lead in LEADS},
        # over the hours that were published: what was published, as it is, and the blend
        "published_as_is": {lead: 100 * statistics.fmean(as_is[lead]) if as_is[lead] else None for lead in LEADS},
        "blend_beside_it": {lead: 100 * statistics.fmean(beside[lead]) if beside[lead] else None for lead in LEADS},
        "coverage": {lead: 100 * statistics.fmean(hits[lead]) for lead in LEADS},
        "difference_error": truth.difference_error(truth.ForecastRecord(judged=tuple(judged))),
        "fit_and_first_s": spent[0],
        "later_ms_median": 1000 * statistics.median(spent[1:]),
        "later_ms_p99": 1000 * float(np.quantile(spent[1:], 0.99)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="hours between predictions")
    parser.add_argument("--zones", type=int, default=len(ZONES))
    parser.add_argument("--only", choices=["blended", "own"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (DATA / "DE_ci-direct-prod_2020.csv.gz").exists():
        sys.exit(f"no recorded data in {DATA}; set CARBONTUI_DATA")
    results = []
    for blended in (True, False):
        if options.only and blended != (options.only == "blended"):
            continue
        print("published forecast blended in" if blended else "without a published forecast")
        rows = [run(zone, signal, options.every, blended) for zone, signal in ZONES[: options.zones]]
        for row in rows:
            cells = "  ".join(
                f"{row['mape'][lead]:5.2f}/{row['naive'][lead]:5.2f} {row['coverage'][lead]:3.0f}%"
                + (f" pn {row['published_nowcast'][lead]:5.2f}" if row["published_nowcast"][lead] else "")
                for lead in LEADS
            )
            print(
                f"  {row['zone']:12} {row['signal']:9} {cells}  difference {100 * row['difference_error']:.1f} %,"
                f" fit+first {row['fit_and_first_s']:.2f} s,"
                f" later {row['later_ms_median']:.1f} ms (p99 {row['later_ms_p99']:.1f})",
                flush=True,
            )
        for label, chosen in (("direct zones", [r for r in rows if r["signal"] == "direct"]), ("all", rows)):
            ratio = [
                statistics.fmean(r["mape"][lead] for r in chosen) / statistics.fmean(r["naive"][lead] for r in chosen)
                for lead in LEADS
            ]
            print(f"  ratio of mean MAPE, {label}: " + "  ".join(f"{value:.3f}" for value in ratio))
            results.append({"published": blended, "zones": label, "ratio": dict(zip(LEADS, ratio, strict=True))})
        results += rows
    if options.json:
        machine = {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}
        machine["what"] = "2 shared vCPU, Linux"
        stamp = {"date": time.strftime("%Y-%m-%d"), **machine, "every_h": options.every}
        options.json.write_text(json.dumps({**stamp, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
