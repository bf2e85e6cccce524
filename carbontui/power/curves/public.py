"""The effect of power limits on other trainings: public measurements, for a job that has not been calibrated.

`data/power-cap-curves.csv` has six trainings on four boards (Zeus, NSDI 2023). A limit is taken relative to the watts
that each draws without one: at 72 % of these, power-bound trainings run at 0.78 to 0.94 of full speed. Their spread is
the error of a level here; calibrating on the job itself makes it about ten times smaller.

None of these boards is a Hopper. Published figures for an H100 of 700 W held at 600 W (86 %) lose 2 to 15 % of speed by
the work: least where memory is the bound (arXiv 2604.11391), 10 to 15 % in pretraining of transformers
(factryze.ai/scale-atlas/power/power-capping). The error of that level covers this band there.
"""

import csv
import functools
import statistics
from collections import defaultdict
from importlib import resources
from typing import NamedTuple

from carbontui import units
from carbontui.power.curves.curve import Curve, Point, isotonic, useful

FILE = "power-cap-curves.csv"
SHARES = (0.86, 0.72, 0.60)
"""Limits as shares of the watts drawn at full speed. Below these speed collapses, at a different point for each
training."""
ROUND_W = 5.0
LEAST_SE = 0.02
"""Relative; four trainings on one board may agree by chance."""
MODELS = {"A40": ("A40",), "V100": ("V100",), "Quadro RTX 6000": ("Quadro RTX 6000",), "P100": ("P100",)}
"""Boards of the table by column prefix, and their names in NVML."""

HOPPER = ("H100", "H200", "H800", "GH200", "GB200", "B200", "B300")
"""Boards of which no training is in the table; of Blackwell nothing is published either."""
HOPPER_SHARE, HOPPER_SPEED = 0.86, (0.85, 0.98)
"""The level of which a band is published; its farther end is taken as two standard errors off."""


class Shape(NamedTuple):
    """One training on one board: rows of (limit, watts, speed) relative to those without a limit, ascending."""

    gpu: str
    rows: tuple[tuple[float, float, float], ...]

    def at(self, share: float) -> tuple[float, float] | None:
        """(watts, speed) at a limit, interpolated; None below the lowest that was measured."""
        if share < self.rows[0][0]:
            return None
        _, watts, speed = units.between(self.rows, share)
        return watts, speed


class Expected(NamedTuple):
    """Expected effect of a limit: watts and speed relative to those without one, and their standard errors."""

    share: float
    watts: float
    watts_se: float
    speed: float
    speed_se: float


@functools.cache
def shapes() -> tuple[Shape, ...]:
    """The table, each training made non-decreasing by isotonic regression."""
    text = resources.files("carbontui.data").joinpath(FILE).read_text(encoding="utf-8")
    measured: dict[tuple[str, str, str], dict[float, list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in csv.DictReader(text.splitlines()):
        seen = float(row["avg_power_w"]), float(row["rel_throughput"])
        measured[row["gpu"], row["dataset"], row["network"]][float(row["power_limit_w"])].append(seen)
    found = []
    for (gpu, _, _), by_limit in measured.items():
        limits = sorted(by_limit)
        ones = [1.0] * len(limits)
        watts = isotonic([statistics.fmean(w for w, _ in by_limit[limit]) for limit in limits], ones)
        speeds = isotonic([statistics.fmean(s for _, s in by_limit[limit]) for limit in limits], ones)
        full_w, full = watts[-1], speeds[-1]
        rows = zip(limits, watts, speeds, strict=True)
        found.append(Shape(gpu, tuple((limit / full_w, watt / full_w, speed / full) for limit, watt, speed in rows)))
    return tuple(found)


def expected(gpu: str = "") -> tuple[Expected, ...]:
    """Each of SHARES, from trainings on this model if the table has it, else from all."""
    model = next((row for row, names in MODELS.items() if any(name in gpu for name in names)), "")
    known = [shape for shape in shapes() if shape.gpu.startswith(model)]
    found = []
    for share in SHARES:
        levels = [level for shape in known if (level := shape.at(share)) is not None]
        if len(levels) < 2:
            continue
        watts, speeds = zip(*levels, strict=True)
        # energy and time scale with the inverse of speed, so the expectation uses its mean
        speed, power = statistics.harmonic_mean(speeds), statistics.fmean(watts)
        errors = (max(statistics.stdev(row), LEAST_SE * mean) for row, mean in ((watts, power), (speeds, speed)))
        watts_se, speed_se = errors
        found.append(Expected(share, power, watts_se, speed, speed_se))
    return tuple(map(_as_on_hopper, found)) if any(name in gpu for name in HOPPER) else tuple(found)


def _as_on_hopper(level: Expected) -> Expected:
    """As uncertain as the published band is wide, at the level that it is of."""
    if level.share != HOPPER_SHARE:
        return level
    return level._replace(speed_se=max(abs(level.speed - end) for end in HOPPER_SPEED) / 2)


def simulated(full_w: float) -> tuple[tuple[float, float, float], ...]:
    """(limit, watts, speed) for a simulated board that draws `full_w` at full speed: the mean of all public
    trainings."""
    rows = sorted(
        (round(level.share * full_w / ROUND_W) * ROUND_W, level.watts * full_w, level.speed) for level in expected()
    )
    return (*((limit, min(limit, watts), speed) for limit, watts, speed in rows), (full_w, full_w, 1.0))


def curve(
    gpu: str, gpus: int, full_w: float, *, limit_min_w: float, limit_found_w: float, measured_s: float, mark: str
) -> Curve | None:
    """The curve to plan with until this job is calibrated; `full_w` is the total full-speed draw of its boards.

    None if the boards allow no limit that would bind.
    """
    full = Point(kind="full", cap_w=None, power_w=full_w, power_se=0.0, speed=1.0, speed_se=0.0)
    caps = []
    for level in expected(gpu):
        cap_w = round(level.share * full_w / gpus / ROUND_W) * ROUND_W
        if limit_min_w <= cap_w < limit_found_w:
            caps.append(
                Point(
                    kind="cap",
                    cap_w=cap_w,
                    power_w=level.watts * full_w,
                    power_se=level.watts_se * full_w,
                    speed=level.speed,
                    speed_se=level.speed_se,
                )
            )
    points = (*sorted(caps, key=lambda point: point.cap_w or 0.0), full)
    levels = useful(points, None)
    if len(levels) < 2:
        return None
    return Curve(
        gpu=gpu,
        gpus=gpus,
        fingerprint=mark,
        measured_s=measured_s,
        rate_steps_per_s=0.0,
        points=points,
        levels=levels,
        basis="public",
    )
