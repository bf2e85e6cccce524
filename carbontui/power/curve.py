"""The speed-per-watt curve of one job on one GPU model: isotonic fit, useful hull, and the file it is kept in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from carbontui import paths

SCHEMA = "carbontui.curve/1"
HULL_GAIN = 0.003
"""A level that lifts the hull by less than this share of full speed is not worth a switch."""


class Point(Struct, frozen=True, kw_only=True):
    """One level as measured: watts of all the job's GPUs together, speed relative to full, standard errors beside."""

    kind: Literal["full", "cap", "pause"]
    cap_w: float | None
    """Watts per GPU; None for full and pause."""
    power_w: float
    power_se: float
    speed: float
    speed_se: float
    j_per_step: float | None = None


class Curve(Struct, frozen=True, kw_only=True):
    """What a calibration found. `points` is every measured level, `levels` those the planner should know."""

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

    A level below the hull is beaten by taking turns between its neighbours; the planner mixes levels in time anyway.
    """
    if not points:
        return ()
    # a level that draws no more than a pause beats it: then the hull begins below that level
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
    """How far `middle` stands above the chord from `left` to `right`, in speed."""
    if right[0] - left[0] < 1e-9:
        return middle[1] - right[1]
    share = (middle[0] - left[0]) / (right[0] - left[0])
    return middle[1] - (left[1] + share * (right[1] - left[1]))


# --- the file ------------------------------------------------------------------------------------------------------


def fingerprint(argv: Sequence[str], cwd: Path) -> str:
    """What makes a job 'the same' for its curve: the command's words and the text of the Python files among them."""
    digest = hashlib.sha256()
    for word in argv:
        digest.update(os.fsencode(Path(word).name if word.startswith("/") else word) + b"\0")
        if word.endswith(".py"):
            try:
                digest.update((cwd / word).read_bytes())
            except OSError:
                continue
    return digest.hexdigest()[:16]


def path(gpu: str, gpus: int, mark: str, directory: Path | None = None) -> Path:
    name = hashlib.sha256(f"{gpu}\0{gpus}\0{mark}".encode()).hexdigest()[:24]
    return (directory or paths.state_dir() / "curves") / f"{name}.json"


def save(curve: Curve, directory: Path | None = None) -> Path:
    """Write atomically; returns where. Raises OSError.

    What was measured without caps never takes the place of a curve that knows them.
    """
    target = path(curve.gpu, curve.gpus, curve.fingerprint, directory)
    before = load(curve.gpu, curve.gpus, curve.fingerprint, directory)
    if curve.note and before is not None and not before.note and before.simulated == curve.simulated:
        raise OSError("the curve of an earlier run knows caps, this one does not")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(curve)) + b"\n")
    temporary.replace(target)
    return target


def load(gpu: str, gpus: int, mark: str, directory: Path | None = None) -> Curve | None:
    """The curve of this job on this GPU model, or None; a file that is not one counts as none."""
    try:
        found = msgspec.json.decode(path(gpu, gpus, mark, directory).read_bytes(), type=Curve)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.schema == SCHEMA else None
