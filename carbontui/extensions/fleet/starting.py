"""The levels at which a job that is submitted may start, for its comment: from a measured curve, or public ones."""

from __future__ import annotations

import time
from pathlib import Path

from carbontui.power.curves import files, public
from carbontui.power.curves.curve import Curve

PUBLIC = "public"


def curve_of(place: str, gpu: str, gpus: int | None, watts: float | None, host_w: float) -> Curve:
    """The curve in a file that `calibrate --export` wrote, or that of the public trainings (`place` is PUBLIC) for
    boards that draw `watts` less `host_w`. Raises OSError, ValueError naming what is missing."""
    if place != PUBLIC:
        return files.read(Path(place))
    if watts is None or gpus is None:
        raise ValueError("public curves need --watts and --gpus: they are relative to the watts at full speed")
    if watts <= host_w:
        raise ValueError(f"--host-w {host_w:g} leaves nothing of --watts {watts:g} to the GPUs")
    found = public.curve(
        gpu, gpus, watts - host_w, limit_min_w=0.0, limit_found_w=float("inf"), measured_s=time.time(), mark=""
    )
    assert found is not None  # some of its caps are below any watts
    return found


def noted(curve: Curve, gpus: int, watts: float | None, host_w: float) -> dict[str, object]:
    """For the comment: its watts at full speed, and of each cap watts, speed, watts per GPU and the error of the speed.
    Raises ValueError where the curve's boards draw more than `watts`."""
    scale = gpus / curve.gpus
    boards_w = next(point.power_w for point in curve.points if point.kind == "full") * scale
    rest_w = host_w if watts is None else watts - boards_w
    if rest_w < -0.01 * boards_w:
        raise ValueError(f"its {gpus} GPUs draw {boards_w:.0f} W at full speed, --watts {watts:g} is less")
    rest_w = max(0.0, rest_w)
    levels = [
        [
            # what a limit bounds is never above it
            round(rest_w + min((point.power_w + point.power_se) * scale, point.cap_w * gpus), 1),
            round(point.speed, 4),
            point.cap_w,
            round(point.speed_se, 4),
        ]
        for point in curve.levels
        if point.kind == "cap" and point.cap_w is not None
    ]
    return {"watts": round(rest_w + boards_w, 1), "levels": levels}
