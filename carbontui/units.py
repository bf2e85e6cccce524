"""Units at the borders: how seconds, watts, joules, grams and times are read; `text.figures` writes them for people.

Inside, everything is SI-like floats whose name carries the unit: ``_s`` seconds, ``_w`` watts, ``_j`` joules,
``_kwh`` kilowatt-hours, ``_g`` grams of CO2 (equivalent where the source says so), times in epoch seconds UTC.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Literal

J_PER_KWH = 3.6e6

POWER_MAX_W = 1e9
LONGEST_S = 10 * 366 * 86400.0
"""Upper bound of a plausible duration; far beyond it sums would exceed the calendar."""

LATEST_S = 2.5e11
"""In the year 9892: times up to here can be formatted in every time zone."""

_DURATION_PART = re.compile(
    r"(\d+(?:\.\d+)?)\s*(d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)(?![a-z])",
    re.IGNORECASE | re.ASCII,
)
_COUNT = re.compile(r"(\d+|\d{1,3}(?:[,_]\d{3})+|\d+(?:\.\d+)?(?=[ekm]))(?:e(\d{1,2})|([km]))?", re.ASCII)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK = re.compile(
    r"(?:(?P<day>today|tomorrow|mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:rs(?:day)?)?|fri(?:day)?|sat(?:urday)?"
    r"|sun(?:day)?)\s+)?(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?",
    re.ASCII,
)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def printable(text: str, keep: str = "") -> str:
    """Untrusted text made safe to print: control codes and bidirectional overrides become '?'.

    Characters in `keep` stay, and so do spaces of every width. All untrusted text we print goes through this.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else "?" for c in text)


def listed(given: str) -> list[str]:
    """The words between commas."""
    return [word for part in given.split(",") if (word := part.strip())]


def joules_to_kwh(joules: float) -> float:
    """The one place where joules become kilowatt-hours."""
    return joules / J_PER_KWH


def iso(epoch_s: float) -> str:
    """Epoch seconds as RFC 3339 with milliseconds and Z, the form of every time in our JSON."""
    whole = math.floor(epoch_s * 1000 + 0.5)
    moment = datetime.fromtimestamp(whole // 1000, tz=timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{whole % 1000:03d}Z"


@lru_cache(maxsize=512)
def from_iso(text: str) -> float:
    """Epoch seconds of an RFC 3339 time; a time without a zone is refused. Kept, since a screen asks for the same few
    each second.

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
    """Seconds of '90s', '30m', '4h', '1h30m', '2d', '8 hours'. Raises ValueError naming the value and the form."""
    cleaned = text.strip().lower()
    parts = list(_DURATION_PART.finditer(cleaned))
    if not parts or _DURATION_PART.sub("", cleaned).strip():
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 30m, 4h, 1h30m or 2d")
    seconds = sum(float(part[1]) * _SECONDS[part[2][0]] for part in parts)
    if seconds > LONGEST_S:
        raise ValueError(f"{text[:40]!r} is longer than ten years")
    return seconds


def parse_count(text: str) -> int:
    """A whole number: '100000', '100,000', '1e5', '100k', '2.5M'. Raises ValueError naming the value and the form."""
    found = _COUNT.fullmatch(text.strip().lower())
    if found is not None:
        exact = Decimal(re.sub("[,_]", "", found[1])) * 10 ** {"k": 3, "m": 6}.get(found[3], int(found[2] or 0))
        if exact == int(exact):
            return int(exact)
    raise ValueError(f"{text[:40]!r} is not a whole number; write it like 100000, 1e5 or 100k")


_WATTS = {"": 1.0, "w": 1.0, "kw": 1e3, "mw": 1e6, "k": 1e3, "m": 1e6}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*|%)", re.IGNORECASE | re.ASCII)


def _amount(text: str, factors: Mapping[str, float], least: float, most: float, form: str) -> float:
    """A number with one of the units of `factors`. Raises ValueError naming the value and the form."""
    match = _AMOUNT.fullmatch(text.strip())
    factor = factors.get(match[2].lower()) if match else None
    value = float(match[1]) * factor if match and factor else -1.0
    if not least <= value <= most:
        raise ValueError(f"{text[:40]!r} is {form}")
    return value


def parse_watts(text: str) -> float:
    """Watts of one board: '300W', '0.3kW' or '300'. Raises ValueError naming the value and the form."""
    return _amount(text, _WATTS, 1e-9, 1e5, "not a power; write it like 300W (watts per GPU)")


def parse_power(text: str) -> float:
    """Watts of '1200W', '1.2kW' or '1200', for a machine or a site. Raises ValueError naming the value and the form."""
    return _amount(text, _WATTS, 1e-9, POWER_MAX_W, "not a power; write it like 1200W or 1.2kW")


def parse_idle_power(text: str) -> float:
    """Watts of what idles, which may be none: '0', '60W'. Raises ValueError naming the value and the form."""
    return _amount(text, _WATTS, 0.0, 1e6, "not a power; write it like 60W or 0.25kW")


def parse_intensity(text: str) -> float:
    """gCO2 per kWh of '300', '300g', '300g/kWh' or '0.3kg'. Raises ValueError naming the value and the form."""
    bare = re.sub(r"\s*/\s*kwh$", "", text.strip(), flags=re.IGNORECASE)
    return _amount(
        bare, {"": 1.0, "g": 1.0, "kg": 1e3}, 1e-9, 5000, "not an intensity; write it like 300g (gCO2 per kWh)"
    )


def parse_percent(text: str) -> float:
    """Percent of '2%' or '2'. Raises ValueError naming the value and the form."""
    return _amount(text, {"": 1.0, "%": 1.0}, 0.0, 100.0, "no percentage; write it like 2%")


def parse_embodied(text: str) -> float | Literal["published"]:
    """Grams per GPU hour, or the word 'published'. Raises ValueError naming the value and the form."""
    form = "no mass; write it like 12g per GPU hour, or published"
    return "published" if text == "published" else _amount(text, {"": 1.0, "g": 1.0}, 0.0, 1e6, form)


def parse_price(text: str) -> tuple[float, str | None]:
    """'0.3', '0.3EUR', '80 EUR/t' as (value, ISO code of the currency, if one is named). Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]{3})?(?:\s*/\s*(?:kwh|h|t))?", text.strip(), re.ASCII)
    if not match or not float(match[1]) <= 1e9:
        raise ValueError(f"{text[:40]!r} is not a price; write it like 0.3 or 0.3EUR")
    return float(match[1]), match[2].upper() if match[2] else None


def parse_moment(text: str, now_s: float) -> float:
    """Epoch seconds of '18:00', 'fri 09:00', 'mon 9', 'tomorrow 09:00', '2026-11-24 09:00' or RFC 3339; without a zone
    local time, without a day its next occurrence. Raises ValueError naming the value."""
    cleaned = text.strip().lower()
    found = _CLOCK.fullmatch(cleaned)
    if found is None or (found["minute"] is None and found["day"] is None):
        try:
            moment = datetime.fromisoformat(cleaned.upper().replace("Z", "+00:00")) if len(cleaned) > 12 else None
            if moment is not None and cleaned.isascii():
                return moment.timestamp()
        except (ValueError, OverflowError):
            pass  # overflow: the first and last hours of the calendar, in some time zones
        raise ValueError(f"{text[:40]!r} is not a time; write it like 18:00, fri 09:00, tomorrow 9 or 2030-02-11 09:00")
    hour, minute, day = int(found["hour"]), int(found["minute"] or 0), found["day"] or ""
    if hour > 23 or minute > 59:
        raise ValueError(f"{text!r}: {hour:02d}:{minute:02d} is not a time of day")
    # wall-clock arithmetic on naive local time: 18:00 stays 18:00 across a daylight-saving change
    at = local(now_s).replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
    if day in ("today", "tomorrow"):
        return (at + timedelta(days=day == "tomorrow")).timestamp()
    if day:
        at += timedelta(days=(_DAYS.index(day[:3]) - at.weekday()) % 7)
    step = timedelta(days=7 if day else 1)
    while at.timestamp() <= now_s:
        at += step
    return at.timestamp()


def instant(text: str, now_s: float) -> str:
    """A clock time of the reader's as the wire has it: '18:00' in our time zone, wherever it is read; any other text as
    it is, for its reader to judge."""
    try:
        return iso(parse_moment(text, now_s))
    except ValueError:
        return text.strip()


def hours(text: str, now_s: float) -> str:
    """Hours as the wire has them: '22:00-06:00' of the reader's time zone as two instants, 'daily ' before them where
    it was; those that have begun began. Any other text as it is, for its reader to judge."""
    said = text.strip()
    lead = said[:6].lower() if said[:6].lower() == "daily " else ""
    parts = re.split(r"\s*[-–]\s*", said[len(lead) :].strip())
    try:
        start_s = now_s if parts[0].lower() == "now" else parse_moment(parts[0], now_s)
        end_s = parse_moment("-".join(parts[1:]), max(now_s, start_s))
    except ValueError:
        return said
    step_s = (7 if parts[0][:1].isalpha() else 1) * 86400.0
    back_s = step_s if start_s - step_s <= now_s < end_s - step_s else 0.0
    return f"{lead}{iso(start_s - back_s)}/{iso(end_s - back_s)}"


def local_offset_s(epoch_s: float) -> float:
    """Seconds by which local time is ahead of UTC at that time."""
    offset = local(epoch_s).utcoffset()
    return 0.0 if offset is None else offset.total_seconds()


def local(epoch_s: float) -> datetime:
    """Local time with its zone; UTC where TZ names an offset that no zone has, like XXX24YYY."""
    try:
        return datetime.fromtimestamp(epoch_s).astimezone()
    except ValueError:
        return datetime.fromtimestamp(epoch_s, tz=timezone.utc)


def between(rows: Sequence[Sequence[float]], at: float) -> tuple[float, ...]:
    """The row at a value of the first column: linear between two of `rows`, which ascend; below the first in proportion
    to it, above the last that one."""
    if at <= rows[0][0]:
        return tuple(value * max(0.0, at) / rows[0][0] for value in rows[0])
    for low, high in itertools.pairwise(rows):
        if at <= high[0]:
            share = (at - low[0]) / (high[0] - low[0])
            return tuple(one + share * (other - one) for one, other in zip(low, high, strict=True))
    return tuple(rows[-1])


def mean_over(values: Sequence[float | None], start_s: float, step_s: float, t0: float, t1: float) -> float | None:
    """Time-weighted mean of a series of equal slots over [t0, t1); None where no value is known."""
    total = weight = 0.0
    index = max(0, math.floor((t0 - start_s) / step_s))
    while index < len(values) and start_s + index * step_s < t1:
        value = values[index]
        overlap = min(t1, start_s + (index + 1) * step_s) - max(t0, start_s + index * step_s)
        if value is not None and overlap > 1e-6:
            total += value * overlap
            weight += overlap
        index += 1
    return total / weight if weight else None
