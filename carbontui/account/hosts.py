"""The rest of a job's work on another machine: when to move it there, and what that would take with the move itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from carbontui import units
from carbontui.account.compare import Elsewhere, best_start
from carbontui.account.expected_end import WorkSegment, remaining_total
from carbontui.protocol import MovesCost


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
