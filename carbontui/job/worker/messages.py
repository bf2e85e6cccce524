"""Messages between supervisor and worker: one JSON line each way, `{"id", "kind", ...}` and `{"id", "ok", ...}`.

Both are normally of one version. After an upgrade on disk a supervisor with old code starts a worker with new code:
fields go by name, unknown ones are ignored and new ones have defaults; a request that cannot be read is refused, by
its id, and the plan in force stays.
"""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct

from carbontui.plan.results import Explanation, PlanFrontierPoint, Violation
from carbontui.site.sharing import SharedWatts

ProblemFile = dict[str, object]
"""A planning problem in its public form (carbontui.problem/1): `plan.problem_from_dict` reads and checks it."""
GridData = dict[str, object]
"""History and published forecasts from `Feed.forecast_request`, or the answer for `Feed.adopt`: the grid's own
format, opaque here."""


class Pauses(Struct, frozen=True, omit_defaults=True):
    """The longest pause allowed. `still_s` is the elapsed part of the present one; `pausing` are the level indices that
    count as a pause (None: all still levels)."""

    max_pause_s: float = math.inf
    still_s: float = 0.0
    pausing: tuple[int, ...] | None = None


class Limits(Struct, frozen=True, omit_defaults=True):
    """What the rest of the work may use at most; None: unlimited."""

    gco2_g: float | None = None
    cost: float | None = None
    kwh: float | None = None


class PlanAsk(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="plan"):
    """A plan for `problem` and the frontier of `curve`, the same problem with a later deadline (None: `problem`)."""

    id: int = 0
    problem: ProblemFile
    curve: ProblemFile | None = None
    kept: tuple[int, ...] | None = None
    """Level index per slot of the plan in force; it stays unless the new one gains more than `uncertainty`."""
    fixed: dict[int, int] = {}
    """Level index by slot, where the user has decided; STANDS_STILL for any still level."""
    curve_fixed: dict[int, int] | None = None
    """The same for the slots of `curve` (None: `fixed`)."""
    uncertainty: float = 0.0
    """Relative standard error of the difference between two slots' forecasts."""
    pauses: Pauses = Pauses()
    closed: dict[int, int] = {}
    """Level index by slot, where the intensity is above the user's limit; `fixed` takes precedence."""
    soonest: Limits | None = None
    """If given: return the plan that finishes soonest within these limits, or the best one if none does."""
    shared: SharedWatts | None = None
    """A power budget shared with other jobs, over the slots of `curve`."""
    currency: str | None = None


class PreviewAsk(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="preview"):
    """The plan that another budget or price would give; no plan is kept, no frontier is computed."""

    id: int = 0
    problem: ProblemFile
    fixed: dict[int, int] = {}
    pauses: Pauses = Pauses()
    closed: dict[int, int] = {}
    soonest: Limits | None = None
    shared: SharedWatts | None = None


class ForecastAsk(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="forecast"):
    """Mean and band of the coming slots, from history and published issues."""

    id: int = 0
    request: GridData


Ask = PlanAsk | PreviewAsk | ForecastAsk


class Solved(Struct, frozen=True):
    """A `plan.results.Schedule` with its figures and proof: levels per slot (-1 after the finish), `gco2` in grams,
    `finish_s` from slot 0."""

    levels: tuple[int, ...]
    finish_s: float
    gco2: float
    cost: float
    kwh: float
    objective: float
    lower_bound: float
    gap: float
    stage: int


class PolicyFigures(Struct, frozen=True):
    """The result of a simple policy on the same problem."""

    name: str
    finish_s: float
    gco2: float
    cost: float
    violations: tuple[Violation, ...] = ()


class PlannedWindow(Struct, frozen=True):
    """A `plan.windows.Window`: slots of one level, seconds from slot 0, and their emissions and gain."""

    level: int
    start_s: float
    end_s: float
    ci_g_per_kwh: float
    kwh: float
    gco2: float
    gain: float


class PlanAnswer(Struct, frozen=True, kw_only=True):
    """Answer to PlanAsk. `changed`: the plan differs from the kept one."""

    plan: Solved
    changed: bool = True
    baselines: tuple[PolicyFigures, ...] = ()
    explanation: Explanation | None = None
    frontier: tuple[PlanFrontierPoint, ...] = ()
    free_gco2: float | None = None
    """Grams of the best plan without the `fixed` slots; None if there are none."""
    windows: tuple[PlannedWindow, ...] = ()
    unlimited: Solved | None = None
    """The best plan without the `closed` slots; None if there are none."""
    budget_g_per_kwh: tuple[float, ...] = ()
    """Shadow price of the shared budget per slot, in g per kWh of the boards, on top of their own grams."""


class PreviewAnswer(Struct, frozen=True, kw_only=True):
    """Answer to PreviewAsk."""

    plan: Solved


class Answer(Struct, frozen=True, kw_only=True):
    """The reply line: the answer if `ok`, else why not."""

    id: int
    ok: bool
    answer: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
