"""From raw looks to readings for users and the supervisor. Pure except for /proc."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from carbontui import paths
from carbontui.power.backends.base import DeviceInfo, RawReading, measure_caps
from carbontui.power.messages import Capability, Reading, Readings, Support
from carbontui.system import proc

if TYPE_CHECKING:  # the supervisor tells of readings, and sets no limit
    from carbontui.power.limit.board import BoardLimit


HELD_MW = 2000
"""Drivers round: a limit held this much lower is another one."""


def foreign(pids: tuple[int, ...], own: tuple[int, ...], *, hidden_too: bool = False) -> tuple[int, ...]:
    """Compute processes that are not the child's.

    In a container NVML lists host pids, which cannot be matched: only those in excess of the number of our own
    processes are foreign; with `hidden_too`, all of them, if ours may be on other boards.
    """
    hidden = [pid for pid in pids if not proc.exists(pid)]
    strange = [pid for pid in pids if proc.exists(pid) and not proc.belongs(pid, own)]
    if own and not hidden_too:
        ours = len(pids) - len(hidden) - len(strange)
        hidden = hidden[max(0, len(own) - ours) :]
    return tuple(strange + hidden)


def user(pid: int) -> str:
    """A foreign process as text: a carbontui job by its name, others by pid and name."""
    job = proc.variable(pid, "CARBONTUI_JOB")
    return f"job {_job_name(job)} (pid {pid})" if job else f"another process (pid {pid}, {proc.name(pid)})"


def users(pids: tuple[int, ...]) -> str:
    """'python (ada), sshd (root)': compute processes by name and owner; those that cannot be seen from here are
    counted."""
    known = [f"{proc.name(pid)} ({proc.owner(pid)})" for pid in pids if proc.exists(pid)]
    hidden = len(pids) - len(known)
    return ", ".join([*dict.fromkeys(known), *([f"{hidden} not seen from here"] if hidden else [])])


def _job_name(job_id: str) -> str:
    """A job's name; its id if its record is elsewhere or unreadable."""
    try:
        record = json.loads((paths.job_dir(job_id) / "job.json").read_bytes())
        return str(record["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return job_id


def reading(
    info: DeviceInfo,
    raw: RawReading,
    board: BoardLimit,
    *,
    watched: bool,
    pids: tuple[int, ...] | None,
    foreign: tuple[int, ...],
    share: float | None = None,
    users: str = "",
) -> Reading:
    """Everything known of one GPU now, with the reason for every missing field."""
    caps = measure_caps(raw, info.maker)
    caps.setdefault("limit", board.shown())
    if not raw.lost and board.limit not in (None, board.shown()):
        caps["power_limit"] = board.limit
    caps["clocks"] = caps["limit"] if raw.lost else board.clocks_cap()
    why = raw.why(info.maker)
    if info.mig:
        why["util"] = "MIG: utilisation exists per slice only"
        caps["power"] = Capability(
            caps["power"].support, f"{caps['power'].why}; the whole GPU, shared by its MIG slices"
        )
    return Reading(
        **shared(info, Reading),
        **shared(raw, Reading) | ({"util": None} if info.mig else {}),
        watched=watched,
        power_kind=raw.kind,
        limit_w=_watts(raw.limit_mw),
        enforced_w=_held_w(raw),
        limit_found_w=board.found_w,
        limit_top_w=board.top_w,
        clocks_w=board.clocks_w,
        proving=board.proving,
        limit_min_w=_watts(info.limit_min_mw),
        limit_max_w=_watts(info.limit_max_mw),
        limit_default_w=_watts(info.limit_default_mw),
        pids=pids,
        foreign_pids=foreign,
        foreign_user=user(foreign[0]) if foreign else "",
        share=share,
        users=users,
        caps=caps,
        why=why,
    )


def shared(source: Struct, kind: type[Struct]) -> dict[str, Any]:
    """The values of the fields that another kind of struct has as well."""
    return {name: getattr(source, name) for name in _common(type(source), kind)}


@functools.cache
def _common(one: type[Struct], other: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in one.__struct_fields__ if name in other.__struct_fields__)


def _held_w(raw: RawReading) -> float | None:
    """The limit that is really held, where it is lower than the one in force."""
    lower = raw.enforced_mw is not None and raw.limit_mw is not None and raw.enforced_mw < raw.limit_mw - HELD_MW
    return _watts(raw.enforced_mw) if lower else None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


SAYS: dict[Support, str] = {
    "yes": "supported",
    "no_permission": "no permission",
    "not_supported": "not supported",
    "no_effect": "no effect",
    "unknown": "unknown",
    "lost": "lost",
}
ASPECTS = {"energy": "energy counter", "power": "power", "limit": "power limit", "clocks": "clock lock"}


class CapabilityRow(Struct, frozen=True):
    """One line: device, aspect, support, reason, and an exact command or ""."""

    device: str
    aspect: str
    support: Support
    why: str
    fix: str


def table(readings: Readings) -> tuple[CapabilityRow, ...]:
    """All rows: each GPU, then CPU and memory where they are counted. Without a GPU the first row says so."""
    rows: list[CapabilityRow] = []
    if not readings.devices and not readings.absent:
        why = next(iter(readings.notices), "no NVIDIA or AMD driver")
        rows.append(CapabilityRow("GPU", "any", "not_supported", f"{why}: CPU and memory only", ""))
    for reading in readings.devices:
        rows += _gpu(reading)
    for index, why in readings.absent:
        rows.append(CapabilityRow(f"GPU {index}", "any", "lost", f"it does not answer: {why}", "reboot or reset it"))
    for kind, label in (("cpu", "CPU packages"), ("dram", "memory")) if readings.host.source else ():
        cap = readings.host.caps.get(kind, Capability("unknown", "not read yet"))
        why = cap.why if cap.support == "yes" else f"{cap.why}; estimated ({readings.host.source})"
        rows.append(CapabilityRow("host", label, cap.support, why, cap.fix))
    return tuple(rows)


def _gpu(reading: Reading) -> list[CapabilityRow]:
    device = f"{reading.label} {reading.name}" + (" (simulated)" if reading.simulated else "")
    rows = []
    for key, label in ASPECTS.items():
        cap = reading.caps.get(key, Capability("unknown", "not read yet"))
        if key == "limit":
            cap = reading.caps.get("power_limit", cap)
        why = cap.why
        if key == "limit" and cap.support == "yes" and reading.limit_w is not None:
            why = f"{cap.why}, now {reading.limit_w:.0f} W"
            if reading.enforced_w is not None:
                why += f", held at {reading.enforced_w:.0f} W by the platform"
        if key == "limit" and reading.foreign_pids:
            pids = ", ".join(str(pid) for pid in reading.foreign_pids[:3])
            why = f"{why}; left alone while other processes use it (pid {pids})"
        rows.append(CapabilityRow(device, label, cap.support, why, cap.fix))
    return rows
