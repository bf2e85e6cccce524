"""Messages between supervisor and worker: one JSON line each way, `{"id", "kind", ...}` and `{"id", "ok", ...}`.

Both are normally of one version. After an upgrade on disk a supervisor with old code starts a worker with new code:
fields go by name, unknown ones are ignored and new ones have defaults; a request that cannot be read is refused, by
its id, and the plan in force stays.
"""

import math

import msgspec
from msgspec import Struct

from carbontui.grid.issues import ForecastRequest
from carbontui.headroom import SharedWatts
from carbontui.plan.problem import ProblemFile
from carbontui.plan.results import Explanation, PlanFrontierPoint, PolicyResult, Schedule, Window
from carbontui.protocol import WeightPoint


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


class PreviewAsk(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="preview"):
    """The plan that another budget or price would give; no frontier is computed."""

    id: int = 0
    problem: ProblemFile
    kept: tuple[int, ...] | None = None
    """Level index per slot of the plan in force; it stays unless the new one gains more than `uncertainty`."""
    fixed: dict[int, int] = {}
    """Level index by slot, where the user has decided; STANDS_STILL for any still level."""
    pauses: Pauses = Pauses()
    soonest: Limits | None = None
    """If given: return the plan that finishes soonest within these limits, or the best one if none does."""
    most: Limits | None = None
    """If given: the price of time gives way as far as the plan needs to keep within these."""
    shared: SharedWatts | None = None
    """A power budget shared with other jobs, over the slots of the longest problem."""
    uncertainty: float = 0.0
    """Relative standard error of the difference between two slots' forecasts."""
    spread: tuple[float, ...] = ()
    """One standard deviation of the objective per kWh by slot, where the forecast tells; it comes before
    `uncertainty`."""
    untouched: float | None = None
    """Of a job that has neither waited nor slowed yet: what it has taken so far, in units of the objective."""


class PlanAsk(PreviewAsk, frozen=True, kw_only=True, omit_defaults=True, tag="plan"):
    """A plan for `problem` and the frontier of `curve`, the same problem with a later deadline (None: `problem`)."""

    curve: ProblemFile | None = None
    curve_fixed: dict[int, int] | None = None
    """`fixed` for the slots of `curve` (None: the same)."""
    currency: str | None = None
    weighs: bool = False
    """CO2 is weighed against money: their frontier is wanted as well."""


class ForecastAsk(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="forecast"):
    """Mean and band of the coming slots, from history and published issues."""

    id: int = 0
    request: ForecastRequest


class ReadAsk(Struct, frozen=True, kw_only=True, tag_field="kind", tag="read"):
    """What the code says of a place where the training is: answered by a CodeRead."""

    id: int = 0
    place: msgspec.Raw


Ask = PlanAsk | PreviewAsk | ForecastAsk | ReadAsk


class PlanAnswer(Struct, frozen=True, kw_only=True):
    """Answer to PlanAsk, and with the plan alone to PreviewAsk. `changed`: the plan differs from the kept one."""

    plan: Schedule
    """Without its baselines."""
    changed: bool = True
    baselines: tuple[PolicyResult, ...] = ()
    explanation: Explanation | None = None
    frontier: tuple[PlanFrontierPoint, ...] = ()
    weights: tuple[WeightPoint, ...] = ()
    free_gco2: float | None = None
    """Grams of the best plan without the `fixed` slots; None if there are none."""
    windows: tuple[Window, ...] = ()
    budget_g_per_kwh: tuple[float, ...] = ()
    """Shadow price of the shared budget per slot, in g per kWh of the boards, on top of their own grams."""


class Answer(Struct, frozen=True, kw_only=True):
    """The reply line: the answer if `ok`, else why not."""

    id: int
    ok: bool
    answer: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
