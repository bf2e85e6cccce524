"""How errors of the forecast go together over hours, by horizon, on recorded grids known as late as their sources. Run
by hand:

    python tests/bench/bench_guard.py [DATA] [--origins 40] [--out FILE.md]

DATA is the folder of `bench_issued.py`; without it, the grids that ship. An error is taken in its own standard
deviations, so that `plan.rolling` can be asked what it takes for it: rows are the time between two hours, columns the
horizon of the earlier one.
"""

from __future__ import annotations

import argparse
import itertools
import random
from pathlib import Path

import numpy as np
from bench_issued import named

from carbontui.extensions.evaluation import evaluation
from carbontui.extensions.evaluation.issued import OwnForecast, load_issues
from carbontui.extensions.evaluation.run import starts_drawn
from carbontui.plan import rolling

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


def main() -> None:
    parser = argparse.ArgumentParser()
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
        f"    python tests/bench/bench_guard.py {asked.data and 'DATA ' or ''}--origins {asked.origins}",
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
        *(
            f"| {name} | {' | '.join(f'{alike(z, 0, HOURS, d):.2f}' for d in APART_H)} |"
            for name, z in found.items()
        ),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
