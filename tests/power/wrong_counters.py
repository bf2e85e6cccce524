"""Energy counters that lie, drawn by seed, and what the meter makes of them."""

from __future__ import annotations

import random
from typing import NamedTuple

from carbontui.power.messages import Sample
from carbontui.power.metering.meter import Meter

SECONDS = 900
KINDS = ("factor", "frozen", "catching up")


class Found(NamedTuple):
    """`error` of all joules; `counter` is the share labelled so while it was wrong, less what is taken back."""

    kind: str
    error: float
    counter: float


def case(seed: int) -> Found:
    """A quarter of an hour of a changing load, looked at about once a second through 1 s averages with 1 % noise. The
    counter is wrong by a factor all the time, or stops (for good or for a while, then catching up) again and again."""
    draw = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    factor = draw.choice((draw.uniform(0.05, 0.9), draw.uniform(1.1, 3.0))) if kind == "factor" else 1.0
    stops = _stops(draw, kind)
    low, high, period_s = draw.uniform(60, 150), draw.uniform(250, 690), draw.uniform(3, 90)
    watts = [high if (tenth / 10) % period_s < 0.7 * period_s else low for tenth in range(10 * SECONDS + 20)]
    truth = [0.0]
    for each in watts:
        truth.append(truth[-1] + each / 10)
    meter, tenth, begun, wrong_counter_j, all_wrong_j = Meter(), 10, 10, 0.0, 0.0
    while tenth < 10 * SECONDS:
        at = tenth / 10
        stopped = next((since for since, until in stops if since <= at < until), None)
        counted = factor * truth[round((at if stopped is None else stopped) * 10)]
        average = (truth[tenth] - truth[tenth - 10]) * draw.gauss(1, 0.01)
        polled = {"mono_s": at, "wall_s": 1e9 + at, "energy_uj": round(counted * 1e6), "power_w": average}
        for made in meter.add(Sample(uuid="g", kind="avg1s", max_w=700.0, **polled)):
            if kind == "factor" or stopped is not None:
                all_wrong_j += made.joules
                wrong_counter_j += made.joules if made.method == "counter" else 0.0
        last, tenth = tenth, tenth + draw.choice((10, 10, 10, 11))
    true_j = truth[last] - truth[begun]
    return Found(kind, meter.joules() / true_j - 1, wrong_counter_j / max(all_wrong_j, 1.0))


def _stops(draw: random.Random, kind: str) -> list[tuple[float, float]]:
    if kind == "frozen":
        return [(draw.uniform(0, SECONDS / 2), float("inf"))]
    stops, at = [], draw.uniform(5, 60)
    while kind == "catching up" and at < SECONDS:
        until = at + draw.uniform(6, 90)
        stops.append((round(at, 1), round(until, 1)))
        at = until + draw.uniform(2, 120)
    return stops
