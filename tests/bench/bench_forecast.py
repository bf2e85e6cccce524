"""Accuracy, coverage and speed of the forecaster on recorded zones, July to December 2021, issued every hour.

By hand: `python tests/bench/bench_forecast.py [--every N] [--json FILE]`. Fit on the values before July 2021 alone
(from $CARBONTUI_DATA, else ../shared/data); then each hour a prediction with the last 28 days of values and issues.
`--late`: instead, from 57 of these hours, the first day and six hours when the newest value is up to 36 h old, as
Markdown; beside them what was published, and the same hours as forecast when that newest value ended.
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

from carbontui.grid import choose, truth
from carbontui.grid.forecast import Forecaster
from carbontui.grid.issues import Issue

DATA = Path(os.environ.get("CARBONTUI_DATA", "../shared/data"))
ZONES = [
    ("US-CAL-CISO", "direct"), ("DE", "direct"), ("US-MIDA-PJM", "direct"), ("US-NY-NYIS", "direct"),
    ("US-CAL-CISO", "lifecycle"), ("DE", "lifecycle"),
]  # fmt: skip
UNSAID = {
    "GB": "direct-30min_2023", "DE 2019": "direct-prod-15min_2019", "DE 2020": "direct-prod-15min_2020",
    "US-CAL-CISO 2022": "prod-eia_2022", "US-MIDA-PJM 2022": "prod-eia_2022",
}  # fmt: skip
"""Without issues, of other years and makers: their files."""
LATE_H = (0, 1, 3, 6, 12, 24, 36)
AHEAD = ("day", "six", "covers", "said_day", "said_six", "asked_day", "asked_six")
LEADS = (1, 6, 24, 48)
START = datetime(2021, 7, 1, tzinfo=timezone.utc).timestamp()


def lines(name: str) -> list[list[str]]:
    with gzip.open(DATA / name, "rt") as file:
        return [line.split(",") for line in file.read().split("\n")[1:] if line]


def moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def load(zone: str, signal: str) -> tuple[list[float], np.ndarray, list[Issue]]:
    rows: dict[float, float] = {}
    issues: dict[float, tuple[list[float], list[float]]] = {}
    if zone in UNSAID:
        shift_s = moment(f"{UNSAID[zone][-4:]}-07-01T00:00Z") - START
        parts: dict[float, list[float]] = {}
        for when, value in lines(f"{zone.split()[0]}_ci-{UNSAID[zone]}.csv.gz"):
            parts.setdefault((moment(when) - shift_s) // 3600 * 3600, []).append(float(value))
        times = sorted(parts)
        return times, np.array([statistics.fmean(parts[when]) for when in times]), []
    for year in (2020, 2021):
        name = f"{zone}_ci-{signal}-prod_{year}.csv.gz"
        if (DATA / name).exists():
            rows.update((moment(when), float(value)) for when, value in lines(name))
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


def run(zone: str, signal: str, every: int, blended: bool, late: int = 0) -> dict[str, object]:
    times, values, issues = load(zone, signal)
    first = times.index(START)
    came = dict(zip(times, values, strict=True))
    begun = time.perf_counter()
    forecaster, then = (Forecaster.fit(times[: first - late], values[: first - late]) for _ in range(2))
    spent: list[float] = []
    errors = {lead: [] for lead in LEADS}
    naive = {lead: [] for lead in LEADS}
    as_is = {lead: [] for lead in LEADS}
    beside = {lead: [] for lead in LEADS}
    hits = {lead: [] for lead in LEADS}
    judged: list[truth.Judged] = []
    ahead: dict[str, list[float]] = {name: [] for name in AHEAD}
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
        made = forecaster.predict(now, times[since : now_k - late], values[since : now_k - late], 48, known)
        spent.append(time.perf_counter() - started if len(spent) else time.perf_counter() - begun)
        asked = made.mean
        if late:
            asked_s, past = now - 3600.0 * late, slice(since, now_k - late)
            old = [issue for issue in known if issue["issued_at_s"] <= asked_s]
            asked = then.predict(asked_s, times[past], values[past], late + 24, old).mean[late:]
        truths = np.array([came.get(now + 3600.0 * k, np.nan) for k in range(24)])
        missed = np.abs(made.mean[:24] - truths) / truths
        within = (made.lo[:24] <= truths) & (truths <= made.hi[:24])
        before = np.abs(asked[:24] - truths) / truths
        ahead["asked_day"].append(float(np.nanmean(before)))
        ahead["asked_six"].append(float(np.nanmean(before[:6])))
        ahead["day"].append(float(np.nanmean(missed)))
        ahead["six"].append(float(np.nanmean(missed[:6])))
        ahead["covers"].append(float(within[np.isfinite(truths)].mean()))
        if known:
            newest = dict(zip(known[-1]["times_s"], known[-1]["values"], strict=True))
            apart = np.abs([newest.get(now + 3600.0 * k, np.nan) for k in range(24)] - truths) / truths
            ahead["said_day"].append(float(np.nanmean(apart)))
            ahead["said_six"].append(float(np.nanmean(apart[:6])))
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
    mape = {lead: 100 * statistics.fmean(errors[lead]) for lead in LEADS}
    return {
        "zone": zone,
        "signal": signal,
        "published": blended,
        "late_h": late,
        **{name: 100 * statistics.fmean(found) if found else None for name, found in ahead.items()},
        "mape": mape,
        "naive": {lead: 100 * statistics.fmean(naive[lead]) for lead in LEADS},
        # over the hours that were published: what was published, as it is, and the blend
        "published_as_is": {lead: 100 * statistics.fmean(as_is[lead]) if as_is[lead] else None for lead in LEADS},
        "blend_beside_it": {lead: 100 * statistics.fmean(beside[lead]) if beside[lead] else None for lead in LEADS},
        "coverage": {lead: 100 * statistics.fmean(hits[lead]) for lead in LEADS},
        "difference_error": truth.difference_error(truth.ForecastRecord(judged=tuple(judged))),
        "fit_and_first_s": spent[0],
        "later_ms_median": 1000 * statistics.median(spent[1:]),
        "later_ms_p99": 1000 * float(np.quantile(spent[1:], 0.99)),
    }


def when_late() -> None:
    """By lateness: the day's and the first six hours' error, the share of its hours in the band, and the ratios."""
    machine = f"{platform.machine()}, 2 shared vCPU, Linux, Python {platform.python_version()}, numpy {np.__version__}"
    print(f"# Forecasts of late sources\n\n{time.strftime('%Y-%m-%d')}, {machine}; bench_forecast.py --late")
    for blended in (True, False):
        series = ZONES if blended else [*ZONES, *((zone, "") for zone in UNSAID)]
        print(f"\n{len(series)} series, {'with' if blended else 'without'} a published forecast; day 1, six hours:\n")
        print(
            "| late h | error % | published % | over the last known hour's | worst series | in the band % | by series |"
        )
        print("|" + "---|" * 7)
        for late in LATE_H:
            rows = [run(zone, signal, 77, blended, late) for zone, signal in series]
            mean = {name: statistics.fmean(row[name] or np.nan for row in rows) for name in AHEAD}
            over = [[row[name] / row[f"asked_{name}"] for row in rows] for name in ("day", "six")]
            each = [row["covers"] for row in rows]
            cells = [
                f"{late}",
                f"{mean['day']:.1f}, {mean['six']:.1f}",
                f"{mean['said_day']:.1f}, {mean['said_six']:.1f}" if blended else "-",
                ", ".join(f"{mean[name] / mean[f'asked_{name}']:.3f}" for name in ("day", "six")),
                ", ".join(f"{max(found):.3f}" for found in over),
                f"{mean['covers']:.1f}",
                f"{min(each):.0f} to {max(each):.0f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


def late_h(lateness: str, zone: str) -> int:
    return round(choose.lateness(zone)[0] / 3600 if lateness == "provider" else float(lateness))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="hours between predictions")
    parser.add_argument("--zones", type=int, default=len(ZONES))
    parser.add_argument("--only", choices=["blended", "own"])
    parser.add_argument("--lateness", default="provider", help="hours, or as late as the zone's source")
    parser.add_argument("--late", action="store_true", help="by the age of the newest value")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (DATA / "DE_ci-direct-prod_2020.csv.gz").exists():
        sys.exit(f"no recorded data in {DATA}; set CARBONTUI_DATA")
    if options.late:
        when_late()
        return
    results = []
    for blended in (True, False):
        if options.only and blended != (options.only == "blended"):
            continue
        print("published forecast blended in" if blended else "without a published forecast")
        rows = [
            run(zone, signal, options.every, blended, late_h(options.lateness, zone))
            for zone, signal in ZONES[: options.zones]
        ]
        for row in rows:
            cells = "  ".join(
                f"{row['mape'][lead]:5.2f}/{row['naive'][lead]:5.2f} {row['coverage'][lead]:3.0f}%" for lead in LEADS
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
