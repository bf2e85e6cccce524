"""What a job could do on this machine before it has measured anything: levels that the GPUs here take, in what its
account would count, and what each budget gives. One answer for `run`, `solve`, `estimate`, `compare` and `doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from carbontui.account.boundary import Kind
from carbontui.assumed.job import PARKED, AssumedJob, TypicalDays, assumed, bounded, planned
from carbontui.config import Settings
from carbontui.job.life import launch
from carbontui.power.agent.handle import read_once
from carbontui.power.messages import Reading
from carbontui.text.first_run import Offer

FACTORS = (1.0, 1.5, 2.0, 3.0)
BOARD_W, CPU_W, CPU_PARKED = 300.0, 65.0, 0.4
"""Watts of a GPU that names no limit, of a busy CPU where no GPU is, and its share of them while paused."""


def boards() -> tuple[Reading, ...]:
    """The GPUs of this machine as an agent reads them; none where none can be read."""
    with contextlib.suppress(OSError):
        return asyncio.run(read_once(Path("/"))).devices
    return ()


def take_caps(boards: Sequence[Reading]) -> bool:
    """Whether all of them take a limit: one that does not would hold back none of the steps that they take together."""
    return bool(boards) and all(one.caps["limit"].support == "yes" for one in boards)


def of_boards(boards: Sequence[Reading], board_w: float | None, *, may_cap: bool) -> tuple[AssumedJob, str]:
    """The job that these GPUs make possible, and its basis in words: watts of their limits (else `board_w`), caps
    where all of them take one. Without a GPU a CPU's watts, which no cap lowers."""
    watts = sum(one.limit_found_w or one.limit_w or BOARD_W for one in boards) or board_w
    takes = may_cap and take_caps(boards)
    job = assumed(watts or CPU_W, caps=takes, running=False, parked=PARKED if watts else CPU_PARKED)
    what = f"{len(boards)} GPU{'s' * (len(boards) > 1)} here" if boards else "no GPU here"
    caps = "caps at speeds of public measurements" if takes else "no power caps"
    return job, f"{what}, {watts or CPU_W:.0f} W at full speed, {caps}"


def of_this_machine(
    settings: Settings,
    *,
    may_cap: bool = True,
    resubmit: bool = False,
    boundary: Kind | None = None,
    **counts: float | None,
) -> tuple[AssumedJob, str]:
    """The job of the GPUs that are here, and its basis. What counts is as a job's own account would have it, unless
    `boundary` or `counts` (as of `bounded`) say otherwise. Raises ValueError naming a setting."""
    own = launch.terms(settings, os.environ, resubmit=resubmit)
    job, basis = of_boards(boards(), settings.board_w, may_cap=may_cap and settings.cap)
    counts["host_w"] = own["host_w"] if counts.get("host_w") is None else counts["host_w"]
    return replace(bounded(job, boundary or own["boundary"], **counts), patience_pct=settings.patience), basis


def gives(job: AssumedJob, zone: str, work_s: float, now_s: float) -> list[Offer]:
    """What each budget gives on typical days of the zone; nothing where those are not known."""
    found = []
    for factor in FACTORS:
        try:
            _, plan = planned(job, TypicalDays(zone), work_s, now_s, now_s + factor * work_s, tol=1e-2)
        except ValueError:
            return []
        now = next(one for one in plan.baselines if one.name == "run now")
        saved = 1.0 - plan.gco2 / now.gco2 if now.gco2 > 0 else 0.0
        found.append(Offer(factor, saved, now_s + plan.finish_s))
    return found
