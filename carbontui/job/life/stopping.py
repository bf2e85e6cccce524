"""Stopping a job whose supervisor does not answer: through its keeper, or, if that is gone too, directly."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from carbontui.job.files import store
from carbontui.job.keeper import job_files
from carbontui.job.keeper.messages import ChildFacts, OfPlaces, RelayedSignal, Stop, decode_child, encode
from carbontui.job.keeper.stop import StopOrder
from carbontui.system import proc

ANSWER_S = 3.0
MOST_B = 65536
MOVED_S = 20.0
"""A hand-over that has not been written by then is void: the job has not been held back any more."""
KEEPER_S = 8.0
"""A keeper rebinds a socket removed by a cleaner sooner than this."""


def by_keeper(job: store.Job, *, now: bool) -> bool:
    """Give the keeper the stop order; False if no keeper is alive. An older keeper takes it by signal."""
    due = time.monotonic() + KEEPER_S
    while job.kept:
        if job.stop_socket is None and (pid := job.alive("keeper")):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1 if now else signal.SIGTERM)
            return True
        if tell_keeper(job, Stop(now)):
            return True
        if time.monotonic() >= due:
            return False
        time.sleep(0.1)
    return False


def tell_keeper(job: store.Job, order: Stop | RelayedSignal | OfPlaces) -> bool:
    """Whether the keeper has taken an order."""
    return _said(job, encode(order)) is not None


def facts(job: store.Job, order: OfPlaces | None = None) -> ChildFacts | None:
    """The command's state as its keeper has it, after this order; None where it does not answer."""
    said = _said(job, b"\n" if order is None else encode(order))
    return None if said is None else decode_child(said)


def carry_out(job: store.Job, order: OfPlaces, done: Callable[[], bool]) -> bool:
    """Whether what the keeper was told is done; after MOVED_S it will not be."""
    return tell_keeper(job, order) and proc.awaited(done, MOVED_S)


def _said(job: store.Job, line: bytes) -> bytes | None:
    """What the keeper answers to a line; None without an answer."""
    if job.stop_socket is None:
        return None
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as keeper:
        keeper.settimeout(ANSWER_S)
        keeper.connect(os.fspath(job.stop_socket))
        keeper.sendall(line)
        return keeper.recv(MOST_B) or None
    return None


def stopped(group: int, *, now: bool) -> Iterator[None]:
    """Runs the stop order on a process group, a part at every step, until the group is gone or cannot be ended."""
    order = StopOrder(lambda _: None)
    order.begin(time.monotonic(), hurry=now)
    while proc.group_alive(group) and (order.under_way or time.monotonic() < order.next):
        order.advance(group, time.monotonic())
        yield


def by_ourselves(job: store.Job, *, now: bool) -> bool:
    """Run the stop order to completion on the process named in job.json; False if it is not running."""
    group = job.alive("child")
    if group is None:
        return False
    for _ in stopped(group, now=now):
        time.sleep(0.05)
    if proc.group_alive(group):
        return False
    if not job.kept and job.exit is None:
        close(job, job_files.exit_record(None, None, stopped=True))
    return True


def close(job: store.Job, record: dict[str, Any]) -> None:
    """Write how a job without a keeper has ended."""
    with contextlib.suppress(OSError):
        job_files.write_exit(os.fspath(job.dir), record)
