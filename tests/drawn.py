"""What users would read of a decision or a reason that a test has made with the core alone."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from carbontui.text.statements import words

NOW_S = 1_800_000_000.0
"""As in tests/job/states.py: a slot boundary, 15 January 2027, 08:00 UTC."""


def drawn(told: Any, now_s: float = NOW_S) -> str:
    """The words of a Decision, a Chosen, a Why or a Statement."""
    told = getattr(told, "why", told)
    return words(getattr(told, "said", told), now_s)


def drawn_plan(state: Any, seen: Any) -> Any:
    """The plan as viewers show it."""
    from carbontui.job.supervisor.core.view import shown_plan
    from carbontui.job.supervisor.shell.requests import Requests
    from carbontui.text import situation

    plan = Requests.drawn_plan(shown_plan.view(state, seen), seen.now_s)
    return plan and structs.replace(plan, explanation=situation.explanation(plan, seen.now_s))
