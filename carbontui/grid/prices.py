"""Prices slot by slot: published ones, beyond them our own forecast, else the same time of the last known day, else the
flat price. Pure functions, no numpy. Negative prices are valid."""

import math
from dataclasses import dataclass

from carbontui.grid import compose
from carbontui.grid.issues import COLUMNS, ForecastAnswer, ForecastRequest
from carbontui.grid.types import DAY_S, Series
from carbontui.grid.typical import ValueAndBand

KEPT_S = 1.5 * DAY_S
"""A forecast of ours that starts longer than this before the end of the published prices is not used."""
LEAST_ROWS = 96
PUBLISHED_AT_S = 13 * 3600.0
"""Second of the UTC day by which Europe's day-ahead auctions have published tomorrow's prices."""


@dataclass(frozen=True, slots=True)
class PriceOutlook:
    """Currency per kWh by slot, with the 80 % band where the price is a forecast; `source` in words."""

    mean: tuple[float | None, ...] = ()
    lo: tuple[float | None, ...] = ()
    hi: tuple[float | None, ...] = ()
    source: str = ""


def published_until_s(now_s: float, at_s: float = PUBLISHED_AT_S) -> float:
    """The end of the last day whose prices a day-ahead market has published by now, epoch seconds; tomorrow's are
    known from the second `at_s` of the UTC day on."""
    day = math.floor(now_s / DAY_S)
    return (day + (2 if now_s - day * DAY_S >= at_s else 1)) * DAY_S


def request(known: Series | None, until_s: float, key: str) -> ForecastRequest | None:
    """The worker's request for the hours beyond the published prices; None where there are none, or too little history
    to learn from."""
    if known is None or len(known.rows) < LEAST_ROWS:
        return None
    past = compose.history(known.rows, known.end_s, until_s)
    return {**past, "signed": True, "key": f"price {key} {known.source}"} if past["horizon"] > 0 else None


def laid_out(
    known: Series | None, forecast: ForecastAnswer | None, flat: float | None, start_s: float, step_s: float, slots: int
) -> PriceOutlook:
    """The prices of equal slots. `forecast`: the worker's answer to `request`."""
    if known is None:
        always = (flat,) * slots
        return PriceOutlook() if flat is None else PriceOutlook(always, always, always, "a flat price")
    published = compose.slot_means(known.rows, start_s, step_s, slots)
    own = forecast if forecast and forecast["now_s"] >= known.end_s - KEPT_S else None
    expected = [compose.slots_of(own, name, start_s, step_s, slots) if own else [None] * slots for name in COLUMNS]
    per_day = round(DAY_S / step_s)
    cells: list[ValueAndBand] = []
    for k, (value, *ahead) in enumerate(zip(published, *expected, strict=True)):
        day_before = cells[k - per_day][0] if k >= per_day else flat
        mean, lo, hi = ahead if ahead[0] is not None else (day_before, None, None)
        cells.append((mean, lo, hi) if value is None else (value, value, value))
    means, los, his = zip(*cells, strict=True)
    beyond = "own forecast" if own else "the same time of the last known day"
    source = known.source if None not in published else f"{known.source}; beyond it {beyond}"
    return PriceOutlook(means, los, his, source)
