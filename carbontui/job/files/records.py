"""Which values may stand in the small files of a job that every list reads. Standard library only, for the keeper."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

MOST = 2.0**53
"""Of any number."""
LIKE = {float: (int,), tuple: (list,), type(None): (int, float)}
"""What a file may hold besides a default's own kind."""
LAST_S = 32_503_680_000.0
"""The year 3000: a later time is a damaged one."""
_EXIT: dict[str, Callable[[Any], bool]] = {
    "code": lambda value: type(value) is int and 0 <= value <= 255,
    "signal": lambda value: type(value) is int and 0 < value < signal.NSIG,
    "at": lambda value: type(value) in (int, float) and 0 <= value <= LAST_S,
    "signals": lambda value: isinstance(value, list),
    **dict.fromkeys(("stopped", "unloaded", "interrupted"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("budget", "ended_by", "moved"), lambda value: isinstance(value, str) and len(value) < 512),
}
"""What exit.json says, and which values may be."""


def known_exit(record: dict[str, Any]) -> dict[str, Any]:
    """What is as it may be, of a damaged exit.json, or of what another machine says of the end of a job."""
    return {name: record[name] for name, may_be in _EXIT.items() if name in record and may_be(record[name])}


def known(defaults: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """The known fields of `record`. Raises TypeError for a value that is not of the kind of its default."""
    known = {name: record[name] for name in defaults if name in record}
    for name, value in known.items():
        kind = type(defaults[name])
        if type(value) not in (kind, *LIKE.get(kind, ())) or (type(value) in (int, float) and not abs(value) < MOST):
            raise TypeError(f"{name} is not what it says")
    return known
