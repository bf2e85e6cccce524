"""Messages between keeper and supervisor: JSON, one object per line, its kind under "t".

Named tuples, not dataclasses: those would load `inspect` into the smallest of our processes. The kind is a field, so
that two messages of different kinds are never equal.

Either end may be of another version: unknown kinds and fields are ignored, absent fields have defaults, and an order
with an invalid value is ignored. Standard library only, like the keeper.
"""

import json
from typing import Any, Literal, NamedTuple, get_args

from carbontui.job.terms import records

CommandState = Literal["waiting", "running", "unloaded", "exited"]


class Beat(NamedTuple):
    """Heartbeat of the supervisor."""

    t: str = "beat"


class Hold(NamedTuple):
    """A child that is not running starts at `until` (epoch seconds of the machine; None: now)."""

    until: float | None = None
    t: str = "hold"


class Freeze(NamedTuple):
    """Stop the child's process group by signal for `lease_s`, or renew that lease."""

    lease_s: float
    t: str = "freeze"


class Thaw(NamedTuple):
    """Continue the process group."""

    t: str = "thaw"


class Stop(NamedTuple):
    """Run the stop order; `now`: one second between its signals instead of thirty; `why`: a used-up budget."""

    now: bool = False
    why: str = ""
    t: str = "stop"


class Leave(NamedTuple):
    """End the job, whose command was never started, for its scheduler to start it again at `until` (epoch seconds)."""

    until: float
    t: str = "leave"


class Last(NamedTuple):
    """Do not resume the command after its next exit, resume marker or not, for the reason `why`; '' revokes that."""

    why: str = ""
    t: str = "last"


class Retry(NamedTuple):
    """Restart a failed resume without its checkpoint; with `on` false, revoke that."""

    on: bool = True
    t: str = "retry"


class FallBack(NamedTuple):
    """Restart a failed resume from an earlier checkpoint, if there is one; with `on` false, revoke that."""

    on: bool = True
    t: str = "fall_back"


class EndStart(NamedTuple):
    """End the running process: a try, or one to be restarted without its checkpoint."""

    t: str = "end_start"


class RelayedSignal(NamedTuple):
    """run -> keeper: `carbontui run` received a signal from process `pid` (0: the kernel)."""

    number: int
    pid: int = 0
    t: str = "signal"


class MoveTo(NamedTuple):
    """For `lease_s` from now the job is being moved to another machine, `to`, where `call` reaches it (`agent`: its
    SSH_AUTH_SOCK); '' gives that up. `unload`: the child stays unloaded and its supervisor away; `release`: the place
    before is to let it go, and not to take it back."""

    to: str = ""
    call: tuple[str, ...] = ()
    agent: str = ""
    unload: bool = False
    release: bool = False
    lease_s: float = 15.0
    t: str = "move"


class HandOver(NamedTuple):
    """The job is that machine's now; `leased`: as long as this keeper renews leases of `lease_s`. It was here, in this
    grid zone, from `since` to `until` (epoch seconds)."""

    zone: str = ""
    since: float = 0.0
    until: float = 0.0
    step: int = 0
    leased: bool = True
    lease_s: float = 600.0
    start_s: float = 0.0
    """How long a start takes."""
    starts: int | None = None
    """How often the command had been started when what has been copied was written."""
    t: str = "hand_over"


class Renewed(NamedTuple):
    """The right to train here lasts until `ends` (the clock of boots; None: for good): a lease of `lease_s`, with its
    margin."""

    token: int
    ends: float | None = None
    lease_s: float | None = None
    margin_s: float | None = None
    t: str = "renewed"


class Left(NamedTuple):
    """The job has another place, for the reason `why`: the keeper ends it here, or makes room for its return."""

    why: str = ""
    t: str = "left"


class AccountsClosed(NamedTuple):
    """The accounts are closed: the keeper may exit."""

    t: str = "done"


OfPlaces = MoveTo | HandOver | Renewed | Left
Order = (
    Beat | Hold | Freeze | Thaw | Stop | Leave | Last | Retry | FallBack | EndStart | RelayedSignal | AccountsClosed
) | OfPlaces


class _Kind(NamedTuple):
    t: str


_KINDS: dict[str, type[Order]] = {kind._field_defaults["t"]: kind for kind in get_args(Order)}


class ChildFacts(NamedTuple):
    """keeper -> supervisor, at every change and to every new supervisor: the state of the command."""

    state: CommandState
    pid: int | None = None
    start_time: int | None = None
    """Field 22 of /proc/<pid>/stat."""
    starts: int = 0
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
    moving: str = ""
    """The machine it is unloaded for, to move there; '' if for none."""
    release: bool = False
    """The place before is asked to let it go."""
    ready: bool = False
    """For that it is unloaded, and its supervisor has left."""
    reached: str = ""
    """Whether this keeper has reached that machine: `yes`, or why not; '' before it has tried."""
    moved_to: str = ""
    """The machine that has the job; '' while it is here."""
    lease_ends: float | None = None
    """When the right to train here ends (the clock of boots); None: it does not."""
    lease_s: float = 600.0
    margin_s: float = 60.0
    """The terms of that lease: the margin is how long before its end the command is to be unloaded."""
    t: str = "child"


def encode(message: Order | ChildFacts) -> bytes:
    """One line, newline included."""
    return json.dumps(message._asdict()).encode() + b"\n"


def decode_order(line: bytes) -> Order | None:
    """An order of the supervisor; None for a line that this version does not understand."""
    try:
        kind = _KINDS[records.decode(line, _Kind).t]
        order = records.decode(line, kind)
    except (ValueError, KeyError):
        return None
    return order if (getattr(order, "lease_s", None) or 0.0) >= 0 else None


def decode_child(line: bytes) -> ChildFacts | None:
    """The child's state from the keeper; None for any other line."""
    try:
        facts = records.decode(line, ChildFacts)
    except ValueError:
        return None
    return facts if facts.t == "child" and facts.state in get_args(CommandState) else None
