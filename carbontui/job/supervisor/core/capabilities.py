"""What can be measured and done in this job, why the better option is unavailable, and what would make it available."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from carbontui import protocol, units
from carbontui.job.supervisor.core import calibration
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.state import JobState
from carbontui.power import capability
from carbontui.power.messages import Capability, Reading


def sigstop_refusal(devices: Sequence[Reading]) -> str:
    """Why SIGSTOP must not be used, or ''. Processes that share a board or a collective would wait for each
    other: an NCCL watchdog ends a job whose collective is older than ten minutes."""
    own: set[int] = set()
    for reading in devices:
        if reading.pids is None:
            return f"the driver does not report which processes use {reading.name}"
        if len(reading.pids) > 1:
            return f"{len(reading.pids)} processes use {reading.name} ({reading.label})"
        own |= set(reading.pids) - set(reading.foreign_pids)
    return f"its {len(own)} processes use GPUs together" if len(own) > 1 else ""


def freeze_why(state: JobState, seen: Inputs) -> str:
    """Why SIGSTOP is not to be used now although `run --sigstop` asked for it."""
    if not state.spec.sigstop:
        return ""
    return sigstop_refusal(seen.devices) if seen.guarded else "the keeper, which undoes it, is gone"


def why_no_cap(state: JobState, seen: Inputs, watts: float) -> str:
    """Why a cap of `watts` per GPU cannot be set; '' when it can."""
    if not state.spec.cap:
        if state.clock.replay:
            return "hours are replayed here, and a limit on a real board would be real"
        return "caps are off for this job (--no-cap)"
    if not seen.readings.mono_s:
        return "the GPU driver has not answered yet; try again in a moment"
    if not seen.devices:
        return "no GPU of this job has a power limit to set"
    for reading in seen.devices:
        limit = reading.caps.get("limit", Capability("unknown"))
        if limit.support not in ("yes", "unknown"):
            return f"{reading.name}: {limit.why or limit.support}{'; ' + limit.fix if limit.fix else ''}"
        low, high, top = reading.limit_min_w, reading.limit_top_w or reading.limit_max_w, reading.limit_max_w
        if low is not None and watts < low:
            return f"{watts:g} W is below what {reading.name} takes; at least {low:g} W"
        if top is not None and watts > top:
            return f"{watts:g} W is above what {reading.name} takes; at most {top:g} W"
        if high is not None and watts > high and not state.spec.allow_raise:
            found = f"{watts:g} W is above the limit found ({high:g} W)"
            default = reading.limit_default_w
            if default is not None and default > high:
                lift = f"sudo nvidia-smi -i {reading.uuid} -pl {default:g}"
                found = f"{found}, which is below the driver's default of {default:g} W; to lift it: {lift}"
            return f"{found}; carbontui run --allow-raise permits it"
    return ""


def answer(state: JobState, seen: Inputs, ask: protocol.AbilitiesAsk) -> protocol.AbilitiesAnswer:
    """For screen page `d`: boards and host as the agent sees them, then the training, then its speed curve."""
    readings = msgspec.structs.replace(seen.readings, devices=seen.devices)
    rows = [
        protocol.Ability(row.device, row.aspect, capability.SAYS[row.support], row.why, row.fix)
        for row in capability.table(readings)
    ]
    return protocol.AbilitiesAnswer(
        ask.id, (*rows, *_training(state, seen)), tuple(calibration.table(state.curve).splitlines())
    )


def _training(state: JobState, seen: Inputs) -> list[protocol.Ability]:
    def row(aspect: str, support: str, why: str, fix: str = "") -> protocol.Ability:
        return protocol.Ability("training", aspect, support, why, fix)

    if not seen.ranks:
        why = freeze_why(state, seen)
        stop = row("SIGSTOP", "not supported" if why else "supported", why or "asked for with --sigstop")
        if not state.spec.sigstop:
            stop = row("SIGSTOP", "not supported", "not asked for", "carbontui run --sigstop -- ...")
        return [row("pause", "not supported", "no training step has been seen yet"), stop]
    took, many = state.measured.pause_s.value, len(seen.ranks) > 1
    held = "" if took is None else f"; a pause takes hold after {_brief(took)}"
    unload = row("unload", "not supported", "it has no checkpoint function", "carbontui.on_checkpoint(save)")
    if any(rank.can_unload for rank in seen.ranks):
        known, fix = state.unloading, f"carbontui rehearse {state.spec.job}"
        tried = "never tried, so no plan uses it" if known.held is None else known.verdict
        unload = row("unload", "supported", f"a checkpoint function is registered; {tried}", "" if known.held else fix)
    return [
        row("pause", "supported", f"{len(seen.ranks)} process{'es' if many else ''} at its steps{held}"),
        row("duty cycle", "supported", "in whole steps; saves watts, not energy"),
        unload,
    ]


def _brief(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else units.fmt_duration(seconds)
