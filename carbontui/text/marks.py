"""Where a figure comes from, in one character behind it: the same marks on every page, table and line."""

from __future__ import annotations

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
