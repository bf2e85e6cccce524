"""Units at the borders: how seconds, watts, joules, grams and times are read and written.

Inside, everything is SI-like floats whose name carries the unit: ``_s`` seconds, ``_w`` watts, ``_j`` joules,
``_kwh`` kilowatt-hours, ``_g`` grams of CO2 (equivalent where the source says so), times in epoch seconds UTC.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from datetime import datetime, timezone

J_PER_KWH = 3.6e6

POWER_MAX_W = 1e9
LONGEST_S = 10 * 366 * 86400.0
"""Upper bound of a plausible duration; far beyond it sums would exceed the calendar."""

LATEST_S = 2.5e11
"""In the year 9892: times up to here can be formatted in every time zone."""

_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)", re.IGNORECASE)
_SECONDS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0}


def printable(text: str, keep: str = "") -> str:
    """Untrusted text made safe to print: control codes and bidirectional overrides become '?'.

    Characters in `keep` stay, and so do spaces of every width. All untrusted text we print goes through this.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else "?" for c in text)


def joules_to_kwh(joules: float) -> float:
    """The one place where joules become kilowatt-hours."""
    return joules / J_PER_KWH


def iso(epoch_s: float) -> str:
    """Epoch seconds as RFC 3339 with milliseconds and Z, the form of every time in our JSON."""
    whole = math.floor(epoch_s * 1000 + 0.5)
    moment = datetime.fromtimestamp(whole // 1000, tz=timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{whole % 1000:03d}Z"


def from_iso(text: str) -> float:
    """Epoch seconds of an RFC 3339 time; a time without a zone is refused.

    Raises ValueError when the text is not such a time.
    """
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00").replace("z", "+00:00"))
        epoch_s = moment.timestamp()
    except (ValueError, OverflowError):  # overflow: the first and last hours of the calendar, in some time zones
        raise ValueError(f"{text[:40]!r} is not a time; write it like 2030-02-11T08:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone; write it like 2030-02-11T08:00:00Z")
    return epoch_s


def parse_duration(text: str) -> float:
    """Seconds of '90s', '30m', '4h', '1h30m', '2d'. Raises ValueError naming the value and the form."""
    cleaned = text.strip().lower()
    parts = list(_DURATION_PART.finditer(cleaned))
    if not parts or _DURATION_PART.sub("", cleaned).strip():
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 30m, 4h, 1h30m or 2d")
    seconds = sum(float(part[1]) * _SECONDS[part[2]] for part in parts)
    if seconds > LONGEST_S:
        raise ValueError(f"{text[:40]!r} is longer than ten years")
    return seconds


def parse_watts(text: str) -> float:
    """Watts of '300W' or '300'. Raises ValueError naming the value and the form."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*w?", text.strip(), re.IGNORECASE)
    if not match or not 0 < float(match[1]) < 1e5:
        raise ValueError(f"{text!r} is not a power; write it like 300W (watts per GPU)")
    return float(match[1])


def parse_power(text: str) -> float:
    """Watts of '1200W', '1.2kW' or '1200', for a machine or a site. Raises ValueError naming the value and the form."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|m)?w?", text.strip(), re.IGNORECASE)
    watts = float(match[1]) * {"": 1.0, "k": 1e3, "m": 1e6}[(match[2] or "").lower()] if match else 0.0
    if not 0 < watts <= POWER_MAX_W:
        raise ValueError(f"{text[:40]!r} is not a power; write it like 1200W or 1.2kW")
    return watts


def _trim(number: float, digits: int) -> str:
    return f"{number:.{digits}f}"


def fmt_duration(seconds: float) -> str:
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


def fmt_count(number: int) -> str:
    """'14,400'."""
    return f"{number:,}"


_SCALES = {"g": 1.0, "kg": 1e3, "t": 1e6, "Wh": 1e-3, "kWh": 1.0, "W": 1.0, "kW": 1e3}
DIGITS_MOST = 9


def fmt_between(shown: Callable[[float], str], lo: float, hi: float) -> str:
    """'16.8 kWh to 17.2 kWh', as `shown` writes both; with more digits (a duration in seconds) where they would read
    alike, '' where none sets them apart."""
    low, high = shown(lo), shown(hi)
    if low != high:
        return f"{low} to {high}"
    unit = "s" if shown is fmt_duration else low.rpartition(" ")[2]
    scale = _SCALES.get(unit, 1.0)
    for digits in range(DIGITS_MOST):
        low, high = (f"{value / scale:,.{digits}f}" for value in (lo, hi))
        if low != high:
            return f"{low} {unit} to {high} {unit}"
    return ""


def fmt_watts(watts: float | None) -> str:
    """'312 W', '9.84 kW', or an en dash when not known."""
    if watts is None:
        return "–"
    return f"{watts:.0f} W" if abs(watts) < 9950 else f"{_trim(watts / 1000, 2)} kW"


def fmt_kwh(kwh: float | None) -> str:
    """'0.412 Wh', '35.1 Wh', '1.24 kWh'."""
    if kwh is None:
        return "–"
    if abs(kwh) < 0.9995:
        return f"{kwh * 1000:.3g} Wh"
    return f"{kwh:.2f} kWh" if abs(kwh) < 99.95 else f"{kwh:,.0f} kWh"


LEAST_G = 0.005
"""Less than this is shown as zero."""


NOT_METERED = "nothing was metered: it ended before the second reading"
"""Shown instead of the energy of a job too short to be metered: not 0."""


def fmt_grams(grams: float | None) -> str:
    """'0.52 g', '412 g', '1.24 kg', '3.10 t'."""
    if grams is None:
        return "–"
    size = abs(grams)
    if size < LEAST_G:
        return "0.00 g"
    if size < 9.995:
        return f"{_trim(grams, 2)} g"
    if size < 999.5:
        return f"{grams:.0f} g"
    return f"{grams / 1000:.2f} kg" if size < 999_500 else f"{grams / 1e6:.2f} t"


def fmt_signed(value: float, form: Callable[[float], str]) -> str:
    """'−1.20 kg' or '+3 h 05': the sign beside the size in its unit."""
    return f"{'−' if value < 0 else '+'}{form(abs(value))}"


def fmt_change(grams: float) -> str:
    """'+1.20 g', '−340 g'; without a sign where it rounds to zero."""
    return fmt_grams(0.0) if abs(grams) < LEAST_G else fmt_signed(grams, fmt_grams)


def fmt_money(value: float, currency: str) -> str:
    """'1.24 EUR'; the currency is always named."""
    return f"{value:,.2f} {currency}"


YEAR_IN_DOUBT_S = 180 * 86400.0
"""A date further away than this is ambiguous without its year."""


def fmt_clock(epoch_s: float, now_s: float) -> str:
    """'14:15' today, 'Fri 14:15' within the week, '24 Dec 14:15' later, '24 Dec 2031 14:15' if the year is ambiguous:
    local time, for display."""
    at, now = datetime.fromtimestamp(epoch_s), datetime.fromtimestamp(now_s)
    if at.date() == now.date():
        return f"{at:%H:%M}"
    if abs(epoch_s - now_s) < 6 * 86400:
        return f"{at:%a %H:%M}"
    if abs(epoch_s - now_s) < YEAR_IN_DOUBT_S:
        return f"{at.day} {at:%b %H:%M}"
    return f"{at.day} {at:%b %Y %H:%M}"


def fmt_day(epoch_s: float) -> str:
    """'24 Dec': the local day."""
    at = datetime.fromtimestamp(epoch_s)
    return f"{at.day} {at:%b}"


def local_offset_s(epoch_s: float) -> float:
    """Seconds by which local time is ahead of UTC at that time."""
    offset = datetime.fromtimestamp(epoch_s).astimezone().utcoffset()
    return 0.0 if offset is None else offset.total_seconds()


def clock_name(epoch_s: float) -> str:
    """'CET': the name of the local time zone at that time, which applies to times that users enter."""
    return datetime.fromtimestamp(epoch_s).astimezone().tzname() or ""


def fmt_named_clock(epoch_s: float, now_s: float) -> str:
    """'Fri 14:15 CET': for users who may be in another time zone than the machine."""
    return f"{fmt_clock(epoch_s, now_s)} {clock_name(epoch_s)}"
