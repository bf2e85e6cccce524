"""Whose override is in force: the generation the next command must name, and a line for the user who was overruled."""

from __future__ import annotations

from carbontui import protocol

OVERRULES = frozenset({"pause", "boost", "cap", "resume"})
"""Verbs that change the generation of the override."""
_HOLDS = {"pause": "paused it", "boost": "boosts it", "cap": "caps it"}


class PendingOverride:
    """`me` is user@tty as others see it. Compare-and-set: a command names the override generation last seen."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._seen = 0
        self._ahead = 0
        self._mine: tuple[str, int] | None = None

    def next_gen(self, verb: protocol.Verb) -> int | None:
        """The generation `verb` names now; several commands in a row build on one another before a picture arrives."""
        if verb not in OVERRULES:
            return None
        gen = max(self._seen, self._ahead)
        self._ahead = gen + 1
        return gen

    def answered(self, verb: protocol.Verb, gen: int | None, ok: bool) -> None:
        if gen is None:
            return
        if not ok:
            self._ahead = 0
        else:
            self._mine = None if verb == "resume" else (verb, gen + 1)

    def saw(self, status: protocol.Status) -> tuple[bool, str]:
        """(whether the last answer about an override is out of date, a line about who overruled mine or '')."""
        gen, held = status.override_gen, status.override
        changed, self._seen = gen != self._seen, gen
        if gen >= self._ahead:
            self._ahead = 0
        mine = self._mine
        if mine is None or gen <= mine[1]:
            return changed and mine is None, ""
        self._mine = None
        if held is None:
            return True, f"your {mine[0]} is over"
        if held.by == self._me:
            return True, ""
        until = "" if held.until else " until cleared"
        return True, f"{held.by} {_HOLDS[held.mode]} now{until}: your {mine[0]} no longer holds"
