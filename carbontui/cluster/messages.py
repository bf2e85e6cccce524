"""The wire between a supervisor and the agent of another node: lines over that agent's standard input and output.

What the power agent and its handle say to each other (`carbontui.power.messages`) goes as it is; beside it the
connections to the node's job.sock, a line at a time, numbered by the node. Level-triggered: a lost wire loses nothing
that is not said again.
"""

from __future__ import annotations

from msgspec import Struct

from carbontui import untrusted
from carbontui.power.messages import AgentLine, Bye, Done, Gone, Poke, Report, Wish

LINE_MAX = 4 * 1024 * 1024
"""A viewer's line of at most 1 MiB, quoted."""
BEAT_S = 1.0
DEAF_S = 20.0
"""A node that hears nothing for this long leaves: the lease of a pause (15 s) is over, its limits are restored."""


class Up(Struct, tag_field="t", tag="up", frozen=True):
    """node -> supervisor, at its start and every BEAT_S: it is there. `host` is what its processes call it."""

    version: str
    host: str
    pid: int


class Open(Struct, tag_field="t", tag="open", frozen=True):
    """node -> supervisor: a process has connected to the node's job.sock, checked to be of this user."""

    c: int


class Line(Struct, tag_field="t", tag="line", frozen=True):
    """Either way: a line of connection `c`, without its end."""

    c: int
    text: str


class Shut(Struct, tag_field="t", tag="shut", frozen=True):
    """Either way: connection `c` is over."""

    c: int


ToNode = Wish | Poke | Bye | Line | Shut
FromNode = Up | Open | Line | Shut | Report | Done | Gone | AgentLine


def decode_to_node(line: bytes) -> ToNode:
    """Raises ValueError for anything else."""
    return untrusted.decode(line, ToNode)  # type: ignore[arg-type]


def decode_from_node(line: bytes) -> FromNode:
    """Raises ValueError for anything else."""
    return untrusted.decode(line, FromNode)  # type: ignore[arg-type]
