"""What a job has used so far: the account's totals for the present state."""

from __future__ import annotations

import math

from carbontui.account import run_now
from carbontui.account.lived import GAP_S
from carbontui.job.supervisor.core.planning import machine
from carbontui.job.supervisor.core.rules.booking import booked_as, held_back
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState, Totals
from carbontui.job.supervisor.record.accounting import Accounting


def pass_time(accounting: Accounting, before: JobState, after: JobState, seen: Inputs) -> None:
    """Book the time since the last look, which was spent as `before` says; a job that has ended, up to its end."""
    ended_s = seen.child.ended_s(after.clock)
    accounting.pass_time(
        seen.now_s if ended_s is None else min(seen.now_s, ended_s),
        seen.dt_s,
        booked_as(before, seen),
        # a try that is over starts its count anew, and its last steps were made in this time
        steps=max(before.progress.steps_done, after.progress.steps_done),
        work_s=max(0.0, after.progress.plain_done_s - before.progress.plain_done_s),
        held=held_back(before),
        unread=GAP_S < seen.readings_age_s < math.inf and bool(seen.devices),
        jobs=seen.readings.host.jobs,
    )


def baseline(accounting: Accounting, now: JobState, seen: Inputs) -> run_now.RunNow | None:
    """Run-now of what was done so far."""
    measured_w = machine.full_wall_w(now, seen)
    return run_now.run_now(accounting.lived, pue=now.spec.pue, full_wall_w=measured_w, rate=now.progress.ref_rate)


def totals_so_far(accounting: Accounting, now: JobState, seen: Inputs) -> Totals:
    """Energy, grams, avoided and money at this moment."""
    left_s = now.progress.left_s
    return accounting.totals(
        start_s=now.start_s,
        run_now=baseline(accounting, now, seen),
        nowcast=now.outlook.value_at(seen.now_s) if now.outlook else None,
        gpus=len(seen.devices),
        rest=None if left_s is None else (seen.now_s, left_s, machine.likely_wall_w(now, seen)),
    )
