"""The grid's data types for the rest of the program: immutable and free of numpy.

A series has one signal and one unit; average and marginal are never mixed in one series or one plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from carbontui.protocol import ForecastError, Intensity
from carbontui.units import iso

HOUR_S = 3600.0
DAY_S = 86400.0
Signal = Literal["average_lifecycle", "average_direct", "marginal", "given", "price"]
"""`given`: the user's own values; whether they are direct or lifecycle emissions is unknown."""
Kind = Literal["actual", "estimated", "forecast"]
YOURS = "yours"
"""Stands in for a zone where the user gave the intensity, which belongs to no known zone."""


class Row(NamedTuple):
    """One half-open interval [start_s, start_s + dur_s) in epoch seconds UTC, and its value in the series' unit."""

    start_s: float
    dur_s: float
    value: float
    kind: Kind = "actual"
    suspect: bool = False

    @property
    def end_s(self) -> float:
        return self.start_s + self.dur_s


class Mix(NamedTuple):
    """Generation in [start_s, start_s + dur_s): megawatts by fuel (a key of `fuels.FACTORS`)."""

    start_s: float
    dur_s: float
    megawatts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Series:
    """Rows sorted by start, no duplicate starts, no nulls; gaps are missing rows.

    Unit: gCO2/kWh for intensities, currency/kWh for prices (`currency` is set exactly then).
    """

    zone: str
    signal: Signal
    rows: tuple[Row, ...]
    source: str
    currency: str | None = None
    generated_at_s: float | None = None
    fetched_at_s: float | None = None
    mix: tuple[Mix, ...] = ()
    """The fuel mix of the last day's rows, where the source publishes it."""
    ahead_s: float = 0.0
    """How far values left out lay in the future of this machine's clock; 0 for none."""

    @property
    def end_s(self) -> float:
        """The end of the last row; 0 without rows."""
        return self.rows[-1].end_s if self.rows else 0.0


Answer: TypeAlias = tuple[Series, tuple[str, ...]]
"""What a provider answered, and notes on repairs."""


@dataclass(frozen=True, slots=True)
class GridForecast:
    """Intensity per equal slot from `start_s` on, past and future, for the planner, accounts and charts.

    The first `realised` slots are realised values, the rest is a forecast: a conditional mean and an 80 % band. None
    marks an unknown slot. `how` and `source` are the provenance of the future part; `note` is one line for the screen
    when a source is silent or a fallback is in use.
    """

    zone: str
    signal: Signal
    start_s: float
    step_s: float
    mean: tuple[float | None, ...]
    lo: tuple[float | None, ...]
    hi: tuple[float | None, ...]
    realised: int
    source: str
    how: Literal["forecast", "default", "replay", "estimated"]
    made_at_s: float
    price: tuple[float | None, ...] = ()
    price_lo: tuple[float | None, ...] = ()
    price_hi: tuple[float | None, ...] = ()
    """The 80 % band of prices: zero width where they are published, None where the width is unknown."""
    price_source: str = ""
    currency: str | None = None
    note: str = ""
    ahead_source: str = ""
    """Where recorded values are replayed: the source of those to come; `source` is the recording."""
    moved: str = ""
    """Which fuels changed the intensity recently, where the mix is known: 'coal +2.1 GW, wind -3.0 GW since 16:00'."""
    accuracy: tuple[ForecastError, ...] = ()
    """Measured accuracy of this machine's forecasts of the zone so far."""
    known_until_s: float | None = None
    """When the newest measured value ended; None where none was measured."""
    difference_error: float | None = None
    """Measured relative standard error of the difference between two hours of such a forecast; None: not yet known."""

    def value_at(self, epoch_s: float) -> float | None:
        """The value of the slot that contains `epoch_s`; None outside or unknown."""
        index = int((epoch_s - self.start_s) // self.step_s)
        return self.mean[index] if 0 <= index < len(self.mean) else None

    def intensity(self, now_s: float) -> Intensity | None:
        """The value now with its signal, zone and age; None where it is not known."""
        value, until_s = self.value_at(now_s), self.known_until_s
        until, age_s = (None, None) if until_s is None else (iso(until_s), round(now_s - until_s, 1))
        return None if value is None else Intensity(round(value, 2), self.signal, self.zone, until, age_s)

    def at(self, edges: Sequence[float]) -> list[float] | None:
        """The values at the start of each slot between the edges (epoch seconds); None where one is unknown."""
        values = [self.value_at(edge + 1e-3) for edge in edges[:-1]]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else None
