"""The speed-per-watt curve of one job on one GPU model: its type, isotonic fit and useful hull. Pure."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from carbontui import units

SCHEMA = "carbontui.curve/1"
Basis = Literal["measured", "imported", "public"]
"""Provenance of a curve: measured on these boards, on others of the same model, or on other boards and workloads."""
BOARD_SE = 0.04
"""Relative standard error of using one board's watts and speeds for another of its model: boards of one model differ
by 8 % on average (Sinha et al. 2022, arXiv 2208.11035)."""
HULL_GAIN = 0.003
"""A level that raises the hull by less than this share of full speed is not worth a switch."""


class Point(Struct, frozen=True, kw_only=True):
    """One measured level: total watts of the job's GPUs, speed relative to full, each with its standard error."""

    kind: Literal["full", "cap", "pause"]
    cap_w: float | None
    """Watts per GPU; None for full and pause."""
    power_w: float
    power_se: float
    speed: float
    speed_se: float
    j_per_step: float | None = None


class Curve(Struct, frozen=True, kw_only=True):
    """The result of a calibration. `points` are all measured levels, `levels` those the planner should use."""

    schema: str = SCHEMA
    gpu: str
    gpus: int
    fingerprint: str
    measured_s: float
    """Epoch seconds."""
    simulated: bool = False
    rate_steps_per_s: float
    """At full."""
    points: tuple[Point, ...] = ()
    levels: tuple[Point, ...] = ()
    parked_w: float | None = None
    parked_se: float | None = None
    pause_s: float | None = None
    resume_s: float | None = None
    note: str = ""
    basis: Basis = "measured"


FIGURES = ("power_w", "power_se", "speed", "speed_se")


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` in weighted least squares (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2], blocks[-1]
            blocks[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return [value for value, _, count in blocks for _ in range(count)]


def fitted(points: Sequence[Point]) -> tuple[Point, ...]:
    """Points by cap, full last, with watts and speeds made non-decreasing: more watts allowed never means slower."""
    ordered = sorted(points, key=lambda point: (point.kind == "full", point.cap_w or 0.0))
    if not ordered:
        return ()
    watts = isotonic([p.power_w for p in ordered], [1 / max(p.power_se, 1e-3) ** 2 for p in ordered])
    speeds = isotonic([p.speed for p in ordered], [1 / max(p.speed_se, 1e-5) ** 2 for p in ordered])
    top = speeds[-1] or 1.0
    return tuple(
        msgspec.structs.replace(point, power_w=watt, speed=speed / top)
        for point, watt, speed in zip(ordered, watts, speeds, strict=True)
    )


def useful(points: Sequence[Point], parked_w: float | None) -> tuple[Point, ...]:
    """Levels on the upper concave hull of (watts, speed), from parked (speed 0) to full.

    A level below the hull is beaten by alternating between its neighbours; the planner mixes levels in time anyway.
    """
    if not points:
        return ()
    # a level that draws no more than a pause dominates it: then the hull starts below that level
    start = (min(parked_w if parked_w is not None else 0.0, *(point.power_w for point in points)), 0.0)
    hull: list[tuple[float, float, Point | None]] = [(*start, None)]
    for point in sorted(points, key=lambda p: (p.power_w, p.speed)):
        here = (point.power_w, point.speed, point)
        while len(hull) > 1 and _lift(hull[-2], hull[-1], here) < HULL_GAIN:
            hull.pop()
        hull.append(here)
    kept = [point for _, _, point in hull if point is not None]
    full = [point for point in points if point.kind == "full"]
    return tuple(kept + [point for point in full if point not in kept])


def _lift(
    left: tuple[float, float, Point | None],
    middle: tuple[float, float, Point | None],
    right: tuple[float, float, Point | None],
) -> float:
    """How far `middle` lies above the chord from `left` to `right`, in speed."""
    if right[0] - left[0] < 1e-9:
        return middle[1] - right[1]
    share = (middle[0] - left[0]) / (right[0] - left[0])
    return middle[1] - (left[1] + share * (right[1] - left[1]))


def imported(curve: Curve) -> Curve:
    """The curve of another board of this model, with the error that this adds."""

    def wider(point: Point) -> Point:
        speed_se = math.hypot(point.speed_se, 0.0 if point.kind == "full" else BOARD_SE * point.speed)
        power_se = math.hypot(point.power_se, BOARD_SE * point.power_w)
        return msgspec.structs.replace(point, power_se=power_se, speed_se=speed_se)

    points, levels = (tuple(map(wider, found)) for found in (curve.points, curve.levels))
    return msgspec.structs.replace(curve, points=points, levels=levels, basis="imported")


def rescaled(curve: Curve, full_w: float) -> Curve:
    """The same curve scaled to boards that draw `full_w` in total at full speed: a cap binds at the same share of
    that."""
    full = next((point for point in curve.points if point.kind == "full"), None)
    if full is None or full.power_w <= 0 or full_w <= 0:
        return curve
    scale = full_w / full.power_w

    def scaled(point: Point) -> Point:
        return msgspec.structs.replace(
            point,
            cap_w=None if point.cap_w is None else float(round(point.cap_w * scale)),
            power_w=point.power_w * scale,
            power_se=point.power_se * scale,
            j_per_step=None if point.j_per_step is None else point.j_per_step * scale,
        )

    points, levels = (tuple(map(scaled, found)) for found in (curve.points, curve.levels))
    return msgspec.structs.replace(curve, points=points, levels=levels)


def before(prior: Sequence[Point], point: Point) -> Point | None:
    """What was known of a cap: its own level, else between the two around it; None outside, and of full speed."""
    caps = sorted((p for p in prior if p.kind == "cap" and p.cap_w is not None), key=lambda p: p.cap_w or 0.0)
    if point.cap_w is None or len(caps) < 2 or not (caps[0].cap_w or 0.0) <= point.cap_w <= (caps[-1].cap_w or 0.0):
        return None
    rows = [(p.cap_w or 0.0, p.power_w, p.power_se, p.speed, p.speed_se) for p in caps]
    _, *known = units.between(rows, point.cap_w)
    return msgspec.structs.replace(point, **dict(zip(FIGURES, known, strict=True)))


def combined(one: Point, other: Point) -> Point:
    """Two estimates of one level by inverse variance."""

    def mean(a: float, a_se: float, b: float, b_se: float) -> tuple[float, float]:
        weight, more = 1 / max(a_se, 1e-6) ** 2, 1 / max(b_se, 1e-6) ** 2
        return (weight * a + more * b) / (weight + more), 1 / math.sqrt(weight + more)

    power_w, power_se = mean(one.power_w, one.power_se, other.power_w, other.power_se)
    speed, speed_se = mean(one.speed, one.speed_se, other.speed, other.speed_se)
    each = one.j_per_step and one.j_per_step * power_w / one.power_w * one.speed / speed
    known = dict(zip(FIGURES, (power_w, power_se, speed, speed_se), strict=True))
    return msgspec.structs.replace(one, j_per_step=each, **known)


def at_cap(curve: Curve, cap_w: float) -> tuple[float, float] | None:
    """Watts of all boards and relative speed under a cap of `cap_w` per GPU, from the levels around it: linear between
    two; below the lowest as many joules per step as there; None without a curve of caps."""
    full = next((point for point in curve.points if point.kind == "full"), None)
    caps = sorted((p.cap_w, p.power_w, p.speed) for p in curve.points if p.kind == "cap" and p.cap_w is not None)
    if full is None or not caps:
        return None
    known = [*caps, (max(full.power_w / curve.gpus, caps[-1][0]), full.power_w, full.speed)]
    _, power_w, speed = units.between(known, cap_w)
    return power_w, speed


def energy_error(curve: Curve | None, cap_w: float | None) -> float:
    """Relative standard error of the joules per step under a cap; 0 if no such level is known."""
    found = next((point for point in curve.levels if point.cap_w == cap_w), None) if curve and cap_w else None
    if found is None or found.speed <= 0 or found.power_w <= 0:
        return 0.0
    return math.hypot(found.power_se / found.power_w, found.speed_se / found.speed)
