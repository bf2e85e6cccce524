"""What has happened since the screen was last open: the job's state at that time, kept beside its files."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from carbontui import paths, protocol, units
from carbontui.system import untrusted
from carbontui.text import figures, situation
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import ViewState

LEAST_S = 300.0
"""A shorter absence is not reported."""


class LastVisit(msgspec.Struct, frozen=True):
    """The job as it was when the screen was left."""

    at: str
    step: int = 0
    loss: float | None = None
    gco2_g: float | None = None
    avoided_g: float | None = None
    state: str = ""


def of(view_state: ViewState) -> LastVisit:
    status = view_state.status
    return LastVisit(
        units.iso(view_state.now_s),
        status.step,
        status.loss_value,
        status.gco2_g,
        status.avoided_g,
        status.state,
    )


def read(path: Path) -> LastVisit | None:
    """None where there was no earlier look, or the file cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return untrusted.decode(path.read_bytes(), LastVisit)
    return None


def write(path: Path, observe: LastVisit) -> None:
    """Best effort: a screen that cannot write the file goes on."""
    with contextlib.suppress(OSError):
        paths.write_whole(path, msgspec.json.encode(observe))


def summary(last: LastVisit, view_state: ViewState, events: tuple[protocol.Event, ...] = ()) -> str:
    """'away 6 h 10: step 1 204 to 7 182, stood still 5 h 40, loss 2.56 to 1.95, emitted 865 g; ada@pts/3 paused it'; ''
    after a short absence, or where nothing has happened."""
    try:
        then_s = units.from_iso(last.at)
    except ValueError:
        return ""
    away_s, status = view_state.now_s - then_s, view_state.status
    if away_s < LEAST_S:
        return ""
    parts = []
    if status.step > last.step:
        parts.append(f"step {state_text.count(last.step)} to {state_text.count(status.step)}")
    still_s = stood_still_s(events, then_s, view_state.now_s, last.state)
    if still_s >= 60:
        parts.append(f"stood still {figures.duration(still_s)}")
    if last.loss is not None and (now := situation.loss(status)) not in ("", f"{last.loss:.4g}"):
        parts.append(f"loss {last.loss:.4g} to {now}")
    if last.gco2_g is not None and status.gco2_g is not None:
        parts.append(f"emitted {figures.grams(status.gco2_g - last.gco2_g)}")
    if last.avoided_g is not None and status.avoided_g is not None:
        gained = status.avoided_g - last.avoided_g
        if abs(gained) >= figures.LEAST_G:
            parts.append(f"{'saved' if gained > 0 else 'behind by'} {figures.grams(abs(gained))}")
    if last.state != status.state and view_state.over:
        parts.append(f"now {status.state}")
    if not parts:
        return ""
    others = [one.text for one in events if one.by][-1:]
    return "; ".join([f"away {figures.duration(away_s)}: {', '.join(parts)}", *others])


def stood_still_s(events: tuple[protocol.Event, ...], from_s: float, to_s: float, state: str) -> float:
    """Seconds within [from_s, to_s) in which the job stood still, from its changes of state."""
    still, since, total = state in ("paused", "unloaded", "waiting"), from_s, 0.0
    for one in events:
        if one.kind != "state":
            continue
        at = min(max(units.from_iso(one.at), from_s), to_s)
        total += (at - since) * still
        still, since = one.state in ("paused", "unloaded", "waiting"), at
    return total + (to_s - since) * still
