"""Several runs: the totals of all jobs on this machine by month, project or board, and two runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from carbontui import protocol, units
from carbontui.reports.story import RunStory
from carbontui.text import figures, sources
from carbontui.text.account import unmetered

MANY = 10
"""Above so many times the other figure, percent say nothing to a reader."""


class ComparedLine(NamedTuple):
    """One figure of both runs, and the first against the second in percent ('' where that is meaningless)."""

    what: str
    this: str
    other: str
    change: str


def against(this: RunStory, other: RunStory) -> list[ComparedLine]:
    """`this` run against the `other`: negative means less than the other."""
    called = " and ".join(dict.fromkeys(sources.called(story.options.boundary) for story in (this, other)))
    lines: list[tuple[str, Callable[[RunStory], float | None], Callable[[float], str]]] = [
        ("CO2", lambda s: s.gco2_g, figures.grams),
        (f"energy {called}", lambda s: s.energy_wall_kwh, figures.kwh),
        ("GPUs alone", lambda s: s.energy_gpu_kwh or None, figures.kwh),
        ("elapsed", lambda s: s.elapsed_s, figures.duration),
        ("work, at full speed", lambda s: s.done_s, figures.duration),
        ("mean power", _mean_w, figures.watts),
        ("mean intensity", lambda s: s.intensity_mean, lambda v: f"{v:.0f} g/kWh"),
        ("steps", lambda s: float(s.status.step) or None, lambda v: f"{v:,.0f}"),
        ("energy per step", _per_step, figures.kwh),
        ("GPU memory in use, last seen", _peak, lambda v: f"{v / 2**30:.2f} GiB"),
        ("last loss", lambda s: s.status.loss_value, lambda v: f"{v:.4g}"),
    ]
    shared = sorted(set(this.status.metrics) & set(other.status.metrics))
    lines += [(name, lambda s, name=name: s.status.metrics.get(name), lambda v: f"{v:.6g}") for name in shared]  # type: ignore[misc]
    found = []
    for what, of, told in lines:
        a, b = of(this), of(other)
        if a is None and b is None:
            continue
        found.append(ComparedLine(what, "–" if a is None else told(a), "–" if b is None else told(b), _change(a, b)))
    return found


def _change(a: float | None, b: float | None) -> str:
    """A share of a figure below zero (a loss may be one) has no meaning."""
    if a is None or b is None or a < 0 or b <= 0:
        return ""
    if a > MANY * b:
        return f"{a / b:,.0f} times"
    return figures.signed(a / b - 1, lambda part: figures.percent(part, 1))


def _mean_w(story: RunStory) -> float | None:
    return story.energy_wall_kwh * units.J_PER_KWH / story.elapsed_s if story.elapsed_s > 0 else None


def _per_step(story: RunStory) -> float | None:
    return story.energy_wall_kwh / story.status.step if story.status.step else None


def _peak(story: RunStory) -> float | None:
    """Bytes on all boards at the last reading; None where the driver reports none (or it was read after the end)."""
    used = [gpu.memory_used_b for gpu in story.status.gpus if gpu.memory_used_b]
    return float(sum(used)) if used else None


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
