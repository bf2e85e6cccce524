"""CAISO OASIS: tables in ZIP archives. Turns the operator's forecasts of load, sun and wind into an intensity.

Emissions of the California grid follow its net load (load minus sun and wind) closely: a line is fitted to the last
day's five-minute values and extrapolated over the operator's own forecasts. No other source is needed.
"""

from __future__ import annotations

import csv
import io
import statistics
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence

from carbontui.grid import clean
from carbontui.grid.faults import BadAnswer, NoData
from carbontui.grid.providers.base import SHAPE_FAULTS, number, utc

BASE = "https://oasis.caiso.com/oasisapi"
UNZIPPED_MAX = 64 * 1024 * 1024
LOAD = {"queryname": "SLD_FCST", "market_run_id": "7DA", "version": "1", "resultformat": "6"}
RENEWABLES = {"queryname": "SLD_REN_FCST", "market_run_id": "DAM", "version": "1", "resultformat": "6"}
WHOLE_AREA = "CA ISO-TAC"
HUBS = frozenset({"NP15", "SP15", "ZP26"})
LEAST_SAMPLES = 36
SLOPE_T_PER_MWH = (0.05, 1.0)
"""Plausible emissions of one more megawatt-hour of net load: between a sixth of a gas plant and an old coal plant."""
LEAST_G = 5.0

NetLoad = tuple[float, float]
"""Net load in MW and emissions in t/h at one time."""
UNSTEADY = frozenset({"Solar", "Wind"})
Sources = Mapping[float, Mapping[str, float]]
"""Epoch seconds -> source -> t/h or MW."""


def samples(co2: Sources, supply: Sources) -> Iterator[NetLoad]:
    """Net load and emissions at the times for which both are known."""
    for at_s in co2.keys() & supply.keys():
        net = sum(megawatts for source, megawatts in supply[at_s].items() if source not in UNSTEADY)
        yield net, sum(co2[at_s].values())


def table(body: bytes) -> Iterator[dict[str, str]]:
    """Rows of the table in an answer. Raises BadAnswer if it is not an archive, NoData for the XML "no data" error."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            first = archive.infolist()[0]
            if first.file_size > UNZIPPED_MAX:
                raise BadAnswer("CAISO OASIS sent an archive that is too large")
            text = archive.read(first).decode("utf-8-sig", "replace")
    except (zipfile.BadZipFile, IndexError, EOFError, OSError):
        raise BadAnswer("CAISO OASIS sent no ZIP archive") from None
    if text.lstrip().startswith("<"):
        raise NoData("CAISO OASIS has no data for these hours (an XML error)")
    return csv.DictReader(io.StringIO(text))


def hours(body: bytes, area: str, wanted: Iterable[str]) -> dict[float, float]:
    """Megawatts by interval start, summed over the rows whose column `area` is one of `wanted`."""
    found: dict[float, float] = {}
    names = frozenset(wanted)
    for row in table(body):
        try:
            if row[area] not in names:
                continue
            start_s = utc(row["INTERVALSTARTTIME_GMT"].replace("-00:00", "+00:00"))
            megawatts = number(row["MW"])
        except SHAPE_FAULTS:
            raise BadAnswer("CAISO OASIS sent a table in an undocumented format") from None
        if megawatts is not None:
            found[start_s] = found.get(start_s, 0.0) + megawatts
    if not found:
        raise NoData("CAISO OASIS has no forecast for these hours")
    return found


def expected(
    samples: Sequence[NetLoad], load: Mapping[float, float], renewables: Mapping[float, float]
) -> Iterator[clean.Raw]:
    """g/kWh of the hours for which load and renewables are both forecast. Raises NoData where no plausible line fits
    the past."""
    if len(samples) < LEAST_SAMPLES or len({net for net, _ in samples}) < 2:
        raise NoData("too few values of the last day to make a forecast from")
    slope, start = statistics.linear_regression([net for net, _ in samples], [tonnes for _, tonnes in samples])
    if not SLOPE_T_PER_MWH[0] <= slope <= SLOPE_T_PER_MWH[1]:
        raise NoData("emissions of the last day do not follow the net load")
    for start_s in sorted(set(load) & set(renewables)):
        if load[start_s] > 0:
            tonnes = start + slope * (load[start_s] - renewables[start_s])
            yield start_s, 3600.0, max(LEAST_G, 1000 * tonnes / load[start_s]), "forecast"
