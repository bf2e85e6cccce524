"""What each policy would have emitted on recorded grid data, from random starts, with the knowledge of the time.

Every schedule is scored on the realised intensity and price by `plan.evaluate`. Rolling policies re-plan whenever a
value of the grid becomes known, all later ones being forecast; threshold tools use the current value and the last week,
and are forced to run when the remaining work no longer fits. No policy is late unless at full speed is.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from carbontui.assumed.job import AssumedJob, Grid, boundaries
from carbontui.extensions.evaluation.issued import LEAST_HISTORY_S, DayAhead, OwnForecast, Predictor, PublishedForecast
from carbontui.extensions.evaluation.policies import (
    WEEK_S,
    Case,
    Knowledge,
    Policy,
    PolicyOutcome,
    best_constant,
    by_quantiles,
    outcome,
    rolling,
    window,
)
from carbontui.grid.issues import Issue
from carbontui.plan.planner import solve
from carbontui.plan.problem import ProblemError, Weight
from carbontui.plan.results import run_lengths
from carbontui.units import iso

Measure = Literal["gco2", "cost", "objective"]
WORSE = 0.005
"""A job counts as worse when it emits more than running now by over this share."""


@dataclass(frozen=True, slots=True)
class PlannedPrices:
    """Realised prices (currency per kWh), and what counts: money alone, or grams and money by `weight`; without either
    they are counted, not planned by."""

    grid: Grid
    currency: str
    by_cost: bool = False
    weight: Weight | None = None
    known: bool = False
    """A tariff, known for all time; otherwise a day-ahead market."""

    @property
    def measure(self) -> Measure:
        return "cost" if self.by_cost else "objective" if self.weight else "gco2"

    def scales(self, intensity: Grid, start_s: float) -> tuple[float, float]:
        """(alpha, beta) of a job that starts then, by the values of the week before."""
        if self.by_cost:
            return 1.0, 0.0
        if self.weight is None:
            return 0.0, 1.0
        return self.weight.scaled(*(grid.values_of(start_s - WEEK_S, start_s) for grid in (intensity, self.grid)))


@dataclass(frozen=True)
class BacktestReport:
    """All outcomes by policy and start; always includes 'run now' and 'perfect foresight'. `measure`: the figure that
    savings are of."""

    cases: list[Case]
    outcomes: dict[str, list[PolicyOutcome]]
    about: dict[str, Any] = field(default_factory=dict)
    measure: Measure = "gco2"

    def summary(self) -> dict[str, dict[str, float | None]]:
        """Per policy: saving against run now and share of the perfect-foresight saving (both of summed grams or money,
        in %; None where nothing can be saved), late jobs, share of jobs worse than run now (%), the worst (%)."""
        now = [getattr(o.figures, self.measure) for o in self.outcomes["run now"]]
        perfect = sum(getattr(o.figures, self.measure) for o in self.outcomes["perfect foresight"])
        room = sum(now) - perfect
        table: dict[str, dict[str, float | None]] = {}
        for name, outcomes in self.outcomes.items():
            grams = [getattr(o.figures, self.measure) for o in outcomes]
            ratios = [g / n - 1 if n > 0 else 0.0 for g, n in zip(grams, now, strict=True)]
            table[name] = {
                "saving_pct": 100 * (1 - sum(grams) / sum(now)) if sum(now) > 0 else 0.0,
                "captured_pct": 100 * (sum(now) - sum(grams)) / room if room > 1e-9 * sum(now) else None,
                "late": sum(o.figures.late_s > 0 for o in outcomes),
                "worse_pct": 100 * sum(r > WORSE for r in ratios) / len(ratios),
                "worst_pct": 100 * max(ratios),
            }
        return table

    def _row(self, did: PolicyOutcome) -> dict[str, Any]:
        return {
            "gco2_g": did.figures.gco2,
            **({"cost": did.figures.cost} if "currency" in self.about else {}),
            "kwh": did.figures.kwh,
            "finish_s": did.figures.finish_s,
            "late_s": did.figures.late_s,
            "levels": [list(run) for run in run_lengths(did.levels)],
        }

    def to_dict(self) -> dict[str, Any]:
        starts = [
            {
                "start": iso(case.edges[0]),
                "run_now_g": self.outcomes["run now"][i].figures.gco2,
                "perfect_foresight_g": self.outcomes["perfect foresight"][i].figures.gco2,
                "policies": {name: self._row(outcomes[i]) for name, outcomes in self.outcomes.items()},
            }
            for i, case in enumerate(self.cases)
        ]
        return {"schema": "carbontui.backtest/1", **self.about, "summary": self.summary(), "starts": starts}


def run(
    grid: Grid,
    job: AssumedJob,
    work_s: float,
    slack: float,
    starts: int,
    seed: int = 1,
    issues: list[Issue] | None = None,
    own: bool = True,
    prices: PlannedPrices | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> BacktestReport:
    """Run every policy on a job of `work_s` (seconds at full speed) from `starts` random starts, with `slack` times the
    work as budget. Raises ProblemError when the data do not cover enough time."""
    # 15 min for jobs up to 2 h, 30 min up to 8 h, else an hour
    slot = 900.0 if work_s <= 2 * 3600 else 1800.0 if work_s <= 8 * 3600 else 3600.0
    horizon, history_s = work_s * slack, max(WEEK_S, LEAST_HISTORY_S if own else 0.0)
    cases: list[Case] = []
    for start in starts_drawn(grid, issues, history_s, horizon, random.Random(seed)):
        edges = boundaries(start, start + horizon, slot)
        if prices and not prices.grid.covers(start - WEEK_S, edges[-1]):
            continue
        problem = job.problem(edges, grid, work_s)
        if prices is not None:
            alpha, beta = prices.scales(grid, start)
            per_kwh = tuple(prices.grid.slots(edges))
            problem = job.timed(replace(problem, price_per_kwh=per_kwh, alpha=alpha, beta=beta))
        cases.append(Case(tuple(edges), problem))
        if len(cases) == starts:
            break
    if not cases:
        days, less = (grid.end_s - grid.start_s) / 86400, "; --no-own needs only a week" if own else ""
        needs = f"a job of {horizon / 3600:.1f} h needs {history_s / 86400:.0f} days of history before it{less}"
        raise ProblemError("actual", f"holds {days:.0f} days; {needs}")
    cases.sort(key=lambda case: case.edges[0])
    policies, product = _policies(grid, issues or [], own, prices)
    outcomes: dict[str, list[PolicyOutcome]] = {name: [] for name in policies}
    for done, case in enumerate(cases):
        for name, policy in policies.items():
            outcomes[name].append(outcome(case, policy))
        progress(done + 1)
    about = {
        "grid": grid.series.source,
        "signal": grid.series.signal,
        "work_s": work_s,
        "slack": slack,
        "slot_s": slot,
        "seed": seed,
        "lateness_s": grid.lateness_s,
        "levels": [level.name for level in job.shape.levels],
        **({"product": product} if product else {}),
        **({"currency": prices.currency} if prices else {}),
    }
    made = any(level.embodied_g_per_h for level in job.shape.levels)
    return BacktestReport(cases, outcomes, about, prices.measure if prices else "objective" if made else "gco2")


def starts_drawn(
    grid: Grid, issues: Sequence[Issue] | None, history_s: float, horizon_s: float, rng: random.Random
) -> Iterator[float]:
    """Starts on the data's own steps, in random order; each with so much history, and its whole horizon covered."""
    first, last = grid.start_s + history_s, grid.end_s - horizon_s
    if issues:
        first, last = max(first, issues[0]["issued_at_s"]), min(last, issues[-1]["issued_at_s"] + 86400.0)
    possible = [t for t in grid.starts if first <= t <= last]
    rng.shuffle(possible)
    return (t for t in possible if grid.covers(t, t + horizon_s))


def _policies(
    grid: Grid, issues: list[Issue], own: bool, prices: PlannedPrices | None
) -> tuple[dict[str, Policy], str]:
    """The policies by name, and the name of what carbontui does: of the rolling ones the last; '' without any."""
    delayed = grid.delayed()
    signal = prices.grid if prices is not None and prices.by_cost else delayed
    policies: dict[str, Policy] = {
        "run now": lambda case: (),
        "perfect foresight": lambda case: solve(case.problem, compare=False).levels,
        "best constant level": best_constant,
        "threshold 30th percentile": by_quantiles(signal, 0.3, 0.3),
        "threshold 30/70": by_quantiles(signal, 0.3, 0.7),
    }
    price = None if prices is None else DayAhead(prices.grid, prices.known)
    forecasts: dict[str, Predictor] = {"published forecast": PublishedForecast(grid, issues)} if issues else {}
    if own:
        forecasts["own forecast" + (" and published" if issues else "")] = OwnForecast(grid, issues)
    product = ""
    for of, intensity in forecasts.items():
        known, product = Knowledge(grid, intensity, price), f"rolling, {of}"
        policies[f"window, {of}"] = partial(window, known=known)
        policies[product] = partial(rolling, known=known)
    return policies, product
