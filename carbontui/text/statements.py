"""Statements in words: the room's one entry for codes of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from carbontui.protocol import Statement

Wording = Callable[..., str]
"""Takes the statement's parts by name, and `now_s`, from which times are written ('18:00' today, else with the day)."""


def words(said: Statement, now_s: float, table: Mapping[str, Wording]) -> str:
    """The statement as text, by the wording that `table` has for its code.

    Raises KeyError for a code without wording, TypeError for parts that the wording does not know.
    """
    return table[said.code](now_s=now_s, **_parts(said, now_s, table))


def _parts(said: Statement, now_s: float, table: Mapping[str, Wording]) -> dict[str, Any]:
    """The parts, with statements inside a statement in words too."""
    return {
        name: words(value, now_s, table) if isinstance(value, Statement) else value
        for name, value in said.parts.items()
    }
