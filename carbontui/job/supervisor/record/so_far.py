"""What a job has used so far: the account's totals for the present state, and what it books the present time under."""

import math
from collections.abc import Iterable, Iterator

from msgspec import structs

from carbontui.account import accounts
from carbontui.account.elapsed import GAP_S, SWITCHING, as_booked
from carbontui.job.supervisor.core.planning import machine
from carbontui.job.supervisor.core.state import unloading
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState, Totals
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.power.messages import Sample

POWER_OF_S = 2.0
"""Within this after an end the watts of a board may still be those of the training."""
MOVED = "moved"
"""The reason of an unload for another machine."""


def booked_as(state: JobState, inputs: Inputs) -> str:
    """The name of a state, SWITCHING, or the reason of an exclusion (account/elapsed.py)."""
    known, decided = state.unloading, state.decision
    if state.spec.estimate:
        return "estimate"
    leaves_try = known.by == unloading.TRY and known.phase in ("asked", "leaving")
    if inputs.child.trying or state.tried.under_way or leaves_try:
        return "try"
    if state.calibrating.level is not None or decided.why.code == "calibrating":
        return "calibration"
    # a second start reloads what an unload has put away; after a try it is the first of the job itself
    reloading = inputs.starts > state.progress.starts > 0 and known.by != unloading.TRY
    resuming = decided.state == "running" and (reloading or state.resume_asked_mono_s is not None)
    if resuming or (decided.state == "unloaded" and decided.why.code == MOVED):
        return SWITCHING
    # nothing runs before it is decided whether the start is held
    undecided = decided.state == "starting" and inputs.child.state == "waiting"
    return as_booked("waiting" if undecided else decided.state, decided.why.code)


def of_a_move(state: JobState, inputs: Inputs, *, arriving: bool) -> bool:
    """Whether what is drawn now is the cost of a move: leaving for another machine, or on it before the first step."""
    decided = state.decision
    leaving = decided.why.code == MOVED and decided.state in ("pausing", "unloaded")
    return leaving or (arriving and (decided.state == "starting" or booked_as(state, inputs) == SWITCHING))


def held_back(state: JobState) -> bool:
    """Whether the start is held back by a decision, not just not made yet."""
    return state.decision.state == "waiting" and state.decision.level.still


def of_the_job(samples: Iterable[Sample], ended_wall_s: float | None) -> Iterator[Sample]:
    """Samples without what a counter has counted since the job's end, as after one that no supervisor saw: it is taken
    off at the watts of now."""
    for sample in samples:
        after_s = 0.0 if ended_wall_s is None else sample.wall_s - ended_wall_s
        if after_s > POWER_OF_S and sample.energy_uj is not None and sample.power_w is not None:
            yield structs.replace(sample, energy_uj=max(0, round(sample.energy_uj - sample.power_w * after_s * 1e6)))
        else:
            yield sample


def meter(accounting: Accounting, now: JobState, inputs: Inputs, samples: Iterable[Sample]) -> None:
    """Convert new samples to joules, in the state of this moment."""
    accounting.idle_w = {**machine.idle_w(now, inputs), "cpu": inputs.readings.host.idle_w or 0.0}
    accounting.idle_doubts = {uuid: doubt for uuid, (_, doubt) in machine.idles(now, inputs).items()}
    _mark_move(accounting, now, inputs)
    watched = frozenset(reading.uuid for reading in inputs.devices)
    accounting.meter_samples(of_the_job(samples, inputs.child.ended_wall_s), booked_as(now, inputs), watched)


def pass_time(accounting: Accounting, before: JobState, after: JobState, inputs: Inputs) -> None:
    """Book the time since the last look, which was spent as `before` says; a job that has ended, up to its end."""
    _mark_move(accounting, before, inputs)
    ended_s, host = inputs.child.ended_s(after.clock), machine.host(before, inputs)
    accounting.pass_time(
        inputs.now_s if ended_s is None else min(inputs.now_s, ended_s),
        inputs.dt_s,
        booked_as(before, inputs),
        # a try that is over starts its count anew, and its last steps were made in this time
        steps=max(before.progress.steps_done, after.progress.steps_done),
        work_s=max(0.0, after.progress.plain_done_s - before.progress.plain_done_s),
        paused=held_back(before),
        unread=GAP_S < inputs.readings_age_s < math.inf and bool(inputs.devices),
        host_w=host.watts,
        host_how="integrated" if host.how == "measured" else host.how,
    )


def _mark_move(accounting: Accounting, now: JobState, inputs: Inputs) -> None:
    place_totals = accounting.place_totals
    place_totals.moving = of_a_move(now, inputs, arriving=place_totals.arriving(accounting.elapsed.steps_kept))


def baseline(accounting: Accounting, now: JobState, inputs: Inputs) -> accounts.RunNow | None:
    """Run-now of what was done so far."""
    measured_w, rate, spent = machine.full_wall_w(now, inputs), now.progress.ref_rate, accounting.elapsed
    if now.clock.stood is not None and measured_w is not None and rate:
        # this clock goes with the steps; by the states, a tenth of a second between two looks is minutes of a replay
        return accounts.RunNow(spent.steps_kept / rate, measured_w, spent.lever_acted)
    return accounts.run_now(spent, pue=now.spec.pue, full_wall_w=measured_w, rate=rate)


def totals_so_far(accounting: Accounting, now: JobState, inputs: Inputs) -> Totals:
    """Energy, grams, avoided and money at this moment."""
    left_s = now.progress.left_s
    return accounting.totals(
        start_s=now.start_s,
        run_now=baseline(accounting, now, inputs),
        nowcast=now.outlook.value_at(inputs.now_s) if now.outlook else None,
        gpus=len(inputs.devices),
        rest=None if left_s is None else (inputs.now_s, left_s, machine.likely_wall_w(now, inputs)),
    )
