"""What a job has used so far: the account's totals for the present state."""

from __future__ import annotations

from carbontui.job.supervisor.core import machine
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.state import JobState, Totals
from carbontui.job.supervisor.record.accounting import Accounting

AVOIDED_FROM_S = 60.0
"""Work done before a saving is claimed: in a shorter run the low power of the start would look like one."""


def totals_so_far(accounting: Accounting, now: JobState, seen: Inputs) -> Totals:
    """Energy, grams, avoided and money at this moment."""
    work = now.progress
    # a training that reports steps has done no work before the first one: it is loading
    begun = work.step > 0 or work.steps_total is None
    enough = begun and work.done_s >= AVOIDED_FROM_S
    whole_s, elapsed_s = now.progress.whole_s, max(0.0, seen.now_s - now.start_s)
    return accounting.totals(
        start_s=now.start_s,
        done_s=now.progress.done_s,
        full_wall_w=machine.full_wall_w(now, seen) if enough else None,
        nowcast=now.outlook.value_at(seen.now_s) if now.outlook else None,
        gpus=len(seen.devices),
        past_s=None if whole_s is None else min(whole_s, elapsed_s),
    )
