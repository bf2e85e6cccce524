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
    from carbontui.plan.results import (
        Evaluation,
        Explanation,
        PlanFrontier,
        PlanFrontierPoint,
        PolicyResult,
        Schedule,
        Violation,
    )
    from carbontui.plan.rivals import baselines
    from carbontui.plan.rolling import broken, replan

__all__ = [
    "Evaluation", "Explanation", "Infeasible", "PlanFrontier", "PlanFrontierPoint", "PolicyResult", "Problem",
    "ProblemError", "ProblemLevel", "Schedule", "Violation", "Window", "baselines", "broken", "evaluate",
    "explain", "frontier", "load_problem", "problem_from_dict", "replan", "shortened", "solve", "stretches",
    "windows",
]  # fmt: skip
# those without numpy come first
_MODULES = (
    "problem",
    "results",
    "evaluation",
    "level_windows",
    "rivals",
    "explanation",
    "planner",
    "frontier_curve",
    "rolling",
)


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        home = importlib.import_module(f"{__name__}.{module}")
        if hasattr(home, name):
            return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
