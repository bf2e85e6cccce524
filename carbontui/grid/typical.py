"""Typical days: a zone's usual intensity by month, kind of day and hour. Never live data, and labelled so."""

import contextlib
import csv
import gzip
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from carbontui.grid.types import GridForecast, Signal

YEAR_OF_DATA = {"GB": 2023, "DE": 2020} | dict.fromkeys(("ES", "NL", "PL", "SE", "US-NE-ISNE", "US-FLA-FPL"), 2021)
DEFAULT_YEAR = 2022  # the other US zones
MEAN_THEN = {"GB": 235.63, "DE": 355.61, "ES": 193.54, "NL": 352.24, "PL": 756.36, "SE": 41.74}
"""The zone's mean of the year of its typical days on the basis of `yearly_means`: lifecycle g/kWh, Ember via Our World
in Data, one file (spring 2026) for both years. Only their ratio is used: typical days stay direct emissions."""

PART_OF_COUNTRY = (0.14, 1.5)
"""Range of a part's mean over its country's: yearly means of ten US grids over that of the United States."""

APART = ("ES-CN", "ES-CE", "ES-ML", "ES-IB")
"""Separate systems far from their country's mix: its typical days do not apply to them."""
SHARES_GRID_OF = {"GB-NIR": "IE"}
"""Parts of a country that belong to another country's grid."""

ValueAndBand = tuple[float | None, float | None, float | None]
Hour = tuple[float, float, float]
"""Mean, 10th and 90th percentile, gCO2/kWh."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Mean, p10 and p90 in gCO2/kWh per (month, weekend?, UTC hour); `source` is their provenance, `unscaled` the one
    before they were scaled to a later year."""

    zone: str
    source: str
    unscaled: str
    signal: Signal
    cells: dict[tuple[int, bool, int], Hour]

    def at(self, epoch_s: float) -> Hour:
        """The typical values of the hour that contains `epoch_s`."""
        moment = datetime.fromtimestamp(epoch_s, tz=timezone.utc)
        return self.cells[moment.month, moment.weekday() >= 5, moment.hour]


def table(name: str) -> Iterator[dict[str, str]]:
    """The rows of a table that ships with carbontui."""
    raw = resources.files("carbontui.data").joinpath(name).read_bytes()
    text = gzip.decompress(raw).decode() if name.endswith(".gz") else raw.decode()
    return csv.DictReader(io.StringIO(text))


@lru_cache(maxsize=1)
def recorded() -> dict[str, Profile]:
    """Zone -> its typical days as they were, in the year named."""
    cells: dict[str, dict[tuple[int, bool, int], Hour]] = {}
    for row in table("typical-day-profiles.csv.gz"):
        key = (int(row["month"]), row["day_type"] == "weekend", int(row["hour_utc"]))
        mean = float(row["mean_g_per_kwh"])
        # a few skewed hours have their mean outside the 10th to 90th percentile: the band is extended to the mean
        triple = (mean, min(mean, float(row["p10"])), max(mean, float(row["p90"])))
        cells.setdefault(row["zone"], {})[key] = triple
    named = {zone: f"typical days of {zone} {YEAR_OF_DATA.get(zone, DEFAULT_YEAR)}" for zone in cells}
    return {zone: Profile(zone, named[zone], named[zone], "average_direct", own) for zone, own in cells.items()}


@lru_cache(maxsize=1)
def _profiles() -> dict[str, Profile]:
    """The same, scaled to the zone's last yearly mean where the one of that year is known."""
    found = dict(recorded())
    for zone, then in MEAN_THEN.items():
        share, year = yearly_means()[zone][1] / then, yearly_means()[zone][2]
        cells = {key: (share * mean, share * lo, share * hi) for key, (mean, lo, hi) in found[zone].cells.items()}
        found[zone] = replace(found[zone], source=f"{found[zone].source}, scaled to {year}'s mean", cells=cells)
    return found


@lru_cache(maxsize=1)
def yearly_means() -> dict[str, tuple[str, float, int]]:
    """Country or US state code -> (name, gCO2/kWh of the last known year, that year)."""
    means = {}
    for row in table("countries.csv"):
        if row["ci_gco2_per_kwh"] not in ("", "missing"):
            means[row["code"]] = (row["name"], float(row["ci_gco2_per_kwh"]), int(row["ci_year"]))
    return means


def zones() -> tuple[str, ...]:
    """Zones with hourly typical days."""
    return tuple(sorted(_profiles()))


def _country(zone: str) -> str:
    """The country whose typical days may be used for the zone; '' for none."""
    if zone.startswith(APART):
        return ""
    return SHARES_GRID_OF.get(zone, zone.split("-")[0])


def has_hours(zone: str) -> bool:
    """Whether the zone (or its country) has typical days, not just a yearly mean."""
    return zone in _profiles() or _country(zone) in _profiles()


def is_own(zone: str) -> bool:
    """Whether the data are of the zone itself, not of the country around it."""
    return zone in _profiles() or zone in yearly_means()


@lru_cache(maxsize=64)
def profile(zone: str) -> Profile | None:
    """Typical days of the zone or its country, else the yearly mean in the daily shape of similar grids, else None."""
    country = _country(zone)
    found = _profiles().get(zone) or _profiles().get(country)
    if found or country not in yearly_means():
        return found
    name, mean, year = yearly_means()[country]
    lower, upper = (1.0, 1.0) if zone == country else PART_OF_COUNTRY
    offset_h = utc_offset_h(zone)
    level = min({level for level, _, _ in _similar_days()}, key=lambda known: abs(math.log(known / max(mean, 1.0))))
    cells: dict[tuple[int, bool, int], Hour] = {}
    for weekend, hour in ((weekend, hour) for weekend in (False, True) for hour in range(24)):
        share, lo, hi = _similar_days()[level, weekend, (hour + offset_h) % 24]
        cell = (mean * share, mean * lo * lower, mean * hi * upper)
        cells |= {(month, weekend, hour): cell for month in range(1, 13)}
    source = f"yearly mean of {name} {year} (Ember) in the daily shape of similar grids"
    return Profile(zone, source, source, "average_lifecycle", cells)


@lru_cache(maxsize=1)
def _similar_days() -> dict[tuple[float, bool, int], Hour]:
    """(yearly mean, weekend?, local hour) -> share of the mean and its 80 % band (tests/bench/make_similar_days.py)."""
    found: dict[tuple[float, bool, int], Hour] = {}
    for row in table("similar-days.csv"):
        key = float(row["level_g_per_kwh"]), row["day_type"] == "weekend", int(row["hour_local"])
        found[key] = float(row["share"]), float(row["lo"]), float(row["hi"])
    return found


def utc_offset_h(zone: str) -> int:
    """Standard-time UTC offset of the zone (else of its country) in whole hours; 0 where no time zone is known."""
    country = zone.split("-")[0]
    rows = list(table("timezone-to-zone.csv"))
    named = [row for row in rows if row["grid_zone"] == zone] or [row for row in rows if row["iso2"] == country]
    for row in named:
        with contextlib.suppress(ZoneInfoNotFoundError):
            here = ZoneInfo(row["iana_time_zone"])
            offsets = [datetime(2026, month, 1, tzinfo=here).utcoffset() or timedelta(0) for month in (1, 7)]
            return round(min(offsets) / timedelta(hours=1))
    return 0


def outlook(zone: str, start_s: float, step_s: float, slots: int) -> GridForecast:
    """`slots` typical values from `start_s` on: mean and, as the 80 % band, 10th to 90th percentile.

    A slot takes the mean of the hours it touches. Raises ValueError for a zone without typical days.
    """
    typical = profile(zone)
    if typical is None:
        raise ValueError(f"no typical days for zone {zone!r}; see `carbontui zones`")
    columns = [slot_values(typical, start_s + k * step_s, step_s) for k in range(slots)]
    mean, lo, hi = zip(*columns, strict=True) if columns else ((), (), ())
    return GridForecast(zone, typical.signal, start_s, step_s, mean, lo, hi, 0, typical.source, "default", start_s)


def slot_values(typical: Profile, start_s: float, step_s: float) -> Hour:
    """Mean, p10 and p90 of one slot."""
    if step_s <= 3600:
        return typical.at(start_s + step_s / 2)
    cells = [typical.at(start_s + 1800 + hour * 3600) for hour in range(max(1, round(step_s / 3600)))]
    mean, lo, hi = (sum(column) / len(cells) for column in zip(*cells, strict=True))
    return mean, lo, hi
