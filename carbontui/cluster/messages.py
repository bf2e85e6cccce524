"""The wire between a supervisor and the agent of another node: lines over that agent's standard input and output.

Messages between the power agent and its handle (`carbontui.power.messages`) pass unchanged, together with the
connections to the node's job.sock, line by line, numbered by the node. Level-triggered: a lost wire loses nothing
that is not repeated.
"""

from __future__ import annotations

from msgspec import Struct

from carbontui import untrusted
from carbontui.power.messages import AgentLine, Bye, Done, Gone, Poke, Report, Wish

LINE_MAX = 4 * 1024 * 1024
"""A viewer's line of at most 1 MiB, quoted."""
BEAT_S = 1.0
DEAF_S = 20.0
"""A node that hears nothing for this long exits: the lease of a pause (15 s) has expired, its limits are restored."""


class Up(Struct, tag_field="t", tag="up", frozen=True):
    """node -> supervisor, at its start and every BEAT_S: heartbeat. `host` is the host name its processes use."""

    version: str
    host: str
    pid: int


class Open(Struct, tag_field="t", tag="open", frozen=True):
    """node -> supervisor: a process of this user (checked) has connected to the node's job.sock."""

    c: int


class Line(Struct, tag_field="t", tag="line", frozen=True):
    """Either way: a line of connection `c`, without its newline."""

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
