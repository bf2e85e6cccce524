"""Share of the perfect-foresight saving that rolling plans on our forecast capture, pause-only, July to December 2021.

By hand: `python tests/bench/bench_forecast_capture.py [--starts N] [--json FILE]` ($CARBONTUI_DATA or ../shared/data).
650 W running, 90 W paused, 0 W before the start; pausing takes 20 s and resuming 45 s at 300 W; jobs of 8 and 24 h at
1.5, 2 and 3 times their length; re-planned every hour on the newest mean forecast with the current hour known. The plan
itself is an exact dynamic program over whole hours, made here, so that nothing but the forecast is judged; the seconds
of a switch are charged as energy. Beside it the threshold tools: start at or below 300 g, suspend and
resume at the 30th percentile of the last week (both run when the rest no longer fits).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from bench_forecast import DATA, START, ZONES, load

from carbontui.grid.forecast import Forecaster

RUN_W, PAUSED_W = 650.0, 90.0
SWITCH_WH = (20 + 45) * 300.0 / 3600 + (20 + 45) * RUN_W / 3600  # the lost seconds are run later
HORIZON_H = 72
WAITING, RUNNING, PAUSED = 0, 1, 2


def next_mode(grams: np.ndarray, left: int, mode: int) -> bool:
    """Whether the exact plan runs in the first hour. grams: g/kWh per hour up to the deadline; left: hours of work."""
    hours = len(grams)
    if left >= hours:
        return True
    # cost[mode, n]: cheapest way to do n more hours from here on, in mode before this hour
    cost = np.full((3, left + 1), np.inf)
    cost[:, 0] = 0.0
    for k in range(hours - 1, -1, -1):
        g = grams[k] / 1000
        run = np.full(left + 1, np.inf)
        run[1:] = g * RUN_W + cost[RUNNING, :-1]
        wait, stay = cost[WAITING], g * PAUSED_W + cost[PAUSED]
        new = np.stack([np.minimum(run, wait), np.minimum(run, stay), np.minimum(run + g * SWITCH_WH, stay)])
        if k == 0:
            other = wait[left] if mode == WAITING else stay[left]
            own = run[left] + (g * SWITCH_WH if mode == PAUSED else 0.0)
            return bool(own <= other)
        new[:, 0] = 0.0
        cost = new
    return True


def emitted(truth: np.ndarray, hours: int, decide) -> float:
    """Grams of a job under `decide(k, left, mode)`; it runs when the rest no longer fits."""
    left, mode, total = hours, WAITING, 0.0
    for k in range(len(truth)):
        run = left >= len(truth) - k or decide(k, left, mode)
        g = truth[k] / 1000
        if run:
            total += g * (RUN_W + (SWITCH_WH if mode == PAUSED else 0.0))
            left, mode = left - 1, RUNNING
            if left == 0:
                return total
        elif mode != WAITING:
            total += g * PAUSED_W
            mode = PAUSED
    return total


def zone_result(zone: str, signal: str, starts: int, forecaster: Forecaster | None = None) -> dict[str, object]:
    times, values, issues = load(zone, signal)
    first = times.index(START)
    forecaster = forecaster or Forecaster.fit(times[:first], values[:first])
    pace = max(1, (len(times) - first - HORIZON_H - 24) // starts)
    begins = list(range(first + 24, len(times) - HORIZON_H, pace))
    ahead: dict[int, np.ndarray] = {}

    def forecast(k: int) -> np.ndarray:
        if k not in ahead:
            now = times[k]
            known = [i for i in issues if now - 28 * 86400.0 < i["issued_at_s"] <= now]
            since = max(0, k - 28 * 24)
            made = forecaster.predict(now, times[since:k], values[since:k], HORIZON_H, known)
            ahead[k] = np.concatenate([values[k : k + 1], made.mean[1:]])  # the current hour is known
        return ahead[k]

    totals = dict.fromkeys(("now", "perfect", "forecast", "start300", "suspend30"), 0.0)
    for begin in begins:
        low = float(np.quantile(values[begin - 168 : begin], 0.3))
        for hours in (8, 24):
            for slack in (1.5, 2.0, 3.0):
                window = round(hours * slack)
                truth = values[begin : begin + window]
                if len(truth) < window:
                    continue
                totals["now"] += emitted(truth, hours, lambda k, left, mode: True)
                totals["perfect"] += emitted(truth, hours, lambda k, left, mode, t=truth: next_mode(t[k:], left, mode))
                totals["forecast"] += emitted(
                    truth,
                    hours,
                    lambda k, left, mode, b=begin, w=window: next_mode(forecast(b + k)[: w - k], left, mode),
                )
                totals["start300"] += emitted(
                    truth, hours, lambda k, left, mode, t=truth: mode == RUNNING or t[k] <= 300
                )
                totals["suspend30"] += emitted(truth, hours, lambda k, left, mode, t=truth, q=low: t[k] <= q)
    saved = {name: 100 * (1 - grams / totals["now"]) for name, grams in totals.items() if name != "now"}
    share = {name: 100 * value / saved["perfect"] for name, value in saved.items() if name != "perfect"}
    return {
        "zone": zone,
        "signal": signal,
        "jobs": len(begins) * 6,
        "saving_percent": saved,
        "captured_percent": share,
        "grams": totals,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (DATA / "DE_ci-direct-prod_2020.csv.gz").exists():
        sys.exit(f"no recorded data in {DATA}; set CARBONTUI_DATA")
    rows = []
    for zone, signal in ZONES[:4]:
        rows.append(zone_result(zone, signal, options.starts))
        share, saved = rows[-1]["captured_percent"], rows[-1]["saving_percent"]
        print(f"{zone:12} {signal:9} perfect saves {saved['perfect']:5.2f} %; captured: " + ", ".join(
            f"{name} {value:.0f} %" for name, value in share.items()), flush=True)  # fmt: skip
    sums = {name: statistics.fmean(row["grams"][name] for row in rows) for name in rows[0]["grams"]}
    total = {name: 100 * (sums["now"] - sums[name]) / (sums["now"] - sums["perfect"]) for name in sums if name != "now"}
    print("all, summed grams: " + ", ".join(f"{name} {value:.0f} %" for name, value in total.items()))
    if options.json:
        stamp = {"date": time.strftime("%Y-%m-%d"), "machine": "2 shared vCPU Xeon", "starts": options.starts}
        options.json.write_text(json.dumps({**stamp, "captured_percent_all": total, "zones": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
