"""What Slurm says of its jobs and nodes, in the words of our own jobs."""

from __future__ import annotations

from carbontui.protocol import State
from carbontui.text import figures

WAITS = {
    "Resources": "waits for free nodes",
    "Priority": "waits behind others",
    "Dependency": "waits for another job",
    "JobHeldUser": "held by its owner",
    "JobHeldAdmin": "held by an administrator",
    "Licenses": "waits for watts or licences",
    "ReqNodeNotAvail": "its nodes are not available",
    "Reservation": "waits for its reservation",
}
RUNNING: dict[str, tuple[State, str]] = {
    "RUNNING": ("running", "running"),
    "COMPLETING": ("running", "ending"),
    "CONFIGURING": ("starting", "starting"),
    "SUSPENDED": ("paused", "suspended by Slurm"),
}
NODES: dict[str, tuple[State, str]] = {
    "idle": ("waiting", "free"),
    "mixed": ("running", "partly in use"),
    "allocated": ("running", "in use"),
    "completing": ("running", "ending a job"),
    "drained": ("stopped", "drained"),
    "draining": ("stopped", "draining"),
    "down": ("failed", "down"),
}


def running(state: str) -> tuple[State, str]:
    """Of a job that has started, by squeue's state."""
    return RUNNING.get(state, ("running", state.lower()))


def waiting(reason: str, begin_s: float | None, now_s: float) -> tuple[State, str]:
    """Of one that has not, by squeue's reason; `begin_s` is when it is to start."""
    if reason == "BeginTime" and begin_s is not None:
        return "waiting", f"begins {figures.clock(begin_s, now_s)}"
    return "waiting", WAITS.get(reason, f"waits: {reason}")


def node(state: str) -> tuple[State, str]:
    """Of a node, by sinfo's state, whose last character is a flag."""
    kind, words = NODES.get(state.rstrip("*~#!%$@^-+"), ("waiting", state))
    return ("lost", f"{words}, does not answer") if state.endswith("*") else (kind, words)
