"""Grid zones: keys, names, accepted aliases, and the guess from a time zone."""

import contextlib
import difflib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from carbontui.grid import typical
from carbontui.grid.types import YOURS

Confidence = Literal["high", "medium", "low", "none"]
NAMED = 6
"""Candidates named where the time zone has several."""

UNKNOWN: tuple[str, str, Confidence, str] = ("", "", "none", "")

ALIASES = {
    "UK": "GB", "GREAT BRITAIN": "GB", "BRITAIN": "GB", "ENGLAND": "GB", "DK1": "DK-DK1", "DK2": "DK-DK2",
    "CAISO": "US-CAL-CISO", "CISO": "US-CAL-CISO", "CALIFORNIA": "US-CAL-CISO", "PJM": "US-MIDA-PJM",
    "MISO": "US-MIDW-MISO", "NYISO": "US-NY-NYIS", "ISO-NE": "US-NE-ISNE", "ISONE": "US-NE-ISNE",
    "ERCOT": "US-TEX-ERCO", "TEXAS": "US-TEX-ERCO", "SPP": "US-CENT-SWPP", "BPA": "US-NW-BPAT",
    "IESO": "CA-ON", "ONTARIO": "CA-ON", "QUEBEC": "CA-QC", "QUÉBEC": "CA-QC", "NORTHERN IRELAND": "GB-NIR",
    "DE-LU": "DE", "HOLLAND": "NL", "SE3": "SE-SE3", "SE4": "SE-SE4", "NO1": "NO-NO1", "NO2": "NO-NO2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone's key (the form Electricity Maps uses) and its name."""

    key: str
    name: str


@lru_cache(maxsize=1)
def _by_time_zone() -> dict[str, tuple[str, str, Confidence, str]]:
    """IANA name -> (country, zone, confidence, note)."""
    known: dict[str, Confidence] = {"high": "high", "medium": "medium", "low": "low"}
    return {
        row["iana_time_zone"]: (row["iso2"], row["grid_zone"], known.get(row["zone_confidence"], "none"), row["note"])
        for row in typical.table("timezone-to-zone.csv")
    }


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Names of zones within countries, and of countries whose table has no name or an unusual one."""
    return {row["zone"]: row["name"] for row in typical.table("zone-names.csv")}


@lru_cache(maxsize=1)
def every() -> dict[str, Zone]:
    """All known zones by key."""
    names = {code: name for code, (name, _, _) in typical.yearly_means().items() if len(code) == 2} | _names()
    keys = set(names) | set(typical.zones())
    keys |= {zone for _, zone, _, _ in _by_time_zone().values() if zone}
    keys.discard("US")  # several grids: too coarse to plan on
    return {key: Zone(key, names.get(key) or _of_country(key, names)) for key in sorted(keys)}


def _of_country(key: str, names: dict[str, str]) -> str:
    country, _, part = key.partition("-")
    return f"{names.get(country, country)} ({part})" if part else key


def resolve(text: str) -> Zone:
    """The zone of a key, a country or a common name. Raises ValueError with the nearest names."""
    wanted = text.strip().upper()
    key = ALIASES.get(wanted, wanted)
    if key in every():
        return every()[key]
    by_name = [zone for zone in every().values() if zone.name.upper() == wanted]
    if len(by_name) == 1:
        return by_name[0]
    if wanted == "US":
        raise ValueError("zone 'US' is several grids; name one, e.g. US-CAL-CISO (see `carbontui zones US`)")
    names = {zone.name.upper(): zone.key for zone in every().values()}
    near = difflib.get_close_matches(wanted, [*every(), *ALIASES, *names], n=3, cutoff=0.6)
    keys = list(dict.fromkeys(names.get(name) or ALIASES.get(name) or name for name in near))
    hint = f"did you mean {' or '.join(keys)}?" if keys else "`carbontui zones` lists them"
    raise ValueError(f"zone {text!r} is not known; {hint}")


def search(text: str) -> tuple[Zone, ...]:
    """Zones whose key, name or alias contains the text; all of them for an empty text."""
    wanted = text.strip().upper()
    aliased = {key for alias, key in ALIASES.items() if wanted and wanted in alias}
    return tuple(
        zone for zone in every().values() if wanted in zone.key or wanted in zone.name.upper() or zone.key in aliased
    )


def local_time_zone() -> str | None:
    """IANA name of this machine's time zone, from TZ or /etc; None when neither gives one."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named:
        return named
    with contextlib.suppress(OSError):
        target = str(Path("/etc/localtime").resolve())
        if "/zoneinfo/" in target:
            return target.rpartition("/zoneinfo/")[2]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Path("/etc/timezone").read_text("utf-8").strip() or None
    return None


def guess(tz_name: str | None) -> tuple[tuple[Zone, ...], Confidence]:
    """Zones that a time zone suggests, best first, and the confidence.

    Only 'high' may be used without asking: a time zone tells how the clock is set, not where the machine is.
    """
    country, key, confidence, _ = _by_time_zone().get(tz_name or "", UNKNOWN)
    if not key:
        return (), "none"
    first = every()[key]
    if confidence == "high":
        return (first,), "high"
    siblings = [zone for zone in every().values() if zone.key.startswith(f"{country}-") and zone != first]
    if country == "US":
        siblings = [zone for zone in siblings if zone.key in typical.zones()]
    return (first, *siblings), confidence


def find(wanted: str | None) -> tuple[Zone | None, str]:
    """The zone asked for or configured, else the only one of the time zone; (None, why) when it is not known.

    Raises ValueError for an unknown zone, naming the nearest ones.
    """
    if wanted:
        try:
            return resolve(wanted), ""
        except ValueError as error:
            raise ValueError(f"--zone: {error}") from None
    candidates, confidence = guess(local_time_zone())
    if confidence == "high":
        return candidates[0], ""
    names = ", ".join(zone.key for zone in candidates[:NAMED])
    # the repair comes first: a screen may have no room for the names
    perhaps = f" (perhaps {names})" if names else ""
    return None, f"the grid zone is not known; set it with --zone or CARBONTUI_ZONE{perhaps}"


def sure(wanted: str | None, yours: float | None = None) -> Zone:
    """The zone; with an intensity of one's own none has to be known. Raises ValueError that names the candidates when
    it is not."""
    found, why = find(wanted)
    if found is None and yours is None:
        raise ValueError(why)
    return found or Zone(YOURS, "your own intensity")


def key_of(zone: str) -> str:
    """The zone's key for any of its names; an unknown name unchanged, which the lookup will refuse."""
    with contextlib.suppress(ValueError):
        return resolve(zone).key
    return zone
