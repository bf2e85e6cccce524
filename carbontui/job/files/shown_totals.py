"""The totals that viewers were shown last, kept beside the job's socket, so that no successor shows less.

A supervisor stores its account every two seconds and shows it more often, and its successor knows the boards' counters
only with its first sample. Until that has caught up, what was shown stays. Written at every look, so it lies where a
slow state disk holds up nobody; it is lost with the machine, as the job is.
"""

import contextlib
import math
import os
import struct
from pathlib import Path
from typing import TypeVar

import msgspec

from carbontui import protocol

T = TypeVar("T", protocol.Status, protocol.Amounts)

FORM = struct.Struct("<3d")
NAMES = ("energy_gpu_kwh", "energy_wall_kwh", "gco2_g")
HELD_S = 60.0
"""A successor without a sample for longer shows its own account: boards that were not the job's may be gone from it."""


def place(socket: str | Path) -> Path:
    """The file beside a job's socket."""
    return Path(f"{socket}.totals")


def read(path: Path) -> tuple[float | None, ...] | None:
    """kWh of the boards, kWh at the wall, gCO2 (None: not known then); None where nothing usable was left."""
    with contextlib.suppress(OSError, struct.error):
        with path.open("rb") as file:
            values = FORM.unpack(file.read(FORM.size + 1))
        if all(math.isnan(value) or 0.0 <= value <= 1e12 for value in values):
            return tuple(None if math.isnan(value) else value for value in values)
    return None


def at_least(status: protocol.Status, last: tuple[float | None, ...] | None) -> protocol.Status:
    """The status with no total below the last shown; so far and whole rise together, ahead stays."""
    if last is None:
        return status
    less: dict[str, float] = {}
    for name, before in zip(NAMES, last, strict=True):
        now = getattr(status, name)
        if before is not None and (now is None or now < before):
            less[name] = before - (now or 0.0)
    if not less:
        return status
    account = status.account
    if account is not None:
        parts = {"so_far": _more(account.so_far, less), "whole": account.whole and _more(account.whole, less)}
        account = msgspec.structs.replace(account, **parts)
    return msgspec.structs.replace(_more(status, less), account=account)


def _more(one: T, less: dict[str, float]) -> T:
    """Raised by so much; run-now by as much as the grams, so that what was avoided stays."""
    more = {name: round((getattr(one, name) or 0.0) + by, 9) for name, by in less.items()}
    if "gco2_g" in less and isinstance(one, protocol.Amounts) and one.run_now_g is not None:
        more["run_now_g"] = round(one.run_now_g + less["gco2_g"], 9)
    return msgspec.structs.replace(one, **more)


class ShownTotals:
    """Writes what a supervisor shows, and holds its first totals at those of its predecessor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last = read(path)
        self._file: int | None = None

    def shown(self, status: protocol.Status, uptime_s: float) -> protocol.Status:
        """The status as it may be shown. Once the account has caught up it is shown as it is, also where it falls
        because a source revised its values."""
        held = at_least(status, self._last) if uptime_s < HELD_S else status
        if held is status:
            self._last = None
        values = [getattr(held, name) for name in NAMES]
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.pwrite(self._file, FORM.pack(*(math.nan if value is None else value for value in values)), 0)
        return held

    def close(self, *, over: bool) -> None:
        """Leave the file to a successor, or, where the job is over, remove it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if over:
            self.path.unlink(missing_ok=True)
