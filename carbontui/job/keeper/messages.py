"""What keeper and supervisor tell each other: JSON, one object a line, its kind under "t".

Either end may be of another version: unknown kinds and fields are ignored, absent ones have defaults, and an order with
a value that cannot be is no order. Standard library only, like the keeper.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal, NamedTuple, get_args

CommandState = Literal["waiting", "running", "unloaded", "exited"]


class Beat(NamedTuple):
    """The supervisor lives."""


class Hold(NamedTuple):
    """A child that is not running starts at `until` (epoch seconds of the machine; None: now)."""

    until: float | None = None


class Freeze(NamedTuple):
    """Stop the child's process group by signal, or renew that for `lease_s`."""

    lease_s: float


class Thaw(NamedTuple):
    """Continue the process group."""


class Stop(NamedTuple):
    """Run the stop order; `now`: one second between its signals instead of thirty."""

    now: bool = False


class Last(NamedTuple):
    """The command's next end is its last, resume marker or not, for the reason `why`; '' takes that back."""

    why: str = ""


class Retry(NamedTuple):
    """A start that resumes and fails is begun again without its checkpoint; or, not `on`, that is taken back."""

    on: bool = True


class FallBack(NamedTuple):
    """A start that resumes and fails is begun again from an earlier checkpoint, where there is one; or not any more."""

    on: bool = True


class EndStart(NamedTuple):
    """End the running start: a try, or one that is to be begun again without its checkpoint."""


class RelayedSignal(NamedTuple):
    """run -> keeper: a signal came to `carbontui run` from process `pid` (0: the kernel)."""

    number: int
    pid: int = 0


class BooksClosed(NamedTuple):
    """The books are closed: the keeper may leave."""


Order = Beat | Hold | Freeze | Thaw | Stop | Last | Retry | FallBack | EndStart | RelayedSignal | BooksClosed

_KINDS: dict[str, type[Order]] = {
    "beat": Beat,
    "hold": Hold,
    "freeze": Freeze,
    "thaw": Thaw,
    "stop": Stop,
    "last": Last,
    "retry": Retry,
    "fall_back": FallBack,
    "end_start": EndStart,
    "signal": RelayedSignal,
    "done": BooksClosed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class ChildFacts(NamedTuple):
    """keeper -> supervisor, at every change and to every new supervisor: how the command is."""

    state: CommandState
    pid: int | None = None
    start_time: int | None = None
    """Field 22 of /proc/<pid>/stat."""
    starts: int = 0
    hold_until: float | None = None
    """Epoch seconds at which a child that is not running starts."""
    stopping: bool = False
    """A person asked for its end."""
    frozen: bool = False
    freeze_why: str = ""
    """Why it was not stopped by signal although that was asked."""
    exit: dict[str, Any] | None = None
    """What exit.json holds."""
    keeper: int | None = None
    """The keeper's pid."""
    retry: bool = False
    """A resume that fails is begun again."""
    retried: str = ""
    """How the last one failed that was: exit code 1, signal 9, no step."""
    fall_back: bool = False
    """A resume that fails is begun again from an earlier checkpoint, where there is one."""
    fell_back: str = ""
    """How the last one failed that was."""
    trying: bool = False
    """The running start is a try: the start for good is still to come."""


def encode(message: Order | ChildFacts) -> bytes:
    """One line, newline included."""
    kind = "child" if isinstance(message, ChildFacts) else _NAMES[type(message)]
    return json.dumps({"t": kind, **message._asdict()}).encode() + b"\n"


def decode_order(line: bytes) -> Order | None:
    """What the supervisor orders; None for a line that is no order of this version."""
    found = _object(line)
    kind = _KINDS.get(str(found.get("t")))
    if kind is None:
        return None
    try:
        order = kind(**{name: found[name] for name in kind._fields if name in found})
    except TypeError:
        return None
    if isinstance(order, Hold):
        return order if order.until is None or _finite(order.until) else None
    if isinstance(order, Freeze):
        return order if _finite(order.lease_s) and order.lease_s >= 0 else None
    if isinstance(order, Last):
        return order if isinstance(order.why, str) else None
    if isinstance(order, Retry | FallBack):
        return order if isinstance(order.on, bool) else None
    if isinstance(order, RelayedSignal):
        return order if type(order.number) is int and type(order.pid) is int else None
    return order


def decode_child(line: bytes) -> ChildFacts | None:
    """What the keeper tells of the child; None for any other line."""
    found = _object(line)
    if found.get("t") != "child" or found.get("state") not in get_args(CommandState):
        return None
    return ChildFacts(**{name: found[name] for name in ChildFacts._fields if name in found})


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
