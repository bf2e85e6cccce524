"""Stores speed curves, one file per GPU model, number of boards and script; exports and imports them."""

import contextlib
import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from carbontui import paths
from carbontui.power.curves import curve as curves
from carbontui.power.curves.curve import SCHEMA, Curve
from carbontui.system import untrusted

IMPORT_MAX_B = 1 << 20
POINTS_MAX = 64
"""The most points of a curve."""


def fingerprint(argv: Sequence[str], cwd: Path) -> str:
    """Identity of a job for its curve: the command's words and the text of the Python files among them."""
    digest = hashlib.sha256()
    for word in argv:
        digest.update(os.fsencode(Path(word).name if word.startswith("/") else word) + b"\0")
        if word.endswith(".py"):
            with contextlib.suppress(OSError):
                digest.update((cwd / word).read_bytes())
    return digest.hexdigest()[:16]


def path(gpu: str, gpus: int, mark: str, directory: Path | None = None) -> Path:
    name = hashlib.sha256(f"{gpu}\0{gpus}\0{mark}".encode()).hexdigest()[:24]
    return (directory or paths.state_dir() / "curves") / f"{name}.json"


def save(curve: Curve, directory: Path | None = None) -> Path:
    """Write atomically; returns where. Raises OSError.

    A curve without caps never replaces one with caps, nor an imported one a curve measured here.
    """
    target = path(curve.gpu, curve.gpus, curve.fingerprint, directory)
    before = load(curve.gpu, curve.gpus, curve.fingerprint, directory)
    if curve.basis != "measured" and before is not None and before.basis == "measured":
        raise OSError("the curve measured on these GPUs stays")
    if curve.note and before is not None and not before.note and before.simulated == curve.simulated:
        raise OSError("the curve of an earlier run knows caps, this one does not")
    target.parent.mkdir(parents=True, exist_ok=True)
    paths.write_whole(target, msgspec.json.format(msgspec.json.encode(curve)) + b"\n")
    return target


def load(gpu: str, gpus: int, mark: str, directory: Path | None = None) -> Curve | None:
    """The curve of this job on this GPU model, or None; an invalid file counts as none."""
    return _stored(path(gpu, gpus, mark, directory))


def of_script(mark: str, directory: Path | None = None) -> Curve | None:
    """The newest curve measured here for this script, on any boards; None if there is none."""
    every = map(_stored, sorted((directory or paths.state_dir() / "curves").glob("*.json")))
    found = [one for one in every if one is not None and one.fingerprint == mark and one.basis == "measured"]
    return max(found, key=lambda one: one.measured_s, default=None)


def _stored(file: Path) -> Curve | None:
    with contextlib.suppress(OSError, ValueError):
        found = untrusted.decode(file.read_bytes(), Curve)
        return found if found.schema == SCHEMA else None
    return None


def read(file: Path) -> Curve:
    """The curve in an imported file, as one of another board: with the error that this adds.

    Raises OSError, ValueError naming what is wrong.
    """
    with file.open("rb") as opened:
        data = opened.read(IMPORT_MAX_B + 1)
    if len(data) > IMPORT_MAX_B:
        raise ValueError("it is larger than any curve")
    try:
        found = untrusted.decode(data, Curve)
    except ValueError as error:
        raise ValueError(f"it is not a speed curve ({error})") from None
    if found.schema != SCHEMA:
        raise ValueError(f"its schema is {found.schema!r}, not {SCHEMA}")
    if found.simulated:
        raise ValueError("it is of a simulated GPU")
    fulls = [point for point in found.points if point.kind == "full"]
    if len(fulls) != 1 or not found.levels or len(found.points) > POINTS_MAX or not 1 <= found.gpus <= POINTS_MAX:
        raise ValueError("it needs one level at full speed and at least one under a cap")
    for point in (*found.points, *found.levels):
        numbers = (point.power_w, point.power_se, point.speed, point.speed_se, point.cap_w or 1.0)
        if not all(math.isfinite(number) and 0 <= number < 1e6 for number in numbers) or not 0 < point.speed <= 1.2:
            raise ValueError(f"it has an impossible level: {point.power_w:g} W at speed {point.speed:g}")
    return curves.imported(found)
