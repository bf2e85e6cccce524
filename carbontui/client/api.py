"""The public functions of a training script; each a no-op without a supervisor."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from carbontui.client import device, marker
from carbontui.client.detection import guess
from carbontui.client.detection.places import watch
from carbontui.client.pausing import signals
from carbontui.client.pausing.gate import Gate
from carbontui.client.pausing.link import Link

_METRICS_MAX = 32
_COUNT_MAX = 2**53
GOODBYE_S = 0.5
"""The longest delay at the end of a training by a supervisor that has stopped reading."""
gate = Gate()
_link: Optional[Link] = None
_ranks: List[Any] = []
_ignored: List[str] = []
"""What report() was given and does not know."""

if TYPE_CHECKING:

    def step(n: int = 1, /) -> None:
        """Report that `n` optimizer steps are done; call it once per step, at a point where the loop may pause.

        Costs about as much as two empty calls. Blocks while the supervisor pauses the training, and raises
        SystemExit(0) if an unload was requested and a checkpoint has been written. From its first call on the
        steps of the optimizer hook are no longer counted.
        """

else:
    step = gate.explicit.step


def report(
    *,
    loss: Optional[float] = None,
    epoch: Optional[float] = None,
    total: Optional[int] = None,
    metrics: Optional[Mapping[str, float]] = None,
    **unknown: Any,
) -> None:
    """Report values that only the script knows; sent about once a second, the latest values win.

    loss: of the last step; epoch: may be fractional; total: the total steps of this run (from step 0, also in a resumed
    run), > 0; metrics: up to 32 named numbers. A loss that is not finite is shown as that; of others such a value is
    ignored, and names of a later version (stderr says so once); nothing is raised. A tensor is read with float(), which
    waits for its device.
    """
    if unknown and not _ignored:
        _ignored.extend(unknown)
        from carbontui.client.version import __version__

        with contextlib.suppress(Exception):  # no stderr
            sys.stderr.write(f"carbontui: report() of version {__version__} ignores {', '.join(unknown)}\n")
    told: Dict[str, Any] = {"epoch": _number(epoch)}
    value, whole = _float(loss), _number(total)
    told["total"] = int(whole) if whole is not None and 0 < whole <= _COUNT_MAX else None
    if metrics is not None:
        with contextlib.suppress(Exception):  # no exception here may end a training
            pairs = ((str(key)[:64], _number(value)) for key, value in list(metrics.items())[:_METRICS_MAX])
            # a lone surrogate would invalidate the whole message for every reader of the wire
            told["metrics"] = {k.encode(errors="replace").decode(): v for k, v in pairs if v is not None}
    with gate.cond:
        gate.facts.update((key, value) for key, value in told.items() if value is not None)
        if value is not None:
            fine = math.isfinite(value)
            gate.facts.update(loss=value if fine else None, loss_word=None if fine else _WORDS.get(value, "NaN"))


def on_checkpoint(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Register the function that writes a checkpoint; usable as a decorator.

    It is called without arguments, in the training thread, at a boundary, before the process unloads or when a
    checkpoint is requested; on every rank of a distributed job. If it raises, training continues. Several are called
    in the order of their registration. When restarted, the command must resume from what it wrote.

    A script with a checkpoint function should call step() at the very end of the loop's body: the optimizer hook's
    boundary lies inside optimizer.step(), before a scheduler's or a scaler's own update.
    """
    with gate.cond:
        if fn not in gate.savers:
            gate.savers.append(fn)
    savers_changed()
    return fn


def savers_changed() -> None:
    """A checkpoint function was added or removed."""
    gate.on_change()
    if _link is not None:
        _link.guard()


def paused() -> bool:
    """True while the supervisor holds this process at a boundary (for other threads: the training thread waits)."""
    return gate.state == "paused"


def level() -> Optional[str]:
    """The level in force: "run", "duty", "pause" or "unload"; None without a supervisor, and until it has answered."""
    with contextlib.suppress(Exception):  # no thread may be started
        gate.meet()
    return gate.level()


def metrics() -> Dict[str, Any]:
    """The job's account as last sent by the supervisor, a few seconds old: the same numbers as `carbontui status`.

    power_w, energy_wall_kwh, energy_gpu_kwh, gco2_g, avoided_g, intensity_g_per_kwh, cost, currency, level, state,
    measured_at; unknown values are absent. Empty without a supervisor, and before its first message.
    """
    return dict(gate.figures)


_WORDS = {math.inf: "inf", -math.inf: "-inf"}


def _float(value: Any) -> Optional[float]:
    try:
        return float(value.detach() if hasattr(value, "detach") else value)  # torch warns of a loss with its graph
    except Exception:  # any class: a value may be anything, and warnings may be errors
        return None


def _number(value: Any) -> Optional[float]:
    number = _float(value)
    return number if number is not None and math.isfinite(number) else None


def _env_count(name: str, default: int = 0) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 16 else default


def _first_step() -> None:
    """Start the link, if a supervisor's socket is named. Runs once, in the training thread."""
    global _link
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
    first, _link = _link is None, Link(gate, path, hello)
    _link.devices = device.devices()
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
    _link.guard()
    signals.arm(gate)
    _link.start()


def _flush() -> None:
    if _link is not None:
        _link.flush(GOODBYE_S)


def join() -> None:
    """In the middle of a script: its steps are counted from here on, for the supervisor that the environment names."""
    watch.restart()
    guess.detector.__init__()  # type: ignore[misc]
    gate.restart()
    _first_step()


def leave() -> None:
    """The job ends, the script goes on: from here on every step is a no-op again."""
    if _link is not None:
        _link.close()
    gate.restart()
    gate.enabled = False


def _distribute() -> None:
    """A rank of a distributed job never stops alone: from now on all ranks agree first.

    Checked again before any want is obeyed, for process groups that come up late or without torchrun's variables.
    """
    if _link is None or _ranks:
        return
    rank, world = rank_of_world()
    if world > 1:
        from carbontui.client.pausing.ranks import Ranks

        _ranks.append(Ranks(gate, rank, world, _link.speed))
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
    if _link is not None and pid == os.getpid():
        _flush()
        for ranks in _ranks:
            ranks.stop()
        marker.leave_exit_code(parent, device.start_time())


def _forked() -> None:
    """In the child of a fork: drop the parent's link. Before the first step there is nothing to undo."""
    if _link is not None:
        gate.enabled = False
        _link.abandon()
    gate.cond.release()


gate.on_first = _first_step
if hasattr(os, "register_at_fork"):
    # the lock is held across the fork, so that the child never finds it held by a thread that does not exist there
    os.register_at_fork(
        before=lambda: gate.cond.acquire(), after_in_parent=lambda: gate.cond.release(), after_in_child=_forked
    )
