"""The command as seen from outside, and the classification of its end, for the supervisor and for readers of disk."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from carbontui import protocol
from carbontui.job.terms.clock import Clock
from carbontui.protocol import Why, statement


@dataclass(frozen=True, slots=True)
class Child:
    """The command, as reported by the keeper (or, without one, by the process table)."""

    state: Literal["waiting", "running", "unloaded", "exited", "vanished"]
    age_s: float = 0.0
    code: int | None = None
    signal: int | None = None
    ended_wall_s: float | None = None
    """When it ended, by the machine's clock; None if not observed."""
    stopped: bool = False
    unloaded: bool = False
    was: str = "running"
    """The last known state of a vanished child."""
    frozen: bool = False
    """Its process group is stopped (SIGSTOP)."""
    retry: bool = False
    """The keeper restarts a failed resume."""
    retried: str = ""
    """How the last restarted resume failed."""
    fall_back: bool = False
    """The keeper restarts a failed resume from an earlier checkpoint, if there is one."""
    fell_back: str = ""
    """How the last resume restarted that way failed."""
    trying: bool = False
    """This start is a try: the real start is still to come."""
    budget: str = ""
    """The allowance that ended it, as text; '' if none did."""
    ended_by: str = ""
    """Who sent the signal that ended it before or between its starts; '' if none did."""
    interrupted: bool = False
    """That allowance did not wait for a checkpoint."""
    freeze_why: str = ""
    """Why the keeper did not freeze it although asked to."""
    out_of_memory: bool = False
    """The kernel has killed it for its memory."""
    memory_limit_b: int = 0
    """Of its cgroup; 0: none is known."""
    moving: str = ""
    """The machine it is being moved to; '' if to none."""
    moved: str = ""
    """The machine that had it when it ended; '' if this one."""
    lease_left_s: float | None = None
    """How long its last place leaves it to this one, less the margin; None: for good."""
    unload_most_s: float = 0.0
    """The longest unload that fits into that lease."""

    @property
    def over(self) -> bool:
        """It has ended for good; an unloaded one has not."""
        return self.state in ("exited", "vanished")

    def lease_unloads(self, takes_s: float) -> bool:
        """Whether an unload that takes so long must begin, to end before the lease. One that the lease is too short for
        does not begin while it is renewed: nothing would ever train."""
        return self.lease_left_s is not None and self.lease_left_s <= min(takes_s, self.unload_most_s)

    def ended_s(self, clock: Clock) -> float | None:
        """When it ended, on the job's clock; None if not observed."""
        return None if self.ended_wall_s is None else clock.at_wall(self.ended_wall_s)


class Ending(NamedTuple):
    """The state a job ends in, and why."""

    state: protocol.State
    why: Why


LIMIT_S = 2.0
"""A scheduler that states whole seconds may end a job this much before its limit."""
STARTING = Why("starting", statement("starting"))
ENDED = (
    *("code", "signal", "stopped", "unloaded", "budget", "ended_by", "interrupted", "moved"),
    *("out_of_memory", "memory_limit_b"),
)
"""How a command ended, by the same names in an exit record."""
LAST_STATES = frozenset({"running", "waiting", "unloaded"})
"""The last known states of a vanished child that are told apart."""


def exited(record: Mapping[str, Any]) -> Child:
    """The child of the keeper's exit record (exit.json)."""
    return Child("exited", ended_wall_s=record.get("at"), **{name: record[name] for name in ENDED if name in record})


def lost(was: str, command: str = "") -> Why:
    """Why a job is lost, by its last known state; `command` starts it again, '' if none can."""
    was = was if was in LAST_STATES else "running"
    said = statement(f"restartable_{was}", command=command) if command else statement(f"lost_{was}")
    return Why("vanished", said)


def ending(child: Child, ends_s: float | None = None) -> Ending:
    """The final state and reason for a child that has exited or vanished. `ends_s`: when its scheduler was to end it,
    by the machine's clock."""
    ended_s, signalled = child.ended_wall_s, child.signal is not None or bool(child.ended_by)
    if ends_s is not None and ended_s is not None and ended_s >= ends_s - LIMIT_S and signalled and not child.budget:
        return Ending("stopped", Why("signalled", statement("time_limit_over", ends_s=ends_s)))
    if child.state == "vanished":
        if child.stopped:
            return Ending("stopped", Why("stop", statement("stopped_unseen")))
        return Ending("lost", lost(child.was))
    if child.unloaded:
        return Ending("unloaded", Why("exited", statement("unloaded_for_scheduler")))
    if child.moved:
        known = child.code is not None or child.signal is not None
        there = ending(replace(child, moved="")) if known else None
        said = statement("moved_away", host=child.moved, end=() if there is None else (there.why.said,))
        return Ending("stopped" if there is None else there.state, Why("moved", said))
    if child.budget:
        said = statement("interrupted_by_budget" if child.interrupted else "stopped_by_budget", budget=child.budget)
        return Ending("stopped", Why("budget_stop", said))
    if child.ended_by:
        slurm = child.ended_by == "slurmstepd"
        said = statement("stopped_by_slurm") if slurm else statement("stopped_by_signal", by=child.ended_by)
        return Ending("stopped", Why("signalled", said))
    if child.stopped:
        return Ending("stopped", Why("stop", statement("stopped")))
    if child.out_of_memory:
        return Ending("failed", Why("signalled", statement("out_of_memory", limit_b=child.memory_limit_b or None)))
    if child.signal is not None:
        return Ending("failed", Why("signalled", statement("signalled", signal=child.signal)))
    if child.code is None:
        return Ending("lost", Why("vanished", statement("ended_unknown")))
    state: protocol.State = "done" if child.code == 0 else "failed"
    return Ending(state, Why("exited", statement("exited", exit_code=child.code)))
