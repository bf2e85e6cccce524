"""The public functions of a training script; each a no-op without a supervisor."""

import contextlib
import math
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from carbontui.client import process
from carbontui.client.process import gate as gate

_METRICS_MAX = 32
_COUNT_MAX = 2**53
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
    if process.link is not None:
        process.link.guard()


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
