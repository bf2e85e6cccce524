"""This process at its supervisor: its gate, and its link from the first step to the end."""

import atexit
import os
import socket
import sys
from typing import Any, List, Optional, Tuple

from carbontui.client import device, marker
from carbontui.client.detection.places import watch
from carbontui.client.detection.report import reporter
from carbontui.client.pausing import late
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.link import Link

GOODBYE_S = 0.5
"""The longest delay at the end of a training by a supervisor that has stopped reading."""
gate = Gate()
link: Optional[Link] = None
_ranks: List[Any] = []


def _env_count(name: str, default: int = 0) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else default


def _first_step() -> None:
    """Start the link, if a supervisor's socket is named. Runs once, in the training thread."""
    global link
    path = os.environ.get("CARBONTUI_SOCKET")
    if not path or os.name != "posix":
        gate.enabled = False
        return
    from carbontui.client.version import __version__

    if _unloaded_before():
        sys.stderr.write(
            "carbontui: an earlier part of this command was unloaded; this one begins when that has ended\n"
        )
        gate.depart()
    rank, world = rank_of_world()
    gate.facts.setdefault("start_step", _env_count("CARBONTUI_START_STEP"))
    hello = {
        "version": __version__,
        "pid": os.getpid(),
        "start_time": device.start_time(),
        "host": socket.gethostname(),
        "rank": rank,
        "world": max(1, world),
        "restart": _env_count("TORCHELASTIC_RESTART_COUNT"),
    }
    first, link = link is None, Link(gate, path, hello)
    link.devices = device.devices()
    gate.quiesce, gate.capturing = device.quiesce, device.capturing
    gate.on_leave = _flush
    gate.on_boundary = _distribute
    _distribute()
    if first:
        atexit.register(_goodbye, os.getpid(), os.getppid())

        def exit_now(status: int, leave: Any = os._exit) -> None:
            _flush()
            leave(status)

        os._exit = exit_now  # type: ignore[assignment]  # so ends a process of multiprocessing: nothing at exit is run
    link.guard()
    if "1" in (os.environ.get("CARBONTUI_TRY"), os.environ.get("CARBONTUI_ESTIMATE")):
        from carbontui.client.pausing import signals

        signals.arm(gate)
    link.start()


def _flush() -> None:
    if link is not None:
        link.flush(GOODBYE_S)


def join() -> None:
    """In the middle of a script: its steps are counted from here on, for the supervisor that the environment names."""
    watch.restart()
    reporter.__init__()  # type: ignore[misc]
    gate.restart()
    _first_step()


def leave() -> None:
    """The job ends, the script goes on: from here on every step is a no-op again."""
    if link is not None:
        link.close()
    gate.restart()
    gate.enabled = False


def _distribute() -> None:
    """A rank of a distributed job never stops alone: from now on all ranks agree first.

    Checked again before any want is obeyed, for process groups that come up late or without torchrun's variables.
    """
    if link is None or _ranks:
        return
    rank, world = rank_of_world()
    if world > 1:
        _ranks.append(late("ranks").Ranks(gate, rank, world, link.speed))
        _ranks[0].start()


def rank_of_world() -> Tuple[int, int]:
    dist = device.distributed()
    return (dist.get_rank(), dist.get_world_size()) if dist else (_env_count("RANK"), _env_count("WORLD_SIZE", 1))


def _unloaded_before() -> bool:
    """A shell takes exit code 0 as completion, and would start the next training on a half-finished one.

    The marker detects this: the keeper removes it before it restarts the command. Ranks on other hosts do not see it,
    and all must exit together.
    """
    here = _env_count("LOCAL_WORLD_SIZE", 1) == _env_count("WORLD_SIZE", 1)
    return here and os.path.exists(os.environ.get("CARBONTUI_MARKER", ""))


def _goodbye(pid: int, parent: int) -> None:
    """Report the last steps; stop the ranks thread, which must not outlive the interpreter."""
    if link is not None and pid == os.getpid():
        _flush()
        for ranks in _ranks:
            ranks.stop()
        marker.leave_exit_code(parent, device.start_time())


def _forked() -> None:
    """In the child of a fork: drop the parent's link. Before the first step there is nothing to undo."""
    if link is not None:
        gate.enabled = False
        link.abandon()
    gate.cond.release()


gate.on_first = _first_step
if hasattr(os, "register_at_fork"):
    # the lock is held across the fork, so that the child never finds it held by a thread that does not exist there
    os.register_at_fork(
        before=lambda: gate.cond.acquire(), after_in_parent=lambda: gate.cond.release(), after_in_child=_forked
    )
