"""The same work on other boards and in other countries: rules of thumb on published figures, labelled as such.

Speed against the board at hand is 0.7 x the ratio of TFLOPS + 0.3 x the ratio of memory bandwidth. That is a rule of
thumb: what a training gains depends on whether it computes, moves memory or waits. Watts keep the share of the limit
(TDP) that the job was measured at.

And the rest of a job's work on another machine: when to move it there, and what that would take with the move itself.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from carbontui import units
from carbontui.account.expected_end import WorkSegment, remaining_total
from carbontui.protocol import MovesCost
from carbontui.units import J_PER_KWH, joules_to_kwh

STEP_S = 900.0
"""Starts are considered every quarter of an hour: no forecast is finer."""
GAIN_LEAST = 0.01
"""A start is delayed only to save at least this share of the CO2 of a start now."""


class StartWindow(NamedTuple):
    """The chosen start. Intensities are means in g/kWh over the whole work."""

    begin_s: float
    mean_g: float
    now_g: float
    latest_s: float

    @property
    def saved(self) -> float:
        """Share of CO2 saved against a start now; 0 for a start now."""
        return 1.0 - self.mean_g / self.now_g if self.now_g > 0 else 0.0


def best_start(
    mean_g: Sequence[float | None], start_s: float, step_s: float, *, now_s: float, work_s: float, deadline_s: float
) -> StartWindow | None:
    """The start from `now_s` on with the lowest mean intensity, so that `work_s` seconds end by `deadline_s`; the
    earliest among equals. `mean_g` are slots of `step_s` from `start_s`; gaps and the time beyond the end count as the
    last known value. None if nothing is known."""
    if not any(value is not None for value in mean_g):
        return None

    def mean(at_s: float) -> float:
        one_kwh = WorkSegment(at_s, at_s + work_s, J_PER_KWH / work_s)
        return remaining_total([one_kwh], start_s, step_s, mean_g) or 0.0

    latest = max(now_s, deadline_s - work_s)
    starts = [now_s]
    while starts[-1] + STEP_S <= latest:
        starts.append(starts[-1] + STEP_S)
    if starts[-1] < latest:
        starts.append(latest)
    now_g = mean(now_s)
    chosen_g, begin_s = min((round(mean(at), 6), at) for at in starts)
    if chosen_g > (1.0 - GAIN_LEAST) * now_g:
        chosen_g, begin_s = now_g, now_s
    return StartWindow(begin_s, chosen_g, now_g, latest)


TFLOPS_SHARE, BANDWIDTH_SHARE = 0.7, 0.3


class BoardSpec(NamedTuple):
    """Published figures of a board. Dense tensor TFLOPS at 16 bit; None where the board has no tensor units."""

    name: str
    short: str
    memory_gb: float
    bandwidth_gbs: float
    fp16_tflops: float | None
    tdp_w: float
    idle_w: float | None = None
    """Without any process on it."""
    embodied_kg: float | None = None
    embodied_source: str | None = None


class Used(NamedTuple):
    """What the account says of the work at hand, and how it is known."""

    time_s: float
    kwh: float
    gco2_g: float | None
    how: str


class Work(NamedTuple):
    """Run-now of the work: its seconds, watts at the wall of all boards, of the rest, boards, g/kWh, GPU memory; and
    what it used, where that is known."""

    work_s: float
    boards_w: float
    rest_w: float
    boards: int
    intensity: float | None
    memory_used_b: int | None = None
    used: Used | None = None


class Elsewhere(NamedTuple):
    """The work on another board or grid. `speed` is against the board at hand; `how` is the basis of the figures."""

    name: str
    speed: float
    time_s: float
    kwh: float
    gco2_g: float | None
    how: str
    here: bool = False
    """It is the job itself, as its account has it."""


def as_used(row: Elsewhere, work: Work) -> Elsewhere:
    """The job's own row."""
    if work.used is None:
        return row._replace(here=True)
    return row._replace(here=True, **work.used._asdict())


def known(name: str, boards: Iterable[BoardSpec]) -> BoardSpec | None:
    """The board with this driver name or short name; older drivers leave out the maker."""
    wanted = _plain(name)
    return next((board for board in boards if wanted in (_plain(board.name), _plain(board.short))), None)


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("nvidia", "").replace("geforce", "").split())


def speed(there: BoardSpec, here: BoardSpec) -> float | None:
    """Speed of `there` against `here` in half precision; None where a figure is not known."""
    if not there.fp16_tflops or not here.fp16_tflops:
        return None
    flops, bandwidth = there.fp16_tflops / here.fp16_tflops, there.bandwidth_gbs / here.bandwidth_gbs
    return TFLOPS_SHARE * flops + BANDWIDTH_SHARE * bandwidth


def on_boards(work: Work, here: BoardSpec, boards: Iterable[BoardSpec]) -> list[Elsewhere]:
    """The same work on as many of each board with enough memory, least energy first."""
    found = []
    for board in boards:
        factor = 1.0 if board == here else speed(board, here)
        fits = work.memory_used_b is None or board.memory_gb * 1e9 >= work.memory_used_b / work.boards
        if factor is None or not fits:
            continue
        time_s = work.work_s / factor
        watts = work.boards_w * board.tdp_w / here.tdp_w + work.rest_w
        kwh = joules_to_kwh(watts * time_s)
        how = "as given" if board == here else "rule of thumb"
        grams = None if work.intensity is None else kwh * work.intensity
        row = Elsewhere(board.short, factor, time_s, kwh, grams, how)
        found.append(as_used(row, work) if board == here else row)
    return sorted(found, key=lambda other: other.kwh)


def on_grids(work: Work, grids: Mapping[str, tuple[float, str]]) -> list[Elsewhere]:
    """The same work on each grid, by its (g/kWh, description), least grams first."""
    kwh = joules_to_kwh((work.boards_w + work.rest_w) * work.work_s)
    found = [Elsewhere(name, 1.0, work.work_s, kwh, kwh * value, how) for name, (value, how) in grids.items()]
    return sorted(found, key=lambda other: other.gco2_g or 0.0)


T = TypeVar("T")


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("carbontui.data").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _table(name: str, kind: type[T], *columns: str) -> list[T]:
    """A tuple of this kind per row, its fields from these columns; an empty cell is None."""
    return [msgspec.convert([row[column] or None for column in columns], kind, strict=False) for row in _rows(name)]


def boards() -> list[BoardSpec]:
    """The published figures that ship with carbontui."""
    figures = ("memory_gb", "bandwidth_gbs", "fp16_tflops", "tdp_w", "idle_w", "embodied_kg", "embodied_source")
    return _table("gpus.csv", BoardSpec, "device_name", "short_name", *figures)


def countries() -> dict[str, tuple[float, str]]:
    """Lifecycle means of countries: one basis, so that they may be compared. Systems so small that the table lists
    0 g are left out: no power plant has lifecycle emissions of zero."""
    return {
        f"{row['code']} {row['name']}": (float(row["ci_gco2_per_kwh"]), f"mean of {row['ci_year']}, lifecycle (Ember)")
        for row in _rows("countries.csv")
        if row["kind"] == "country" and row["ci_basis"] == "lifecycle" and float(row["ci_gco2_per_kwh"] or 0) > 0
    }


@lru_cache(maxsize=64)
def board(name: str) -> BoardSpec | None:
    """The board with this driver name or short name."""
    return known(name, boards())


HOURS = 44_676.0
"""In which a board or server is in use: 6 years for 85 % of the time (Luccioni et al. 2022, arXiv 2211.02001)."""
SERVER_KG, SERVER = 2500.0 / 8, "Luccioni et al. 2022, arXiv 2211.02001: 2,500 kg besides its 8 GPUs"
"""Of a server, per board."""


class Embodied(NamedTuple):
    """Grams, their rate, and the published figures they come from; none where they are a user's."""

    grams: float
    g_per_hour: float
    sources: tuple[str, ...] = ()


def embodied(
    boards: Sequence[str], given: float | Literal["published"] | None, held_s: float = 3600.0
) -> Embodied | None:
    """Of boards by their driver's names, each with its part of a server, or as `given` per board and hour; None where a
    board is not published."""
    rate, sources = given, []
    if not isinstance(rate, float):
        made = [_made().get(word) for name in boards for word in name.upper().replace("-", " ").split()]
        found = [spec for spec in made if spec is not None]
        if not boards or len(found) < len(boards):
            return None
        rate = sum(1000.0 * ((spec.embodied_kg or 0.0) + SERVER_KG) / HOURS for spec in found) / len(boards)
        sources = [*(spec.embodied_source or "" for spec in found), SERVER]
    rate *= max(1, len(boards))
    return Embodied(rate * held_s / 3600.0, rate, tuple(dict.fromkeys(sources)))


@lru_cache(maxsize=1)
def _made() -> dict[str, BoardSpec]:
    """A board of each generation, by the word in its name: what its variants take to make is published once."""
    return {spec.short.split()[0]: spec for spec in boards() if spec.embodied_kg is not None}


class HostFacts(NamedTuple):
    """What a machine is to a job: its grid in slots of g/kWh, the speed against here, watts at the wall, and how speed
    and watts are known."""

    name: str
    zone: str
    start_s: float
    step_s: float
    mean_g: Sequence[float | None]
    speed: float
    watts: float
    how: str


class Stretched(NamedTuple):
    """A row of the comparison: from when on (epoch seconds) the work goes on there, when it is done, and what the move
    takes; None where it stays."""

    row: Elsewhere
    zone: str
    from_s: float
    done_s: float
    move: MovesCost | None = None

    @property
    def numbers(self) -> dict[str, Any]:
        """As JSON."""
        cost = None if self.move is None else {name: getattr(self.move, name) for name in self.move.__struct_fields__}
        times = {"from": units.iso(self.from_s), "done": units.iso(self.done_s)}
        return {**self.row._asdict(), "zone": self.zone, **times, "move": cost}


def moved(host: HostFacts, left_s: float, move: MovesCost, *, now_s: float, deadline_s: float | None) -> Stretched:
    """`left_s` seconds of work, at the speed of here, done at `host` from the hour that emits least by the deadline
    (None: at once)."""
    work_s, ready_s = left_s / host.speed, now_s + move.s
    latest_s = ready_s + work_s if deadline_s is None else deadline_s
    window = best_start(host.mean_g, host.start_s, host.step_s, now_s=ready_s, work_s=work_s, deadline_s=latest_s)
    begin_s = ready_s if window is None else window.begin_s
    done_s = begin_s + work_s
    grams = remaining_total([WorkSegment(begin_s, done_s, host.watts)], host.start_s, host.step_s, host.mean_g)
    late = "; after the deadline" if deadline_s is not None and done_s > deadline_s else ""
    row = Elsewhere(
        host.name,
        host.speed,
        done_s - now_s,
        units.joules_to_kwh(host.watts * work_s) + move.energy_wall_kwh,
        None if grams is None else grams + (move.gco2_g or 0.0),
        f"{host.how}{late}",
    )
    return Stretched(row, host.zone, begin_s - move.s, done_s, move)


def better(rows: Sequence[Stretched], least: float) -> Stretched | None:
    """The machine that would emit least, if it saves at least a share of what staying (the first row) emits."""
    here, *others = rows
    known = [one for one in others if one.row.gco2_g is not None]
    best = min(known, key=lambda one: one.row.gco2_g or 0.0, default=None)
    if best is None or not here.row.gco2_g or (best.row.gco2_g or 0.0) > (1.0 - least) * here.row.gco2_g:
        return None
    return best
