"""The plan in force: the level it sets now, and its form for viewers.

The worker solves; this side turns level indices back into names and times. A plan survives a respawn through the
journal, so that a new supervisor knows at once what was planned.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from carbontui import protocol, units
from carbontui.plan.results import Explanation
from carbontui.protocol import HeldBy, Why

Level = protocol.Level
STILL = protocol.STILL
FULL = Level("full", "full", 0.0, 1.0)
OFF = Level("off", "off", 0.0, 0.0)
PAUSE = Level("pause", "pause", 0.0, 0.0)
UNLOAD = Level("unload", "unload", 0.0, 0.0)


class PlanChoice(NamedTuple):
    """A level decided, why and by whom, and when that ends (job clock); None where that is not known."""

    level: Level
    why: Why
    held_by: HeldBy = "plan"
    until_s: float | None = None


def cap_name(watts: float) -> str:
    """'cap 300 W': watts per GPU."""
    return f"cap {watts:g} W"


def cap(watts: float) -> Level:
    """A cap of `watts` per GPU whose speed has not been measured."""
    return Level(cap_name(watts), "cap", 0.0, 1.0, cap_w=watts)


def under(planned: Level, cap_w: float, known: Iterable[Level] = ()) -> Level:
    """The planned level, or the cap of `cap_w` if the planned level is faster."""
    faster = planned.kind == "full" or (planned.kind == "cap" and (planned.cap_w or 0.0) > cap_w)
    if not faster:
        return planned
    return next((level for level in known if level.kind == "cap" and level.cap_w == cap_w), cap(cap_w))


class PlannedLevel(NamedTuple):
    """What a plan says for one moment: the level, and when it changes next."""

    level: Level | None = None
    next_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Level per slot over absolute time. `edges_s` has one entry more than `names`; '' means finished."""

    names: tuple[str, ...]
    edges_s: tuple[float, ...]
    table: dict[str, Level]
    view: protocol.PlanView
    work_left_s: float | None = None
    """Work left at `edges_s[0]` as the plan assumed it; None of one that was restored."""
    free_gco2_g: float | None = None
    """What the same work would emit without the user's constraints; None if there are none."""
    explanation: Explanation | None = None
    scarce_s: tuple[float, float] | None = None
    """Between when other jobs need watts of the site budget as well."""
    moved: str = ""
    """The fuels that moved the grid when it was made; '' if not known."""

    def index_at(self, now_s: float) -> int | None:
        if not self.names or now_s < self.edges_s[0] or now_s >= self.edges_s[-1]:
            return None
        return bisect_right(self.edges_s, now_s) - 1

    def at(self, now_s: float) -> PlannedLevel:
        """The level now, and when it changes next (the finish does not count)."""
        index = self.index_at(now_s)
        if index is None:
            return PlannedLevel()
        name = self.names[index]
        for later in range(index + 1, len(self.names)):
            if self.names[later] != name:
                return PlannedLevel(self.table.get(name), self.edges_s[later] if self.names[later] else None)
        return PlannedLevel(self.table.get(name))

    def work_done_s(self, now_s: float) -> float:
        """Reference-speed seconds of work that the plan expects from its start to `now_s`."""
        done = 0.0
        for name, a, b in zip(self.names, self.edges_s, self.edges_s[1:], strict=False):
            level = self.table.get(name)
            if level is not None and a < now_s:
                done += level.speed * (min(b, now_s) - a)
        return done


@dataclass(frozen=True, slots=True)
class Worth:
    """What a gain is measured by until a person sets another budget."""

    mean_per_kwh: float | None = None
    """Units of the objective: the grid's mean while the work would run now, by the first plan. The price of time."""
    acted: bool = False
    """A plan has let the job wait or slow down: the least that a plan must save is asked no more."""


class KeptPlan(msgspec.Struct, frozen=True):
    """What the journal's `state` table has of a plan."""

    names: tuple[str, ...]
    edges_s: tuple[float, ...]
    view: protocol.PlanView
    explanation: Explanation | None = None


def to_kept(plan: Plan) -> KeptPlan:
    return KeptPlan(plan.names, plan.edges_s, plan.view, plan.explanation)


def restored(kept: object) -> Plan | None:
    """What a predecessor kept; None when there is nothing usable."""
    if not kept:
        return None
    try:
        was = msgspec.convert(kept, KeptPlan)
        units.from_iso(was.view.finish)
    except (msgspec.ValidationError, ValueError):
        return None
    rising = all(a < b for a, b in itertools.pairwise(was.edges_s))
    if len(was.edges_s) != len(was.names) + 1 or not rising:
        return None
    table = {level.name: level for level in was.view.table}
    return Plan(was.names, was.edges_s, table, was.view, explanation=was.explanation)
