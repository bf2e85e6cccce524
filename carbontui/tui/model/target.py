"""The job a screen opens: its socket and its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from carbontui import protocol

Form = Literal["text", "markdown", "svg"]


class BetterHost(NamedTuple):
    """Another machine of the user's, and what the rest of the work would be there, in words."""

    host: str
    words: str


@dataclass(frozen=True, slots=True)
class Target:
    """One job to show. `status`, `read_log` and `whole_run` (RuntimeError with a line to show) come from its files, the
    only source once the job is over."""

    job: str
    name: str
    socket: Path
    status: protocol.Status | None = None
    read_log: Callable[[protocol.LogRead], protocol.LogAnswer] | None = None
    started_s: float = 0.0
    owner: str = ""
    """The user whose job it is."""
    host: str = ""
    """Another machine, as it was named to ssh; '' for this one."""
    whole_run: Callable[[int], protocol.HistoryAnswer | None] | None = None
    receipt: Callable[[Form], str] | None = None
    """Of a finished job; may block. Raises RuntimeError with a line to show."""
    ending: Callable[[], tuple[tuple[str, str], ...]] | None = None
    """(label, text) to add to the summary of a finished job; may block."""
    elsewhere: Callable[[], BetterHost | None] | None = None
    """Of a live job: the machine on which the rest of it would emit clearly less, if there is one; may block."""
    move: Callable[[str], tuple[bool, str]] | None = None
    """Moves it to a machine: whether it trains there, and a line; may block."""
    away: Callable[[], str] = str
    """Where it is, in a line, once it has moved to another machine; '' while it is here."""
    last_look: Path | None = None
    """Where the screen records the job's state when it was last shown."""

    @property
    def over(self) -> bool:
        return self.status is not None and self.status.state not in protocol.LIVE_STATES
