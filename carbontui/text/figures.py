"""How numbers and times are written for people, one form for all outputs; JSON and CSV have plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING

from carbontui import units

if TYPE_CHECKING:  # a status bar's line writes numbers without it
    from carbontui.protocol import Status

MARKS: dict[str, str] = {
    "measured": "",
    "integrated": "",
    "estimated": "~",
    "default": "D",
    "forecast": "F",
    "simulated": "S",
    "replay": "R",
}
ESTIMATED = MARKS["estimated"]
MEANING = {
    "": "measured: metered by the device, or summed from its readings",
    "~": "estimated: worked out from something else",
    "D": "default: a typical value, nothing better is known",
    "F": "forecast: not happened yet",
    "S": "simulated: no real device behind it",
    "R": "replay: recorded data or replayed time",
}


def mark(status: Status, field: str) -> str:
    """The mark of a field; '' where it is metered, or nothing is said of it."""
    found = status.provenance.get(field)
    return MARKS[found.how] if found else ""


def marked(figure: str, sign: str) -> str:
    """'135 W ~'; '135 W' for a metered one."""
    return f"{figure} {sign}" if sign else figure


def duration(seconds: float) -> str:
    """'42 s', '12 min', '3 h 05', '2 d 4 h': at most two units, for display."""
    s = max(0.0, seconds)
    if s < 99.5:
        return f"{s:.0f} s"
    minutes = round(s / 60)
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d}"
    hours = round(s / 3600)
    return f"{hours // 24} d {hours % 24} h"


def count(number: int) -> str:
    """'14,400'."""
    return f"{number:,}"


def size(number_b: float) -> str:
    """'800 B', '3.1 MB'."""
    for unit in ("B", "kB", "MB"):
        if number_b < 1000:
            return f"{number_b:.3g} {unit}"
        number_b /= 1000
    return f"{number_b:.3g} GB"


def total(steps: int, low: int, high: int | None, *, at_most: bool) -> str:
    """A guessed total with its interval: '434 steps (429 to 439)', 'at most 720 steps', '250 steps or more'."""
    if at_most:
        return f"at most {count(steps if high is None else high)} steps"
    return f"{count(steps)} steps" + (" or more" if high is None else f" ({count(low)} to {count(high)})")


def number(value: float, digits: int = 0, thousands: str = "") -> str:
    """'1204', '−3.2': with a true minus sign, and none before a zero."""
    return f"{round(value, digits) + 0.0:{thousands}.{digits}f}".replace("-", "−")


def percent(share: float, digits: int = 0) -> str:
    """'21 %', '−3.2 %', in sentences, tables and figures alike."""
    return f"{number(100 * share, digits)} %"


def tight(figure: str) -> str:
    """'21%', '246W': a figure without its blank, for `line` in a status bar, where blanks part the figures."""
    return figure.replace(" ", "")


_SCALES = {"g": 1.0, "kg": 1e3, "t": 1e6, "Wh": 1e-3, "kWh": 1.0, "W": 1.0, "kW": 1e3}


DIGITS_MOST = 9


def between(shown: Callable[[float], str], lo: float, hi: float) -> str:
    """'16.8 kWh to 17.2 kWh', as `shown` writes both; with more digits (a duration in seconds) where they would read
    alike, '' where none sets them apart."""
    low, high = shown(lo), shown(hi)
    if low != high:
        return f"{low} to {high}"
    unit = "s" if shown is duration else low.rpartition(" ")[2]
    scale = _SCALES.get(unit, 1.0)
    for digits in range(DIGITS_MOST):
        low, high = (number(value / scale, digits, ",") for value in (lo, hi))
        if low != high:
            return f"{low} {unit} to {high} {unit}"
    return ""


def watts(watts: float | None) -> str:
    """'312 W', '9.84 kW', or an en dash when not known."""
    if watts is None:
        return "–"
    return f"{number(watts)} W" if abs(watts) < 9950 else f"{number(watts / 1000, 2)} kW"


def kwh(kwh: float | None) -> str:
    """'0.412 Wh', '35.1 Wh', '1.24 kWh', '< 0.01 Wh' in the first seconds."""
    if kwh is None:
        return "–"
    if 0.0 < abs(kwh) < 1e-5:
        return "< 0.01 Wh"
    if abs(kwh) < 0.9995:
        return f"{kwh * 1000 + 0.0:.3g} Wh".replace("-", "−", 1)
    return f"{number(kwh, 2)} kWh" if abs(kwh) < 99.95 else f"{number(kwh, 0, ',')} kWh"


LEAST_G = 0.005
"""Less than this is shown as zero."""


NOT_METERED = "nothing was metered: it ended too soon, or drew no more than the machine does idle"
"""Shown instead of the energy of a job too short to be metered: not 0."""


def grams(grams: float | None) -> str:
    """'0.52 g', '412 g', '1.24 kg', '3.10 t', '< 0.01 g' in the first seconds."""
    if grams is None:
        return "–"
    size = abs(grams)
    if size < LEAST_G:
        return "< 0.01 g" if size else "0.00 g"
    if size < 9.995:
        return f"{number(grams, 2)} g"
    if size < 999.5:
        return f"{number(grams)} g"
    return f"{number(grams / 1000, 2)} kg" if size < 999_500 else f"{number(grams / 1e6, 2)} t"


def signed(value: float, form: Callable[[float], str]) -> str:
    """'−1.20 kg' or '+3 h 05': the sign beside the size in its unit."""
    return f"{'−' if value < 0 else '+'}{form(abs(value))}"


def change(size_g: float) -> str:
    """'+1.20 g', '−340 g'; without a sign where it rounds to zero."""
    return grams(size_g) if abs(size_g) < LEAST_G else signed(size_g, grams)


def money(value: float, currency: str) -> str:
    """'1.24 EUR'; the currency is always named."""
    return f"{number(value, 2, ',')} {currency}"


YEAR_IN_DOUBT_S = 180 * 86400.0
"""A date further away than this is ambiguous without its year."""


NAMES_ZONE: ContextVar[bool] = ContextVar("names_zone", default=False)
"""Whether every clock time names its zone: in a text that is kept, or read without a screen that names it once."""


@contextmanager
def zone_named() -> Iterator[None]:
    """Within it every clock time names its zone."""
    before = NAMES_ZONE.set(True)
    try:
        yield
    finally:
        NAMES_ZONE.reset(before)


def clock(epoch_s: float, now_s: float) -> str:
    """'14:15' today, 'Fri 14:15' within the week, '24 Dec 14:15' later, '24 Dec 2031 14:15' if the year is ambiguous:
    in the time zone of this process, the reader's. In the hour that an autumn has twice, 'Sun 02:30 CEST'."""
    at = datetime.fromtimestamp(epoch_s)
    twice = at.timestamp() != at.replace(fold=1 - at.fold).timestamp()
    return named_clock(epoch_s, now_s) if twice or NAMES_ZONE.get() else _clock(epoch_s, now_s)


def _clock(epoch_s: float, now_s: float) -> str:
    at, now = datetime.fromtimestamp(epoch_s), datetime.fromtimestamp(now_s)
    if at.date() == now.date():
        return f"{at:%H:%M}"
    if abs(epoch_s - now_s) < 6 * 86400:
        return f"{at:%a %H:%M}"
    if abs(epoch_s - now_s) < YEAR_IN_DOUBT_S:
        return f"{at.day} {at:%b %H:%M}"
    return f"{at.day} {at:%b %Y %H:%M}"


def day(epoch_s: float) -> str:
    """'24 Dec': the local day."""
    at = datetime.fromtimestamp(epoch_s)
    return f"{at.day} {at:%b}"


def clock_name(epoch_s: float) -> str:
    """'CET': the name of the local time zone at that time, which applies to times that users enter."""
    return units.local(epoch_s).tzname() or ""


def clock_names(now_s: float, until_s: float) -> str:
    """'CET', or 'CET, CEST from Sun 03:00' where the clocks change before the last of the times shown."""
    name, later, before_s = clock_name(now_s), clock_name(until_s), now_s
    while later != name and until_s - before_s > 1.0:
        middle_s = (before_s + until_s) / 2
        before_s, until_s = (middle_s, until_s) if clock_name(middle_s) == name else (before_s, middle_s)
    return name if later == name else f"{name}, {later} from {_clock(until_s, now_s)}"


def named_clock(epoch_s: float, now_s: float) -> str:
    """'Fri 14:15 CET': for users who may be in another time zone than the machine."""
    return f"{_clock(epoch_s, now_s)} {clock_name(epoch_s)}"


def budget(text: str, now_s: float) -> str:
    """A budget as it was given, '1.8x'; one given as a time of the wire, as the slider does, is 'Fri 14:15 CET'."""
    try:
        return named_clock(units.from_iso(text), now_s)
    except ValueError:
        return text
