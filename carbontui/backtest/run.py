"""What each policy would have emitted on recorded grid data, from random starts, with the knowledge of the time.

Every schedule is scored on the realised intensity by `plan.evaluate`. Rolling policies re-plan in every slot, with the
current slot's intensity known and all later ones forecast; threshold tools use the current value and the last week, and
are forced to run when the remaining work no longer fits. No policy is late unless at full speed is.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from carbontui.backtest.assumed_job import AssumedJob, Grid, boundaries
from carbontui.backtest.issued import LEAST_HISTORY_S, ForecastIssue, OwnForecast, Predictor, PublishedForecast
from carbontui.plan.evaluation import evaluate, spelled_out
from carbontui.plan.graph import build
from carbontui.plan.planner import solve
from carbontui.plan.problem import Problem, ProblemError
from carbontui.plan.results import Evaluation, run_lengths
from carbontui.plan.rivals import baselines, evaluated, steady
from carbontui.units import iso

WEEK_S = 7 * 86400.0
WORSE = 0.005
"""A job counts as worse when it emits more than running now by over this share."""


@dataclass(frozen=True, slots=True)
class Case:
    """One job: slot edges in epoch seconds and its problem on the realised grid."""

    edges: tuple[float, ...]
    problem: Problem


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The schedule of a policy in one case: the level index of each slot, and the figures of `evaluate`."""

    levels: tuple[int, ...]
    figures: Evaluation


Policy = Callable[[Case], Sequence[int]]


@dataclass(frozen=True)
class BacktestReport:
    """All outcomes by policy and start; always includes 'run now' and 'perfect foresight'."""

    cases: list[Case]
    outcomes: dict[str, list[PolicyOutcome]]
    about: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, dict[str, float | None]]:
        """Per policy: saving against run now and share of the perfect-foresight saving (both on summed grams, in %;
        None where nothing can be saved), late jobs, share of jobs worse than run now (%), the worst of them (%)."""
        now = [o.figures.gco2 for o in self.outcomes["run now"]]
        perfect = sum(o.figures.gco2 for o in self.outcomes["perfect foresight"])
        room = sum(now) - perfect
        table: dict[str, dict[str, float | None]] = {}
        for name, outcomes in self.outcomes.items():
            grams = [o.figures.gco2 for o in outcomes]
            ratios = [g / n - 1 if n > 0 else 0.0 for g, n in zip(grams, now, strict=True)]
            table[name] = {
                "saving_pct": 100 * (1 - sum(grams) / sum(now)) if sum(now) > 0 else 0.0,
                "captured_pct": 100 * (sum(now) - sum(grams)) / room if room > 1e-9 * sum(now) else None,
                "late": sum(o.figures.late_s > 0 for o in outcomes),
                "worse_pct": 100 * sum(r > WORSE for r in ratios) / len(ratios),
                "worst_pct": 100 * max(ratios),
            }
        return table

    def to_dict(self) -> dict[str, Any]:
        starts = []
        for i, case in enumerate(self.cases):
            rows = {name: outcomes[i] for name, outcomes in self.outcomes.items()}
            starts.append(
                {
                    "start": iso(case.edges[0]),
                    "run_now_g": rows["run now"].figures.gco2,
                    "perfect_foresight_g": rows["perfect foresight"].figures.gco2,
                    "policies": {
                        name: {
                            "gco2_g": o.figures.gco2,
                            "kwh": o.figures.kwh,
                            "finish_s": o.figures.finish_s,
                            "late_s": o.figures.late_s,
                            "levels": [list(run) for run in run_lengths(o.levels)],
                        }
                        for name, o in rows.items()
                    },
                }
            )
        return {"schema": "carbontui.backtest/1", **self.about, "summary": self.summary(), "starts": starts}


def run(
    grid: Grid,
    job: AssumedJob,
    work_s: float,
    slack: float,
    starts: int,
    seed: int = 1,
    issues: list[ForecastIssue] | None = None,
    own: bool = True,
    slot_s: float | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> BacktestReport:
    """Run every policy on a job of `work_s` (seconds at full speed) from `starts` random starts, with `slack` times the
    work as budget. Raises ProblemError when the data do not cover enough time."""
    slot = slot_s or default_slot(work_s)
    cases = _cases(grid, job, work_s, slack, starts, seed, issues, slot, own)
    policies = _policies(grid, issues or [], own)
    outcomes: dict[str, list[PolicyOutcome]] = {name: [] for name in policies}
    for done, case in enumerate(cases):
        for name, policy in policies.items():
            levels = tuple(policy(case))
            figures = evaluate(case.problem, levels)
            outcomes[name].append(PolicyOutcome(spelled_out(case.problem, levels, figures.finish_s), figures))
        progress(done + 1)
    about = {
        "grid": grid.series.source,
        "signal": grid.series.signal,
        "work_s": work_s,
        "slack": slack,
        "slot_s": slot,
        "seed": seed,
        "levels": [level.name for level in job.shape.levels],
    }
    return BacktestReport(cases, outcomes, about)


def default_slot(work_s: float) -> float:
    """15 min for jobs up to 2 h, 30 min up to 8 h, else an hour."""
    return 900.0 if work_s <= 2 * 3600 else 1800.0 if work_s <= 8 * 3600 else 3600.0


def _cases(
    grid: Grid,
    job: AssumedJob,
    work_s: float,
    slack: float,
    count: int,
    seed: int,
    issues: list[ForecastIssue] | None,
    slot_s: float,
    own: bool,
) -> list[Case]:
    """Random starts on the data's own steps, sorted; each with enough history and its whole horizon covered."""
    horizon = work_s * slack
    first = grid.start_s + max(WEEK_S, LEAST_HISTORY_S if own else 0.0)
    if issues:
        first = max(first, issues[0].issued_s)
    last = (min(grid.end_s, issues[-1].issued_s + 86400.0 + horizon) if issues else grid.end_s) - horizon
    candidates = [t for t in grid.starts if first <= t <= last]
    good = []
    random.Random(seed).shuffle(candidates)
    for start in candidates:
        edges = boundaries(start, start + horizon, slot_s)
        if grid.covers(start, edges[-1]):
            durations = [b - a for a, b in itertools.pairwise(edges)]
            good.append(Case(tuple(edges), job.problem(durations, grid.slots(edges), work_s)))
            if len(good) == count:
                break
    if not good:
        held, before = (grid.end_s - grid.start_s) / 86400, (first - grid.start_s) / 86400
        less = "; --no-own needs only a week" if own else ""
        text = (
            f"holds {held:.0f} days; a job of {horizon / 3600:.1f} h needs {before:.0f} days of history before it{less}"
        )
        raise ProblemError("actual", text)
    return sorted(good, key=lambda case: case.edges[0])


def _policies(grid: Grid, issues: list[ForecastIssue], own: bool) -> dict[str, Policy]:
    policies: dict[str, Policy] = {
        "run now": lambda case: (),
        "perfect foresight": lambda case: solve(case.problem, compare=False).levels,
        "best constant level": _best_constant,
        "start below 300 g": lambda case: _threshold(grid, case, 300.0, None),
        "start below 30th percentile": lambda case: _threshold(grid, case, _quantile(grid, case, 0.3), None),
        "threshold 30th percentile": lambda case: _threshold(
            grid, case, _quantile(grid, case, 0.3), _quantile(grid, case, 0.3)
        ),
        "threshold 30/70": lambda case: _threshold(grid, case, _quantile(grid, case, 0.3), _quantile(grid, case, 0.7)),
    }
    if issues:
        published = PublishedForecast(grid, issues)
        policies["window, published forecast"] = lambda case: _window(
            case, PublishedForecast(grid, issues, nowcast=False)
        )
        policies["rolling, published forecast"] = lambda case: rolling(case, published)
    if own:
        forecaster = OwnForecast(grid, issues)
        policies["rolling, own forecast" + (" and published" if issues else "")] = lambda case: rolling(
            case, forecaster
        )
    return policies


def rolling(case: Case, expect: Predictor) -> list[int]:
    """In every slot, plan the rest of the job on the forecast of that time and execute the plan's first slot."""
    whole = case.problem
    levels: list[int] = []
    current, age, done, resumes = whole.initial_level, whole.initial_age_slots, 0.0, 0
    for k, duration in enumerate(whole.dur_s):
        left = None if whole.max_resumes is None else whole.max_resumes - resumes
        rest = replace(
            whole,
            dur_s=whole.dur_s[k:],
            ci_g_per_kwh=tuple(expect(case.edges[k:])),
            work_s=whole.work_s - done,
            initial_level=current,
            initial_age_slots=age,
            max_resumes=left,
        )
        level = solve(rest, compare=False).levels[0]
        if level < 0:
            break
        levels.append(level)
        running = whole.levels[level].running
        lost = 0.0 if level == current else min(whole.switch_s[current][level] or 0.0, duration)
        if running != whole.levels[current].running:
            age, resumes = 0, resumes + running
        current, age = level, age + 1
        done += whole.levels[level].speed * (duration - lost)
        if done >= whole.work_s - whole.finish_tolerance:
            break
    return levels


def _best_constant(case: Case) -> tuple[int, ...]:
    """The best level to hold throughout, chosen in hindsight."""
    _, *constant = evaluated(case.problem, steady(build(case.problem)))
    held = [b for b in constant if b.feasible]
    return min(held, key=lambda b: b.objective).levels if held else ()


def _window(case: Case, expect: Predictor) -> tuple[int, ...]:
    """The best start by the forecast at the beginning; runs without a break from there."""
    expected = replace(case.problem, ci_g_per_kwh=tuple(expect(case.edges)))
    window = [b for b in baselines(expected) if b.name == "best window" and b.feasible]
    return window[0].levels if window else ()


def _quantile(grid: Grid, case: Case, q: float) -> float:
    """The q-quantile of the intensities of the week before the start, gCO2/kWh."""
    end = bisect_right(grid.starts, case.edges[0] - 1.0)
    start = bisect_right(grid.starts, case.edges[0] - WEEK_S)
    week = sorted(grid.values[start:end])
    return week[min(len(week) - 1, int(q * len(week)))] if week else 0.0


def _threshold(grid: Grid, case: Case, resume: float, suspend: float | None) -> list[int]:
    """Start at or below `resume`, stop above `suspend` (None: never); run when the remaining work no longer fits."""
    problem = case.problem
    fast = problem.fastest
    rests = [
        (time, j)
        for j, level in enumerate(problem.levels)
        if not level.running and problem.switch_s[fast][j] is not None
        for time in [problem.switch_s[j][fast]]
        if time is not None
    ]
    current, done = problem.initial_level, 0.0
    running = problem.levels[current].running
    levels = []
    for k, duration in enumerate(problem.dur_s):
        value = problem.ci_g_per_kwh[k]
        want = value <= resume if not running else suspend is None or value <= suspend
        rest = current if not running else min(rests)[1] if rests else fast
        back = problem.switch_s[rest][fast] or 0.0
        fits = (problem.work_s - done) / problem.levels[fast].speed + back <= case.edges[-1] - case.edges[k + 1] + 1e-6
        level = fast if want or not fits else rest
        lost = 0.0 if level == current else min(problem.switch_s[current][level] or 0.0, duration)
        done += problem.levels[level].speed * (duration - lost)
        current, running = level, problem.levels[level].running
        levels.append(level)
    return levels
