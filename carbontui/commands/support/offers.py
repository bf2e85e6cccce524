"""What a job could do on this machine before it has measured anything: what its own first plan would take for it, and
what each budget gives. One answer for `run`, `solve`, `estimate`, `compare` and `doctor`."""

import asyncio
import contextlib
import math
import os
from dataclasses import replace
from pathlib import Path

from carbontui import config
from carbontui.account.boundary import Kind
from carbontui.assumed.job import AssumedJob, TypicalDays, planned
from carbontui.commands.support.run_values import declared_boards
from carbontui.config import Settings
from carbontui.grid.types import GridForecast
from carbontui.job.life import launch
from carbontui.job.supervisor.core.planning import machine, problem
from carbontui.job.supervisor.core.state import boards, measured, progress
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.terms import budget as budgets
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options
from carbontui.power.agent.handle import read_once
from carbontui.power.backends.declared import DeclaredBoards
from carbontui.power.messages import Readings
from carbontui.text.first_run import Offer

FACTORS = (1.0, 1.5, 2.0, 3.0)
UNBORN = ("job", "name", "dir", "cwd", "log", "socket")
"""What a job that does not exist has none of."""
NO_GRID = GridForecast("", "average_direct", 0.0, problem.SLOT_S, (0.0,), (0.0,), (0.0,), 0, "", "default", 0.0)


def readings(declared: DeclaredBoards | None = None) -> Readings:
    """The GPUs of this machine as an agent reads them; none where none can be read."""
    with contextlib.suppress(OSError):
        return asyncio.run(read_once(Path("/"), declared=declared))
    return Readings()


def of_machine(spec: Options, read: Readings, idle_w: float | None = None) -> tuple[AssumedJob, str]:
    """The job that this machine makes possible, as its first plan would have it, and its basis in words; `idle_w`: of
    all GPUs without a process, else as their models are known to draw."""
    devices, known = read.devices, measured.Measured()
    if idle_w is not None:
        each = measured.Mean(idle_w / max(1, len(devices)), 1)
        known = replace(known, idle_w=dict.fromkeys((one.uuid for one in devices), each), rest_idle_w=each)
    begun, takes = progress.begun(spec), spec.cap and boards.take_limits(devices)
    state = JobState(spec, Clock(), budgets.parse("1x", 0.0), begun, measured=known, caps_hold=takes)
    inputs = Inputs(now_s=0.0, mono_s=read.mono_s, readings=read)
    here, made = machine.machine(state, inputs), machine.embodied(state, inputs)
    setup = problem.build(
        now_s=0.0,
        deadline_s=problem.SLOT_S,
        outlook=NO_GRID,
        machine=here,
        objective=problem.Objective(embodied_g_per_h=made.g_per_hour if made else 0.0),
        work_left_s=0.0,
        started=False,
        level_now="off",
        age_s=0.0,
    )
    what = f"{len(devices)} GPU{'s' * (len(devices) > 1)} here" if devices else "no GPU here"
    caps = "caps at speeds of public measurements" if here.caps else "no power caps"
    still_s = math.inf if spec.idle_limit_s is None or spec.gives_back else spec.idle_limit_s
    shape = setup.problem.problem()
    # what a start takes is not known yet: nobody's work is late by it
    starts = (0.0 if one else one for one in shape.switch_s[shape.initial_level])
    switch_s = (tuple(starts) if i == shape.initial_level else row for i, row in enumerate(shape.switch_s))
    job = AssumedJob(replace(shape, switch_s=tuple(switch_s)), patience_pct=spec.patience, still_s=still_s)
    return job, f"{what}, {here.full_w:.0f} W at full speed, {caps}"


def of_this_machine(
    settings: Settings,
    *,
    may_cap: bool = True,
    resubmit: bool = False,
    boundary: Kind | None = None,
    host_w: float | None = None,
    idle_w: float | None = None,
) -> tuple[AssumedJob, str]:
    """The job of the GPUs that are here, and its basis. What counts is as a job's own account would have it, unless
    `boundary` or the watts say otherwise. Raises ValueError naming a setting, and Failure."""
    declared, cap = declared_boards(settings), may_cap and settings.cap
    counts = launch.terms(settings, os.environ, resubmit=resubmit) | dict.fromkeys(UNBORN, "")
    counts |= {name: one for name, one in (("boundary", boundary), ("host_w", host_w)) if one is not None}
    spec = Options(**config.terms(settings), **counts, argv=(), created_s=0.0, cap=cap, declared=declared)
    return of_machine(spec, readings(declared), idle_w)


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
