"""Several runs: the totals of all jobs on this machine by month, project or board."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from carbontui import protocol
from carbontui.text import figures
from carbontui.text.account import unmetered

By = Literal["month", "project", "board"]


class GroupTotal(NamedTuple):
    """Sums of the jobs of one group; of `unknown` ones the grams, or those of run-now, are not known."""

    name: str
    jobs: int
    energy_wall_kwh: float
    gco2_g: float
    avoided_g: float
    unknown: int
    excluded_wall_kwh: float = 0.0
    """Of tries, estimates and calibrations: drawn, and in no account."""


def grouped(jobs: Iterable[tuple[protocol.Status, str]], by: By) -> list[GroupTotal]:
    """Groups of (status, day it began as YYYY-MM-DD), by name. A replay's time and a simulated board's energy are not
    real: such jobs are in a group of their own."""
    found: dict[str, list[protocol.Status]] = {}
    for status, day in jobs:
        found.setdefault(_name(status, day, by), []).append(status)
    return [
        GroupTotal(
            name,
            len(group),
            sum(status.energy_wall_kwh for status in group),
            sum(status.gco2_g or 0.0 for status in group),
            sum(status.avoided_g or 0.0 for status in group),
            sum(None in (status.gco2_g, status.avoided_g) or unmetered(status) for status in group),
            sum(apart.energy_wall_kwh for status in group for apart in status.excluded),
        )
        for name, group in sorted(found.items())
    ]


NOT_REAL = "(replays and simulations)"


def _name(status: protocol.Status, day: str, by: By) -> str:
    if status.replayed or any(found.how == "simulated" for found in status.provenance.values()):
        return NOT_REAL
    if by == "month":
        return day[:7]
    if by == "project":
        # a second run of the same script is numbered
        stem, _, number = status.name.rpartition("-")
        return stem if stem and number.isdigit() else status.name
    return " + ".join(sorted({gpu.name for gpu in status.gpus})) or "no GPU"


def row(total: GroupTotal) -> list[str]:
    """The printed cells; jobs with unknown grams are mentioned."""
    unknown = f" ({total.unknown} not known)" if total.unknown else ""
    grams = f"{figures.grams(total.gco2_g)}{unknown}"
    return [total.name, str(total.jobs), figures.kwh(total.energy_wall_kwh), grams, figures.grams(total.avoided_g)]
