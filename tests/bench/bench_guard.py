"""How errors of the forecast go together over hours, by horizon, on recorded grids known as late as their sources. Run
by hand:

    python tests/bench/bench_guard.py [DATA] [--origins 40] [--starts 5] [--out FILE.md]

DATA is the folder of `bench_issued.py`; without it, the grids that ship. An error is taken in its own standard
deviations, so that `plan.rolling` can be asked what it takes for it: rows are the time between two hours, columns the
horizon of the earlier one.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from bench_issued import named

from carbontui.assumed.job import boundaries
from carbontui.extensions.evaluation import evaluation
from carbontui.extensions.evaluation.issued import OwnForecast, load_issues
from carbontui.extensions.evaluation.policies import Case, Knowledge, best_constant, outcome
from carbontui.extensions.evaluation.run import starts_drawn
from carbontui.plan import rolling
from carbontui.system import isolation

HOURS, APART_H = 168, (1, 3, 6, 12, 18, 24, 36, 48, 72, 96)
HORIZONS = {"day 1": (0, 24), "day 2": (24, 48), "days 3 to 7": (48, 168)}


def errors(source: evaluation.RecordedGrid, origins: int) -> np.ndarray:
    """[origin, hour] in standard deviations of the forecast."""
    grid = evaluation.grid_of(source, evaluation.EvaluationScope())
    issues = load_issues(source.issued) if source.issued else []
    own, found = OwnForecast(grid, issues), []
    drawn = starts_drawn(grid, issues, evaluation.HISTORY_S, HOURS * 3600.0, random.Random(f"origins {source.name}"))
    for start in sorted(itertools.islice(drawn, origins)):
        edges = [start + 3600.0 * hour for hour in range(HOURS + 1)]
        actual = [grid.mean(a, b) for a, b in itertools.pairwise(edges)]
        spread = np.array(own.spread(edges))
        found.append(np.subtract(actual, own(edges)) / np.where(spread > 0, spread, np.inf))
    return np.array(found)


def alike(z: np.ndarray, first: int, last: int, apart: int) -> float:
    """Correlation of the errors `apart` hours from each other, the earlier one within the horizon."""
    one, other = z[:, first : min(last, HOURS - apart)], z[:, first + apart : min(last, HOURS - apart) + apart]
    return float((one * other).mean() / np.sqrt((one**2).mean() * (other**2).mean()))


def fitted(rows: dict[str, list[float]]) -> tuple[float, float, float]:
    """(share, half time of it in h, half time of the rest in h) of least squared error over all horizons."""

    def miss(share: float, long_h: float, short_h: float) -> float:
        model = [share * 0.5 ** (d / long_h) + (1 - share) * 0.5 ** (d / short_h) for d in APART_H]
        return sum((a - b) ** 2 for row in rows.values() for a, b in zip(row, model, strict=True) if a == a)

    tried = itertools.product(np.arange(0, 1.01, 0.05), (12, 24, 36, 48, 72, 96, 168, 336), (1, 2, 3, 4, 6, 8, 12))
    return min(tried, key=lambda one: miss(*one))


GUARDS = {
    "none": (0.0, 0.0, 0.75, 48, 3),
    "half, chosen": (0.5, 1.0, 0.5, 48, 6),
    "half, fitted": (0.5, 1.0, 0.75, 48, 3),
    "default: one, fitted": (1.0, 1.0, 0.75, 48, 3),
    "two, fitted": (2.0, 2.0, 0.75, 48, 3),
}
"""`SURE`, `STAYS`, `LASTING`, `LASTING_S` and `ALIKE_S` in hours."""
CURVE = [evaluation.Setting(*job, 60.0, caps, 2.0) for job in ((24, 2.0), (72, 2.0)) for caps in (False, True)]


def costs(source: evaluation.RecordedGrid, start: float) -> list[list[tuple[float, float]]]:
    """[setting][guard] of a start: % saved against running now, and % above what the guard compares with (running now
    for pauses alone, the best constant cap in hindsight else)."""
    grid = evaluation.grid_of(source, evaluation.EvaluationScope())
    known = Knowledge(grid, OwnForecast(grid, load_issues(source.issued) if source.issued else []))
    found = []
    for setting in CURVE:
        edges = boundaries(start, start + setting.hours * 3600 * setting.slack, evaluation.SLOT_S[setting.hours])
        case = Case(tuple(edges), evaluation.job_of(setting).problem(edges, grid, setting.hours * 3600.0))
        now, cap = (outcome(case, policy).figures.gco2 for policy in (lambda case: (), best_constant))
        row = []
        for sure, stays, share, long_h, short_h in GUARDS.values():
            rolling.SURE, rolling.STAYS, rolling.LASTING = sure, stays, share
            rolling.LASTING_S, rolling.ALIKE_S = 3600.0 * long_h, 3600.0 * short_h
            grams = outcome(case, lambda case: evaluation.ours(case, known, CURVE[0].patience_pct)).figures.gco2
            row.append((100 * (1 - grams / now), 100 * (grams / (cap if setting.caps else now) - 1)))
        found.append(row)
    return found


def curve(grids: list[evaluation.RecordedGrid], starts: int, seed: int) -> list[str]:
    """Mean saving and worst job of each guard, held 60 W."""
    scope = evaluation.EvaluationScope(starts=starts, board_starts=0)
    asked = [(grid, start) for grid in grids for start, _ in evaluation.starts_of(grid, scope, seed)]
    with ProcessPoolExecutor(max_workers=2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = np.array(list(pool.map(costs, *zip(*asked, strict=True))))
    heads = [f"{one.hours} h within {one.slack:g}x, {'caps' if one.caps else 'pauses'}" for one in CURVE]
    return [
        "",
        f"## Worst against mean, held 60 W, {len(asked)} starts of seed {seed} on {', '.join(g.name for g in grids)}",
        "",
        "Mean saving against running now (worst job above the best constant cap, of pauses above running now), %.",
        "",
        f"| guard | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
        *(
            f"| {name} | "
            + " | ".join(f"{found[:, i, k, 0].mean():.2f} ({found[:, i, k, 1].max():+.1f})" for i in range(len(CURVE)))
            + " |"
            for k, name in enumerate(GUARDS)
        ),
    ]


def main() -> None:
    os.environ.update(isolation.ONE_THREAD)
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=0, help="of the curve, on the grids that ship; 0: no curve")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--origins", type=int, default=40)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    grids = [*evaluation.shipped(), *(named(asked.data) if asked.data else [])]
    found = {grid.name: errors(grid, asked.origins) for grid in grids}
    pooled = np.concatenate(list(found.values()))
    rows = {name: [alike(pooled, *span, apart) for apart in APART_H] for name, span in HORIZONS.items()}
    share, long_h, short_h = fitted(rows)
    taken = [
        rolling.LASTING * 0.5 ** (d * 3600 / rolling.LASTING_S)
        + (1 - rolling.LASTING) * 0.5 ** (d * 3600 / rolling.ALIKE_S)
        for d in APART_H
    ]
    size = {name: float(np.sqrt((pooled[:, slice(*span)] ** 2).mean())) for name, span in HORIZONS.items()}
    lines = [
        "# Errors of the forecast over hours",
        "",
        f"    python tests/bench/bench_guard.py {'DATA ' if asked.data else ''}--origins {asked.origins} "
        f"--starts {asked.starts} --seed {asked.seed}",
        "",
        f"{', '.join(found)}; {asked.origins} origins each, late as their sources.",
        "",
        f"| hours apart | {' | '.join(HORIZONS)} | as planned with |",
        "|---" * (len(HORIZONS) + 2) + "|",
        *(
            f"| {d} | {' | '.join(f'{rows[name][i]:.2f}' for name in HORIZONS)} | {taken[i]:.2f} |"
            for i, d in enumerate(APART_H)
        ),
        f"| error in its standard deviations | {' | '.join(f'{one:.2f}' for one in size.values())} | 1.00 |",
        "",
        f"Least squares: a share of {share:.2f} with a half time of {long_h:g} h, the rest {short_h:g} h.",
        "",
        "| grid | " + " | ".join(f"{d} h apart" for d in APART_H) + " |",
        "|---" * (len(APART_H) + 1) + "|",
        *(f"| {name} | {' | '.join(f'{alike(z, 0, HOURS, d):.2f}' for d in APART_H)} |" for name, z in found.items()),
    ]
    if asked.starts:
        lines += curve(list(evaluation.shipped()), asked.starts, asked.seed)
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
