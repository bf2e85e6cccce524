"""Shadow prices that `carbontui fleet` sets for running jobs: a file that it writes and their supervisors read."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from carbontui import config, paths, units
from carbontui.headroom import GivenPrices

SCHEMA = "carbontui.site_prices/1"
STALE_S = 7200.0
"""Prices not renewed for this long are ignored: their writer is gone."""
FILE_MOST_B = 1 << 20
PRICE_MOST = 1e6
"""g/kWh; a larger one is a mistake."""


class PricesError(RuntimeError):
    """The file cannot be used; the text names it and the repair."""


class _File(Struct, frozen=True, kw_only=True):
    schema: str
    made_at: str
    first_slot: str
    slot_s: float
    g_per_kwh: tuple[float, ...]


def write(path: Path, first_slot_s: float, slot_s: float, g_per_kwh: Sequence[float], *, now_s: float) -> None:
    """Replace the file, readable by all, atomically: a reader sees the old or the new one. Raises PricesError."""
    told = _File(
        schema=SCHEMA,
        made_at=units.iso(now_s),
        first_slot=units.iso(first_slot_s),
        slot_s=slot_s,
        g_per_kwh=tuple(round(price, 3) for price in g_per_kwh),
    )
    try:
        paths.write_whole(path, msgspec.json.encode(told) + b"\n", 0o644)
    except OSError as error:
        raise PricesError(f"{path}: {error.strerror or error}") from None


def read(path: Path, now_s: float) -> GivenPrices | None:
    """The prices in force; None without a file, or if it is stale. Raises PricesError."""
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_mode & stat.S_IWOTH:
                raise PricesError(f"{path}: ignored: not a regular file, or writable by everybody (chmod o-w)")
            found = msgspec.json.decode(file.read(FILE_MOST_B), type=_File)
        made_s, first_s = units.from_iso(found.made_at), units.from_iso(found.first_slot)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PricesError(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise PricesError(f"{path}: {error}; carbontui fleet --prices writes it") from None
    sound = found.slot_s > 0 and all(math.isfinite(price) and 0 <= price <= PRICE_MOST for price in found.g_per_kwh)
    if found.schema != SCHEMA or not sound:
        raise PricesError(f"{path}: not a {SCHEMA} with prices of zero and above; carbontui fleet --prices writes it")
    if abs(now_s - made_s) > STALE_S:
        return None
    return GivenPrices(start_s=first_s, slot_s=found.slot_s, g_per_kwh=found.g_per_kwh)


def configured(now_s: float) -> GivenPrices | None:
    """The prices in the file named by the setting `site_prices`. Raises PricesError."""
    try:
        path = config.load().settings.site_prices
    except config.ConfigError as error:
        raise PricesError(str(error)) from None
    return read(Path(path).expanduser(), now_s) if path else None
