"""All that two machines say to each other in a move: JSON, one object per line, over ssh.

`check`, `stage` and `start` are asked by `move`, `hold` by the keeper of the place before. Every line is checked by
`records.decode` before anything is done: unknown fields are ignored, a missing one without a default or a value of
another kind refuses the whole. Named tuples of the standard library, for the keeper.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class CheckAsk(NamedTuple):
    """move -> there: can this job come, and where to?"""

    version: str
    cwd: str
    home: str
    argv0: str
    path: str
    """PATH."""
    files: tuple[tuple[str, int, int], ...]
    """Name below `cwd`, bytes, and mtime in ns."""


class CheckAnswer(NamedTuple):
    """What decides whether it comes, and where to."""

    home: str
    cwd: str
    staging: str
    free_b: int
    copy_b: int
    changed: tuple[tuple[str, str | None], ...] = ()
    """Files that differ there and were changed there, with a digest if that may be the same."""
    zone: str = ""
    zone_why: str = ""


class StageAsk(NamedTuple):
    """move -> there: all has been copied. Times are epoch seconds."""

    cwd: str
    home: str
    token: int
    peer: str
    host: str
    zone: str
    boot: str
    since: float
    until: float
    bytes: int
    joules: float | None = None


class Staged(NamedTuple):
    """What has arrived is what was sent."""

    ready: bool


class StartAsk(NamedTuple):
    """move -> there: what has not begun is to be started there by `run` with these words."""

    cwd: str
    left: str
    """Its directory where it comes from."""
    home: str
    words: tuple[str, ...]
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


class Started(NamedTuple):
    """The job's id there."""

    job: str


class Greeting(NamedTuple):
    """there -> keeper: begins each conversation; a lease counts from before. `leave`: it moves the job on, and asks to
    be let go."""

    ready: bool
    leave: bool = False


class Grant(NamedTuple):
    """keeper -> there: the right to train, its length and margin; `lease_s` None: for good."""

    token: int = 0
    lease_s: float | None = None
    margin_s: float | None = None
    step: int = 0
    """At the hand-over."""
    back: bool = False
    """The job is here again: what is there is to end."""
    recall: str = ""
    """Why nothing is granted any more: it is to end there, and then goes on here."""
    ping: bool = False


class HoldAnswer(NamedTuple):
    """there -> keeper: what follows from a grant; `error`: nothing has been done, `refused`: nor will it be."""

    ok: bool = False
    error: str = ""
    refused: bool = False
    lives: bool = True
    """Its command runs there, or waits for an hour that is known."""
    back: bool = False
    """It has failed before its first step there."""
    left: bool = False
    """It has been recalled, and nothing of it runs there any more."""
    own: bool = False
    """It is not this keeper's to grant any more."""
    over: dict[str, Any] | None = None
    """How it has ended there, as exit.json has it."""
