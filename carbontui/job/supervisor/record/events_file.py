"""Every event of a supervisor's life in a file, from which its decisions can be computed again.

Written only where the environment names a folder for it, one file per supervisor and one JSON line per event. Of each
part a line has only what differs from the last line that had it: boards and outlook rarely change, clocks always do.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from carbontui.job.supervisor.core.advance import Command, Event, LastCount, RankChanged, Tick
from carbontui.job.supervisor.core.commands import Reply
from carbontui.job.supervisor.core.effects import Effect, KeeperOrder
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record.recorder import say

FOLDER = "CARBONTUI_RECORD_EVENTS"
MOST_GONE = 4
"""Entries that a list may have lost at its beginning; with more it is written anew."""
FIELDS = tuple(field.name for field in fields(JobState))


def opened(job: str) -> EventsFile | None:
    """A new file in the folder that the environment names; None where it names none."""
    folder = os.environ.get(FOLDER)
    try:
        return EventsFile(Path(folder) / f"{job}.{time.time_ns()}.jsonl") if folder else None
    except OSError as error:
        say(f"events are not recorded: {error}")
        return None


class EventsFile:
    """One supervisor's events. A fault ends the recording, never the supervisor."""

    def __init__(self, path: Path) -> None:
        # each line is written whole and at once: a kill loses none
        self._file = path.open("ab", buffering=0)
        self._told: dict[str, Any] = {}
        self._known: JobState | None = None
        self._over = False
        """It has failed: a recording with a gap would be a wrong one."""

    def begin(self, state: JobState) -> None:
        """The state that the first event finds."""
        self._confined(lambda: self._write("begin", {"state": state}))
        self._known = state

    def add(self, event: Event, before: JobState, after: JobState, effects: Sequence[Effect | Reply]) -> None:
        """The event that made `after` of `before`, and its effects.

        What only puts a value into the state (an outlook, a plan, totals) is a line of its own before the next event.
        """
        match event:
            case Tick(inputs):
                kind, facts = "advance", {"seen": inputs, "effects": effects}
            case RankChanged(rank, inputs):
                kind, facts = "hear", {"rank": rank, "seen": inputs}
            case LastCount(rank, inputs):
                kind, facts = "left", {"rank": rank, "seen": inputs}
            case Command(cmd, by, inputs):
                kind, facts = "command", {"cmd": cmd, "by": by, "seen": inputs, "effects": effects}
            case _:
                return

        def write() -> None:
            if self._known is None:
                self._write("begin", {"state": before})
            else:
                self._write_changes(self._known, before)
            self._write(kind, {**facts, "asked": after.asked, "decision": after.decision})

        self._confined(write)
        self._known = after

    def _confined(self, write: Callable[[], None]) -> None:
        if self._over:
            return
        try:
            write()
        except Exception as error:
            self._over = True
            say(f"events are no longer recorded: {type(error).__name__}: {error}")

    def _write_changes(self, known: JobState, now: JobState) -> None:
        changed = {name: new for name in FIELDS if (new := getattr(now, name)) is not getattr(known, name)}
        if changed and difference(self._told["state"], new := {**self._told["state"], **tree(changed)}):
            self._write("changed", {"state": new})

    def _write(self, event: str, facts: Mapping[str, object]) -> None:
        line: dict[str, Any] = {"event": event}
        for name, value in facts.items():
            new = tree(value)
            if change := difference(self._told.get(name), new):
                line[name] = change
            self._told[name] = new
        self._file.write(msgspec.json.encode(line) + b"\n")


def tree(value: object) -> Any:
    """Any value of the core as JSON: structures as objects, sets in order, numbers that JSON has not as text, an
    effect with its kind."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, KeeperOrder):
        return {"effect": type(value).__name__, **{name: one for name, one in value._asdict().items() if name != "t"}}
    if isinstance(value, Mapping):
        return {str(key): tree(inner) for key, inner in value.items()}
    if isinstance(value, Set):
        return [tree(inner) for inner in sorted(value)]
    if isinstance(value, tuple | list):
        return [tree(inner) for inner in value]
    kind = {"effect": type(value).__name__} if isinstance(value, Effect | Reply) else {}
    if isinstance(value, msgspec.Struct):
        return {**kind, **{name: tree(getattr(value, name)) for name in value.__struct_fields__}}
    if is_dataclass(value):
        return {**kind, **{field.name: tree(getattr(value, field.name)) for field in fields(value)}}
    raise TypeError(f"{type(value).__name__} has no form in a recording")


def difference(old: Any, new: Any) -> Any:
    """What makes `new` of `old`: [new] replaces it, an object has the differences of its entries; empty: nothing.

    Of a list it may also have `len`, the new length, and `from`: the old one is counted from there, as in an outlook
    that goes on with the time.
    """
    if type(old) is not type(new):
        return [new]
    if isinstance(new, dict) and list(old) == list(new)[: len(old)]:
        return {key: change for key in new if (change := difference(old.get(key, ...), new[key]))}
    if isinstance(new, list):
        gone = min(range(MOST_GONE), key=lambda n: sum(a != b for a, b in zip(old[n:], new, strict=False)) + n)
        pairs = zip_longest(old[gone : gone + len(new)], new, fillvalue=...)
        found = {str(n): change for n, pair in enumerate(pairs) if (change := difference(*pair))}
        return found | ({"from": gone} if gone else {}) | ({"len": len(new)} if len(old) != len(new) else {})
    return {} if old == new else [new]
