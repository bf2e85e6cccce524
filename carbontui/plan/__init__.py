"""Pure planning on immutable data: problem, evaluate, solve, frontier, baselines, explanations.

Names are resolved on first use, so that importing this package loads no numpy: the supervisor holds problems and
plans as plain data and leaves solving to its worker process.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carbontui.plan.evaluation import evaluate
    from carbontui.plan.explanation import explain, stretches
    from carbontui.plan.frontier_curve import frontier
    from carbontui.plan.level_windows import Window, windows
    from carbontui.plan.planner import solve
    from carbontui.plan.problem import (
        Infeasible,
        Problem,
        ProblemError,
        ProblemLevel,
        load_problem,
        problem_from_dict,
        shortened,
    )
    from carbontui.plan.results import Baseline, Evaluation, Explanation, Frontier, FrontierPoint, Schedule, Violation
    from carbontui.plan.rivals import baselines
    from carbontui.plan.rolling import broken, replan

_HOME = {
    "frontier": "frontier_curve",
    "evaluate": "evaluation",
    "solve": "planner",
    "Infeasible": "problem",
    "ProblemLevel": "problem",
    "Problem": "problem",
    "ProblemError": "problem",
    "load_problem": "problem",
    "problem_from_dict": "problem",
    "shortened": "problem",
    "Baseline": "results",
    "Evaluation": "results",
    "Frontier": "results",
    "FrontierPoint": "results",
    "Schedule": "results",
    "Violation": "results",
    "baselines": "rivals",
    "broken": "rolling",
    "replan": "rolling",
    "Window": "level_windows",
    "windows": "level_windows",
    "Explanation": "results",
    "explain": "explanation",
    "stretches": "explanation",
}

__all__ = [
    "Baseline",
    "Evaluation",
    "Explanation",
    "Frontier",
    "FrontierPoint",
    "Infeasible",
    "Problem",
    "ProblemError",
    "ProblemLevel",
    "Schedule",
    "Violation",
    "Window",
    "baselines",
    "broken",
    "evaluate",
    "explain",
    "frontier",
    "load_problem",
    "problem_from_dict",
    "replan",
    "shortened",
    "solve",
    "stretches",
    "windows",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
