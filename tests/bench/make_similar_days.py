"""Makes `carbontui/data/similar-days.csv`: the typical day of a grid of which only the yearly mean is known.

By hand: `python tests/bench/make_similar_days.py` (prints how well it does and writes the table). The shape at a level
is the mean of the shapes of zones with typical days by the hour, in local time, the nearer in level the heavier
(Gaussian in the logarithm of the yearly mean). The band is as wide as that guess has been wrong: each zone is guessed
from the others, and the 8th and 92nd percentile of truth over guess are taken, again the nearer in level the heavier,
and widened as hourly history asks for. Truth is a zone's own table: 10th percentile, mean and 90th percentile of each
month, kind of day and hour, at Swanson's weights 3, 4, 3.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

import carbontui
from carbontui.grid import typical

LEVELS_G = (10, 25, 50, 100, 150, 200, 300, 400, 500, 600, 800)
LIKENESS = 0.6
TAILS = (0.08, 0.92)
WIDENED = 1.4
"""By how much more the hours of a year err than its table, in the logarithm (tests/bench/bench_typical.py)."""
UTC_OFFSET_H = {
    "GB": 0, "DE": 1, "ES": 1, "NL": 1, "PL": 1, "SE": 1, "US-CAL-CISO": -8, "US-MIDA-PJM": -5, "US-MIDW-MISO": -6,
    "US-NW-BPAT": -8, "US-NY-NYIS": -5, "US-SE-SOCO": -6, "US-SW-AZPS": -7, "US-TEX-ERCO": -6, "US-NE-ISNE": -5,
    "US-FLA-FPL": -5,
}  # fmt: skip

Shape = dict[tuple[bool, int], float]


@lru_cache
def mean_of(zone: str) -> float:
    return statistics.fmean(cell[0] for cell in typical.recorded()[zone].cells.values())


def weights(level_g: float, without: frozenset[str]) -> dict[str, float]:
    apart = {zone: math.log(mean_of(zone) / level_g) / LIKENESS for zone in typical.zones() if zone not in without}
    return {zone: math.exp(-0.5 * distance**2) for zone, distance in apart.items()}


@cache
def shape(level_g: float, without: frozenset[str] = frozenset()) -> Shape:
    """Share of the yearly mean by (weekend?, local hour); a week of it has the mean 1."""
    total = weights(level_g, without)
    shares = {
        (weekend, hour): sum(
            weight
            * statistics.fmean(
                typical.recorded()[zone].cells[month, weekend, (hour - UTC_OFFSET_H[zone]) % 24][0]
                for month in range(1, 13)
            )
            / mean_of(zone)
            for zone, weight in total.items()
        )
        for weekend in (False, True)
        for hour in range(24)
    }
    week = sum((2 if weekend else 5) * share for (weekend, _), share in shares.items()) / 168
    return {key: share / week for key, share in shares.items()}


def truths(zone: str, guess: Shape) -> Iterator[tuple[float, float]]:
    """Truth over guess and its weight, for every cell of the zone's own table."""
    level = mean_of(zone)
    for (_, weekend, hour), (mean, lo, hi) in typical.recorded()[zone].cells.items():
        said = level * guess[weekend, (hour + UTC_OFFSET_H[zone]) % 24]
        for value, weight in ((lo, 3.0), (mean, 4.0), (hi, 3.0)):
            yield value / said, weight * (2 if weekend else 5)


def band(level_g: float, without: frozenset[str] = frozenset()) -> tuple[float, float]:
    """As shares of the guess, not widened yet."""
    points = [
        (ratio, weight * near)
        for zone, near in weights(level_g, without).items()
        for ratio, weight in truths(zone, shape(mean_of(zone), without | {zone}))
    ]
    points.sort()
    total, passed, found = sum(weight for _, weight in points), 0.0, []
    for ratio, weight in points:
        passed += weight
        while len(found) < len(TAILS) and passed >= TAILS[len(found)] * total:
            found.append(ratio)
    return found[0], found[1]


def coverage(zone: str) -> float:
    """Share of the zone's hours inside the band when the zone is guessed from the others and its yearly mean."""
    without = frozenset({zone})
    lo, hi = band(mean_of(zone), without)
    found = list(truths(zone, shape(mean_of(zone), without)))
    return sum(weight for ratio, weight in found if lo <= ratio <= hi) / sum(weight for _, weight in found)


def main() -> None:
    covered = {zone: coverage(zone) for zone in typical.zones()}
    print("hours inside the band, each zone guessed from the others:")
    print("  " + ", ".join(f"{zone} {100 * share:.0f} %" for zone, share in covered.items()))
    print(f"  mean of {len(covered)} zones {100 * statistics.fmean(covered.values()):.1f} %")
    with (Path(carbontui.__file__).parent / "data" / "similar-days.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["level_g_per_kwh", "day_type", "hour_local", "share", "lo", "hi"])
        for level in LEVELS_G:
            lo, hi = (edge**WIDENED for edge in band(level))
            for (weekend, hour), share in shape(level).items():
                day = "weekend" if weekend else "weekday"
                table.writerow([level, day, hour, f"{share:.4f}", f"{lo * share:.4f}", f"{hi * share:.4f}"])


if __name__ == "__main__":
    main()
