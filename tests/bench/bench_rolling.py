"""Ours against the best simple rule on the same forecast, group by group, on recorded grids. Run by hand:

    python tests/bench/bench_rolling.py FILE.csv [FILE.csv ...] [--issued FILE ...] [--starts 40] [--seed 101] [--caps]

A file is hourly intensity (`time_utc,value`); `--issued` gives its published forecasts, in the same order. Per group
of 8 and 24 h at slack 2 and 3: the savings (and the worst job) of ours, of the best rule (windows, thresholds, a
constant level) and of perfect foresight; on the same starts with the guard against a large loss and without it.
"""

from __future__ import annotations

import argparse

from carbontui.backtest.assumed_job import Grid, assumed
from carbontui.backtest.issued import load_issues
from carbontui.backtest.run import run
from carbontui.grid import recorded
from carbontui.plan import rolling

BOUNDS = {"ours, unguarded": 1e9, "ours": rolling.REGRET}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("actual", nargs="+")
    parser.add_argument("--issued", nargs="*", default=[])
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--caps", action="store_true")
    asked = parser.parse_args()
    for number, path in enumerate(asked.actual):
        grid = Grid(recorded.load(path))
        issues = load_issues(asked.issued[number]) if asked.issued else None
        for hours in (8, 24):
            for slack in (2.0, 3.0):
                rows = {}
                for name, most in BOUNDS.items():
                    rolling.REGRET = most
                    job = assumed(650.0, caps=asked.caps, running=False)
                    report = run(grid, job, hours * 3600.0, slack, asked.starts, asked.seed, issues=issues)
                    table = report.summary()
                    rows[name] = table[report.about["product"]]
                ours = {name for name in table if name.startswith("rolling")} | {"perfect foresight"}
                best = max(
                    (name for name in table if name not in ours), key=lambda name: table[name]["saving_pct"] or 0
                )
                rows |= {best: table[best], "perfect foresight": table["perfect foresight"]}
                said = (f"{name} {row['saving_pct']:.2f} % ({row['worst_pct']:+.0f})" for name, row in rows.items())
                print(f"{path} {hours} h x{slack:g}: {'; '.join(said)}", flush=True)


if __name__ == "__main__":
    main()
