"""How much of what came lies inside the band of a typical day, where nothing else is known: history of five zones.

By hand: `python tests/bench/bench_typical.py [--json FILE]`. A zone of which only a yearly mean is known is guessed
from the others, from its mean of the year before, as the product does it. The band is widened on both sides by one
factor (in the logarithm, `make_similar_days.WIDENED`), fitted here so that 80 % of the hours of a mean zone are inside;
the figures that count leave out the zone that is judged, in the guess and in the factor. Beside it: the zones' own
typical days. History is read from $CARBONTUI_DATA (else ../shared/data) and is not kept here.
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
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import make_similar_days as similar

from carbontui.grid import typical
from carbontui.units import from_iso

DATA = Path(os.environ.get("CARBONTUI_DATA", "../shared/data"))
HISTORY = {
    "DE": [
        {2019: "ci-direct-prod-15min_2019", 2020: "ci-direct-prod-15min_2020"},
        {2020: "ci-direct-prod_2020", 2021: "ci-direct-prod_2021"},
    ],
    "GB": [{2023: "ci-direct-30min_2023"}],
    "US-CAL-CISO": [{2020: "ci-direct-prod_2020", 2021: "ci-direct-prod_2021"}, {2022: "ci-prod-eia_2022"}],
    "US-MIDA-PJM": [{2020: "ci-direct-prod_2020", 2021: "ci-direct-prod_2021"}, {2022: "ci-prod-eia_2022"}],
    "US-NY-NYIS": [{2020: "ci-direct-prod_2020", 2021: "ci-direct-prod_2021"}],
}
"""Years of one origin stand together: what a plant is said to emit differs by a fifth between origins."""
END_STAMPED = {
    "DE_ci-direct-prod_2020",
    "DE_ci-direct-prod_2021",
    *(f"US-NY-NYIS_ci-direct-prod_{y}" for y in (2020, 2021)),
}
OWN = {"DE": 0, "GB": 0, "US-CAL-CISO": 1, "US-MIDA-PJM": 1}
"""Which of these the zone's own typical days are made from."""
WANTED = 0.8


class Hour(NamedTuple):
    """What came as a share of what was said: below 1 - lo's share or above hi's it is outside."""

    ratio: float
    lo: float
    hi: float

    def inside(self, factor: float) -> bool:
        return self.lo**factor <= self.ratio <= self.hi**factor


def history(zone: str, file: str) -> list[tuple[float, float]]:
    """Epoch seconds and g/kWh."""
    name = f"{zone}_{file}"
    shift_s = -3600.0 if name in END_STAMPED else 0.0
    with gzip.open(DATA / f"{name}.csv.gz", "rt") as table:
        return [(from_iso(when) + shift_s, float(value)) for when, value in list(csv.reader(table))[1:]]


def own(zone: str, year: int) -> list[Hour]:
    profile, hours = typical.recorded()[zone], []
    for at_s, value in history(zone, HISTORY[zone][OWN[zone]][year]):
        mean, lo, hi = profile.cells[_key(at_s)]
        hours.append(Hour(value / mean, lo / mean, hi / mean))
    return hours


def guessed(zone: str) -> list[list[Hour]]:
    """By year whose year before is known, too; of a zone with one year that year's own mean has to do."""
    found, without = [], frozenset({zone})
    for files in HISTORY[zone]:
        years = sorted(files)
        pairs = list(zip(years, years[1:], strict=False)) or ([(years[0], years[0])] if len(HISTORY[zone]) == 1 else [])
        for before, year in pairs:
            level = statistics.fmean(value for _, value in history(zone, files[before]))
            shape, (lo, hi) = similar.shape(level, without), similar.band(level, without)
            hours = []
            for at_s, value in history(zone, files[year]):
                _, weekend, hour = _key(at_s)
                said = level * shape[weekend, (hour + similar.UTC_OFFSET_H[zone]) % 24]
                hours.append(Hour(max(value, 1.0) / said, lo, hi))
            found.append(hours)
    return found


def _key(at_s: float) -> tuple[int, bool, int]:
    moment = datetime.fromtimestamp(at_s, tz=timezone.utc)
    return moment.month, moment.weekday() >= 5, moment.hour


def coverage(years: list[list[Hour]], factor: float) -> float:
    return statistics.fmean(sum(hour.inside(factor) for hour in hours) / len(hours) for hours in years)


def fitted(zones: dict[str, list[list[Hour]]]) -> float:
    """The factor at which the mean of the zones is covered as wanted."""
    low, high = 0.5, 12.0
    for _ in range(30):
        middle = (low + high) / 2
        enough = statistics.fmean(coverage(years, middle) for years in zones.values()) >= WANTED
        low, high = (low, middle) if enough else (middle, high)
    return high


def judged_guesses() -> dict[str, object]:
    zones = {zone: guessed(zone) for zone in HISTORY}
    before = {zone: coverage(years, 1.0) for zone, years in zones.items()}
    factor = fitted(zones)
    after = {}
    for zone, years in zones.items():
        after[zone] = coverage(years, fitted({other: its for other, its in zones.items() if other != zone}))
    print(f"guessed from similar grids; factor {factor:.2f}, in use {similar.WIDENED}")
    for zone in zones:
        print(f"  {zone:12} without it {before[zone]:.0%}, widened by the others' factor {after[zone]:.0%}")
    means = statistics.fmean(before.values()), statistics.fmean(after.values())
    print(f"  mean of {len(zones)} zones: without it {means[0]:.1%}, widened {means[1]:.1%}")
    return {
        "fallback": "similar grids", "factor": factor, "without": before, "left_out": after,
        "mean_without": means[0], "mean_left_out": means[1],
    }  # fmt: skip


def judged_own() -> dict[str, object]:
    found = {}
    for zone, origin in OWN.items():
        of_table = typical.YEAR_OF_DATA.get(zone, typical.DEFAULT_YEAR)
        for year in HISTORY[zone][origin]:
            kind = "its own year" if year == of_table else "another year"
            found[f"{zone} {year}, {kind}"] = coverage([own(zone, year)], 1.0)
    print("own typical days: " + "; ".join(f"{name} {share:.0%}" for name, share in found.items()))
    return {"fallback": "own typical days", "coverage": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (DATA / "GB_ci-direct-30min_2023.csv.gz").exists():
        sys.exit(f"no recorded data in {DATA}; set CARBONTUI_DATA")
    results = [judged_guesses(), judged_own()]
    if options.json:
        stamp = {"date": time.strftime("%Y-%m-%d"), "machine": "2 shared vCPU, Linux"}
        options.json.write_text(json.dumps({**stamp, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
