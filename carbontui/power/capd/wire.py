"""Messages on capd's socket: JSON lines, one answer to each request, in order.

The caller is identified only by the kernel (SO_PEERCRED). Nothing in a request is a path, a command or a process; every
field is bounded before it is used.
"""

import os
import socket
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from carbontui.power.messages import encode
from carbontui.system import untrusted
from carbontui.system.local_socket import connect as connect

SOCKET = Path("/run/carbontui/capd.sock")
LINE_MAX = 4096
SILENCE_S = 10.0
"""A caller that is silent for longer has its limits restored."""
BEAT_S = 3.0

SOON = 1003
"""The board's limit was written a moment ago: ask again."""

Uuid = Annotated[str, Meta(max_length=96)]


class Limit(Struct, tag_field="t", tag="limit", frozen=True, forbid_unknown_fields=True):
    """Lower a board's limit to this many milliwatts; the original limit, or more, restores it."""

    uuid: Uuid
    limit_mw: Annotated[int, Meta(gt=0, le=10_000_000)]


class CapdBeat(Struct, tag_field="t", tag="beat", frozen=True, forbid_unknown_fields=True):
    """Heartbeat of the caller."""


class CapdAnswer(Struct, frozen=True, omit_defaults=True):
    """`code` is 0, an NVML error or one of the codes above; `why` is text for the user."""

    ok: bool = True
    code: int = 0
    why: str = ""


CapdRequest = Limit | CapdBeat


def socket_path() -> Path:
    """Where capd listens on this machine."""
    return Path(os.environ.get("CARBONTUI_CAPD") or SOCKET)


def ask(link: socket.socket, request: CapdRequest) -> CapdAnswer:
    """The answer to one request. Raises OSError, ValueError."""
    link.sendall(encode(request))
    with link.makefile("rb") as answers:
        line = answers.readline()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("capd hung up")
    return untrusted.decode(line, CapdAnswer)
