"""Messages between keeper and supervisor: JSON, one object per line, its kind under "t".

Either end may be of another version: unknown kinds and fields are ignored, absent fields have defaults, and an order
with an invalid value is ignored. Standard library only, like the keeper.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

CommandState = Literal["waiting", "running", "unloaded", "exited"]


@dataclass(frozen=True, slots=True)
class Beat:
    """Heartbeat of the supervisor."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A child that is not running starts at `until` (epoch seconds of the machine; None: now)."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class Freeze:
    """Stop the child's process group by signal for `lease_s`, or renew that lease."""

    lease_s: float


@dataclass(frozen=True, slots=True)
class Thaw:
    """Continue the process group."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Run the stop order; `now`: one second between its signals instead of thirty."""

    now: bool = False


@dataclass(frozen=True, slots=True)
class Last:
    """Do not resume the command after its next exit, resume marker or not, for the reason `why`; '' revokes that."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Retry:
    """Restart a failed resume without its checkpoint; with `on` false, revoke that."""

    on: bool = True


@dataclass(frozen=True, slots=True)
class FallBack:
    """Restart a failed resume from an earlier checkpoint, if there is one; with `on` false, revoke that."""

    on: bool = True


@dataclass(frozen=True, slots=True)
class EndStart:
    """End the running process: a try, or one to be restarted without its checkpoint."""


@dataclass(frozen=True, slots=True)
class RelayedSignal:
    """run -> keeper: `carbontui run` received a signal from process `pid` (0: the kernel)."""

    number: int
    pid: int = 0


@dataclass(frozen=True, slots=True)
class AccountsClosed:
    """The accounts are closed: the keeper may exit."""


Order = Beat | Hold | Freeze | Thaw | Stop | Last | Retry | FallBack | EndStart | RelayedSignal | AccountsClosed

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
    "done": AccountsClosed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class ChildFacts:
    """keeper -> supervisor, at every change and to every new supervisor: the state of the command."""

    state: CommandState
    pid: int | None = None
    start_time: int | None = None
    """Field 22 of /proc/<pid>/stat."""
    starts: int = 0
    hold_until: float | None = None
    """Epoch seconds at which a child that is not running starts."""
    stopping: bool = False
    """A stop was requested."""
    frozen: bool = False
    freeze_why: str = ""
    """Why it was not stopped by signal although requested."""
    exit: dict[str, Any] | None = None
    """The contents of exit.json."""
    keeper: int | None = None
    """The keeper's pid."""
    retry: bool = False
    """A failed resume is restarted."""
    retried: str = ""
    """How the last restarted resume failed: exit code 1, signal 9, no step."""
    fall_back: bool = False
    """A failed resume is restarted from an earlier checkpoint, if there is one."""
    fell_back: str = ""
    """How the last resume restarted that way failed."""
    trying: bool = False
    """The running process is a try: the real start is still to come."""


def encode(message: Order | ChildFacts) -> bytes:
    """One line, newline included."""
    kind = "child" if isinstance(message, ChildFacts) else _NAMES[type(message)]
    return json.dumps({"t": kind, **asdict(message)}).encode() + b"\n"


def decode_order(line: bytes) -> Order | None:
    """An order of the supervisor; None for a line that this version does not understand."""
    found = _object(line)
    kind = _KINDS.get(str(found.get("t")))
    if kind is None:
        return None
    try:
        order = kind(**{name: found[name] for name in kind.__dataclass_fields__ if name in found})
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
    """The child's state from the keeper; None for any other line."""
    found = _object(line)
    if found.get("t") != "child" or found.get("state") not in get_args(CommandState):
        return None
    return ChildFacts(**{name: found[name] for name in ChildFacts.__dataclass_fields__ if name in found})


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
