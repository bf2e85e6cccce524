"""An evaluation that anybody can repeat: policies on recorded grids, from starts that a seed chooses.

On every grid the same starts serve every length, slack, boundary and set of levels, so that groups can be compared.
Forecasts are carbontui's own, of what was known by then, blended with published ones where a grid has them.
"""

import itertools
import math
import multiprocessing
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from carbontui import hooks
from carbontui.assumed.job import AssumedJob, Grid, assumed, boundaries
from carbontui.config import PATIENCE_PCT
from carbontui.extensions.evaluation.issued import DayAhead, OwnForecast, load_issues
from carbontui.extensions.evaluation.policies import Case, Knowledge, Policy, best_constant, outcome, rolling, rules
from carbontui.extensions.evaluation.run import PlannedPrices, starts_drawn
from carbontui.grid import choose, recorded, tariff
from carbontui.grid.types import Signal
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import ProblemLevel, Weight, price_of_time
from carbontui.plan.results import run_lengths
from carbontui.power.curves.public import SHARES, shapes
from carbontui.system import isolation
from carbontui.units import iso

SCHEMA = "carbontui.evaluation/1"
FULL_W = 650.0
SLOT_S = {4: 1800.0, 8: 1800.0, 24: 3600.0, 72: 7200.0}
"""Seconds of a plan's slot by hours of work."""
HISTORY_S = 90 * 86400.0
"""Grid before the first start, from which the forecaster learns."""
ANY_BOARD = "mean of all boards"
SIGNAL: Signal = "average_direct"
DATA = Path(str(resources.files("carbontui.data")))


class RecordedGrid(NamedTuple):
    """A recorded grid: what it is called, its zone, the CSV of its intensities, of published forecasts and of
    prices."""

    name: str
    zone: str
    path: Path
    issued: Path | None = None
    price: Path | None = None

    def files(self) -> dict[str, Path]:
        more = {f"{self.name}, forecasts": self.issued, f"{self.name}, prices": self.price}
        return {self.name: self.path} | {name: path for name, path in more.items() if path}

    def prices(self, hours: Grid) -> DayAhead:
        """Those recorded, else an invented tariff: 0.30 by day, 0.18 from 22 to 6 UTC."""
        path = self.price or DATA / "example-tariff.csv"
        series, known = tariff.prices(str(path), hours.start_s, hours.end_s)
        return DayAhead(Grid(series), known)


def shipped() -> tuple[RecordedGrid, ...]:
    """The grids that ship with carbontui."""
    return (
        RecordedGrid("DE 2020", "DE", DATA / "grid-de-2020.csv.gz"),
        RecordedGrid("GB 2023", "GB", DATA / "grid-gb-2023.csv.gz"),
    )


@dataclass(frozen=True, slots=True)
class EvaluationScope:
    """What is evaluated: jobs, host watts while a job holds its machine, starts per grid."""

    jobs: tuple[tuple[int, float], ...] = ((4, 2.0), (8, 1.5), (8, 3.0), (24, 2.0), (72, 2.0))
    """Hours of work, and budgets as multiples of them."""
    held_w: tuple[float | None, ...] = (None, 60.0, 250.0)
    """None: the machine is given back while the job waits."""
    starts: int = 20
    seeds: int = 3
    board_starts: int = 6
    """Of so many starts of each seed also 24 h of work in twice the time with the curve of each published training."""
    variant_starts: int = 20
    """Of so many the same with each of `VARIANTS`."""
    grids: tuple[RecordedGrid, ...] = ()
    """(): those that are shipped."""
    lateness_s: float | None = None
    """How late intensities are known; None: as late as each zone's source."""
    patience_pct: float = PATIENCE_PCT
    """Of ours; without a price of time (0) it is weighed beside, too."""


QUICK = EvaluationScope(jobs=((4, 2.0), (24, 2.0)), starts=6, seeds=1, board_starts=1, variant_starts=1)
DAY, CURVE_PCT = (24, 2.0), (0.0, 1.0, 2.0, 5.0)
"""The job that is weighed with every board, and at several patiences."""


class Variant(NamedTuple):
    """What is asked or taken for true otherwise: CO2 and cost by weight (None: CO2 alone), a carbon budget as a share
    of what running now is expected to emit, what is taken for true (`rolling`)."""

    weight: Weight | None = None
    most: float | None = None
    work: float = 1.0
    speed: float = 1.0


VARIANTS = {
    "": Variant(),
    "cost": Variant(Weight(0.0, 1.0)),
    "half CO2, half cost": Variant(Weight(0.5, 0.5)),
    "at most 80 % of running now's CO2": Variant(most=0.8),
    "work taken for 25 % more": Variant(work=1.25),
    "work taken for 20 % less": Variant(work=0.8),
    **{f"caps taken for {pct} % faster": Variant(speed=1 + pct / 100) for pct in (1, 2, 5)},
    "caps taken for 5 % slower": Variant(speed=0.95),
}


Weights = tuple[float, float] | None
"""Of (cost, grams); None: each job's own."""


class Setting(NamedTuple):
    """What a group's jobs share; `training` counts the published curves, None: what all of them expect."""

    hours: int
    slack: float
    held_w: float | None
    caps: bool
    patience_pct: float
    training: int | None = None
    variant: str = ""


def lateness_s(source: RecordedGrid, scope: EvaluationScope) -> float:
    return choose.lateness(source.zone)[0] if scope.lateness_s is None else scope.lateness_s


def evaluation(
    scope: EvaluationScope, seed: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, Any]:
    """Everything of `evaluation.json` but who ran it: the same for a seed on every machine."""
    os.environ.update(isolation.ONE_THREAD)  # each start is another process's; set before numpy is loaded there
    grids = scope.grids or shipped()
    asked = [
        (scope, grid, number, *start)
        for grid, number in itertools.product(grids, range(seed, seed + scope.seeds))
        for start in starts_of(grid, scope, number)
    ]
    jobs: dict[tuple[str, Setting], list[dict[str, Any]]] = defaultdict(list)
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        for done, rows in enumerate(pool.map(start_evaluated, *zip(*asked, strict=True)), start=1):
            for setting, job in rows:
                jobs[asked[done - 1][1].name, setting].append(job)
            progress(done, len(asked))
    groups = [_group(scope, grid, one, jobs[grid.name, one]) for grid in grids for one in settings(scope)]
    own = [one for one in groups if one["training"] is None and not one["variant"]]
    main = [one for one in own if one["patience_pct"] == scope.patience_pct]
    files = {name: path for grid in grids for name, path in grid.files().items()}
    return {
        "schema": SCHEMA,
        "seed": seed,
        "patience_pct": scope.patience_pct,
        "policies": list(main[0]["summary"]),
        "data": {
            name: {"file": path.name, "sha256": sha256(path.read_bytes()).hexdigest()} for name, path in files.items()
        },
        "groups": main,
        "boards": [one for one in groups if one["training"] is not None],
        "patience": [one for one in own if one["patience_pct"] != scope.patience_pct],
        "variants": [one for one in groups if one["variant"]],
    }


def _group(scope: EvaluationScope, grid: RecordedGrid, setting: Setting, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    shape = job_of(setting).shape
    return {
        "zone": grid.zone,
        "hours": setting.hours,
        "slack": setting.slack,
        "caps": setting.caps,
        "board": ANY_BOARD if setting.training is None else shapes()[setting.training].gpu,
        "training": setting.training,
        "patience_pct": setting.patience_pct,
        "variant": setting.variant,
        "signal": SIGNAL,
        "lateness_s": lateness_s(grid, scope),
        "boundary": "given-back" if setting.held_w is None else f"held {setting.held_w:g} W",
        "host_w": setting.held_w or 0.0,
        "data": grid.name,
        "slot_s": SLOT_S[setting.hours],
        "levels": [{"name": one.name, "power_w": one.power_w, "speed": one.speed} for one in shape.levels],
        "switch": {"time_s": shape.switch_s, "power_w": shape.switch_w[0][0]},
        "jobs": jobs,
        "summary": summary(jobs),
    }


def settings(scope: EvaluationScope, nth: int = 0) -> list[Setting]:
    """Of the nth start of a seed, in order; of the first ones also those of the published trainings and variants."""
    own = scope.patience_pct
    made = [
        Setting(*job, held_w, caps, pct)
        for job, held_w, caps in itertools.product(scope.jobs, scope.held_w, (False, True))
        for pct in dict.fromkeys((own, *(CURVE_PCT if job == DAY else CURVE_PCT[:1])))
    ]
    of_boards = itertools.product(scope.held_w, range(len(shapes()) if nth < scope.board_starts else 0))
    varied = itertools.product(VARIANTS if nth < scope.variant_starts else (), scope.held_w, (False, True))
    made += [Setting(*DAY, held_w, True, own, training) for held_w, training in of_boards]
    return made + [
        Setting(*DAY, held_w, caps, own, None, name)
        for name, held_w, caps in varied
        if name and (caps or VARIANTS[name].speed == 1.0)
    ]


def grid_of(source: RecordedGrid, scope: EvaluationScope) -> Grid:
    series = recorded.load(source.path, zone=source.zone, signal=SIGNAL, source=source.name)
    return Grid(series, lateness_s(source, scope))


def starts_of(source: RecordedGrid, scope: EvaluationScope, seed: int) -> list[tuple[float, int]]:
    """The starts on a grid that the seed chooses among all hours, sorted, and the how manieth was drawn."""
    issues = load_issues(source.issued) if source.issued else []
    longest_s = max(one.hours * one.slack for one in settings(scope)) * 3600.0
    rng = random.Random(f"starts of {source.name} {seed}")
    drawn = starts_drawn(grid_of(source, scope), issues, HISTORY_S, longest_s, rng)
    return sorted((start, n) for n, start in enumerate(itertools.islice(drawn, scope.starts)))


def start_evaluated(
    scope: EvaluationScope, source: RecordedGrid, seed: int, start: float, nth: int
) -> list[tuple[Setting, dict[str, Any]]]:
    """What every policy does with the jobs of all settings that start at a time."""
    grid = grid_of(source, scope)
    prices = source.prices(grid)
    known = Knowledge(grid, OwnForecast(grid, load_issues(source.issued) if source.issued else []), prices)
    simple = rules(grid.delayed(), known)
    done = []
    # the longest first: its forecasts serve the shorter ones
    for setting in sorted(settings(scope, nth), key=lambda one: -one.hours * one.slack):
        edges = boundaries(start, start + setting.hours * 3600 * setting.slack, SLOT_S[setting.hours])
        problem, asked = job_of(setting).problem(edges, grid, setting.hours * 3600.0), VARIANTS[setting.variant]
        alpha, beta = PlannedPrices(prices.grid, "", weight=asked.weight).scales(grid, start)
        problem = replace(problem, price_per_kwh=tuple(prices.grid.slots(edges)), alpha=alpha, beta=beta)
        case = Case(tuple(edges), problem)
        expected, _ = known.expected(problem, edges)
        most_g = (asked.most or math.inf) * evaluate(expected, ()).gco2
        policies: dict[str, Policy] = {
            "run now": lambda case: (),
            "best constant cap": best_constant,
            **({} if setting.variant else simple),
            "ours": partial(
                ours, known=known, patience_pct=setting.patience_pct, work=asked.work, speed=asked.speed, most_g=most_g
            ),
            "perfect foresight": lambda case: solve(case.problem, compare=False).levels,
            **{name: one for _, made in hooks.offered("policies") for name, one in made(grid, known).items()},
        }
        about = {"start": iso(start), "seed": seed, "weights": (alpha, beta), "most_g": asked.most and most_g}
        done.append((setting, about | {"policies": _outcomes(case, policies)}))
    return done


def ours(case: Case, known: Knowledge, patience_pct: float, **taken: float) -> list[int]:
    """What carbontui does, with the price of time of its first forecast."""
    expected, _ = known.expected(case.problem, case.edges)
    price = price_of_time(expected, patience_pct)
    return rolling(replace(case, problem=replace(case.problem, price_of_time=price)), known, **taken)


def job_of(setting: Setting) -> AssumedJob:
    """A board of `FULL_W` on a machine that it holds from its first moment to its finish, waiting included."""
    shape = assumed(FULL_W, caps=setting.caps, running=False).shape
    if setting.training is not None:
        curve = shapes()[setting.training]
        measured = [(share, *at) for share in SHARES if (at := curve.at(share)) is not None]
        caps = [ProblemLevel(f"cap {share * FULL_W:.0f} W", watts * FULL_W, speed) for share, watts, speed in measured]
        count = 3 + len(caps)  # off, pause and full come first
        shape = replace(
            shape,
            levels=(*shape.levels[:3], *caps),
            switch_s=tuple(row[:count] for row in shape.switch_s[:count]),
            switch_w=tuple(row[:count] for row in shape.switch_w[:count]),
        )
    return AssumedJob(replace(shape, host_w=setting.held_w or 0.0))


def _outcomes(case: Case, policies: dict[str, Policy]) -> dict[str, Any]:
    rows = {}
    for name, policy in policies.items():
        levels, did = outcome(case, policy)
        runs = run_lengths(levels)
        rows[name] = {
            "gco2_g": round(did.gco2, 3),
            "kwh": round(did.kwh, 5),
            "cost": round(did.cost, 6),
            "finish_s": round(did.finish_s, 1),
            "late_s": round(did.late_s, 1),
            "switches": len(runs) - 1,
            "levels": [list(run) for run in runs],
        }
    return rows


def worth(job: dict[str, Any], policy: str, weights: Weights) -> float:
    """What a policy's job took, by (cost, grams)."""
    row, (alpha, beta) = job["policies"][policy], weights or job["weights"]
    return float(alpha * row["cost"] + beta * row["gco2_g"])


def summary(jobs: list[dict[str, Any]], weights: Weights = (0.0, 1.0)) -> dict[str, dict[str, float | None]]:
    """Per policy, against running now: saving on summed grams (or by `weights`), mean and median of the jobs, the worst
    job (above zero: it emits more), all in %; late jobs, and changes of level per job; hours by which it ends later,
    and the grams that each of them saves (None: it ends no later)."""
    found: dict[str, dict[str, float | None]] = {}
    for name in jobs[0]["policies"]:
        rows = [(job["policies"][name], job["policies"]["run now"]) for job in jobs]
        took = [(worth(job, name, weights), worth(job, "run now", weights)) for job in jobs]
        each = [100 * (1 - mine / now) for mine, now in took]
        grams, now_g = (math.fsum(side) for side in zip(*took, strict=True))
        delay_h = math.fsum(row["finish_s"] - now["finish_s"] for row, now in rows) / 3600
        found[name] = {
            "saving_pct": round(100 * (1 - grams / now_g), 3),
            "mean_pct": round(statistics.fmean(each), 3),
            "median_pct": round(statistics.median(each), 3),
            "worst_pct": round(-min(each), 3) + 0.0,
            "late": sum(row["late_s"] > 0 for row, _ in rows),
            "switches": round(statistics.fmean(row["switches"] for row, _ in rows), 3),
            "delay_h": round(delay_h / len(rows), 3) + 0.0,
            "saved_g_per_delay_h": round((now_g - grams) / delay_h, 3) + 0.0 if delay_h > 1e-3 else None,
        }
    return found
