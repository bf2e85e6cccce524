"""What can be measured and done in this job, why the better option is unavailable, and what would make it available."""

from collections.abc import Sequence
from typing import NamedTuple

from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.power.messages import Capability, Reading, Support
from carbontui.protocol import Statement, statement


def sigstop_refusal(devices: Sequence[Reading]) -> Statement | None:
    """Why SIGSTOP must not be used; None if it may. Processes that share a board or a collective would wait for each
    other: an NCCL watchdog ends a job whose collective is older than ten minutes."""
    own: set[int] = set()
    for reading in devices:
        if reading.pids is None:
            return statement("processes_unreported", board=reading.name)
        if len(reading.pids) > 1:
            return statement("processes_share", count=len(reading.pids), name=reading.name, board=reading.label)
        own |= set(reading.pids) - set(reading.foreign_pids)
    return statement("processes_together", count=len(own)) if len(own) > 1 else None


def freeze_why(state: JobState, inputs: Inputs) -> Statement | None:
    """Why SIGSTOP is not to be used now although `run --sigstop` asked for it."""
    if not state.spec.sigstop:
        return None
    return sigstop_refusal(inputs.devices) if inputs.guarded else statement("keeper_gone_to_thaw")


def wants_caps(state: JobState) -> bool:
    """Whether a cap is asked for, by whomever, or planned: then whether one can be set may be found out by a write."""
    plan = state.plan
    planned = plan is not None and any(plan.table[name].kind == "cap" for name in set(plan.names) if name in plan.table)
    return state.spec.cap and state.spec.probe and (state.asked.limit_w is not None or planned)


def why_no_cap(state: JobState, inputs: Inputs, watts: float) -> Statement | None:
    """Why a cap of `watts` per GPU cannot be set; None when it can."""
    if not state.spec.cap:
        return statement("cap_in_replay") if state.clock.replay else statement("caps_off")
    if not inputs.readings.mono_s:
        return statement("boards_unanswered")
    if not inputs.devices:
        return statement("no_board_to_cap")
    for reading in inputs.devices:
        limit = reading.caps.get("limit", Capability("unknown"))
        if limit.support not in ("yes", "unknown"):
            return statement("board_takes_no_cap", board=reading.name, why=limit.why or limit.support, fix=limit.fix)
        low, high, top = reading.limit_min_w, reading.limit_top_w or reading.limit_max_w, reading.limit_max_w
        if low is not None and watts < low:
            return statement("cap_too_low", watts=watts, board=reading.name, least=low)
        if top is not None and watts > top:
            return statement("cap_too_high", watts=watts, board=reading.name, most=top)
        if high is not None and watts > high and not state.spec.allow_raise:
            default = reading.limit_default_w
            if default is not None and default > high:
                name = {"maker": reading.maker, "board": reading.address or reading.uuid}
                return statement("cap_above_lowered", watts=watts, start=high, default=default, **name)
            return statement("cap_above_found", watts=watts, found=high)
    return None


class Skill(NamedTuple):
    """What the training can do: `support` as of boards, why, and an exact command or ''."""

    aspect: str
    support: Support
    why: Statement
    fix: str = ""


def of_training(state: JobState, inputs: Inputs) -> tuple[Skill, ...]:
    if not inputs.ranks:
        if not state.spec.sigstop:
            stop = Skill("SIGSTOP", "not_supported", statement("sigstop_unasked"), "carbontui run --sigstop -- ...")
        elif why := freeze_why(state, inputs):
            stop = Skill("SIGSTOP", "not_supported", why)
        else:
            stop = Skill("SIGSTOP", "yes", statement("sigstop_asked"))
        return Skill("pause", "not_supported", statement("no_step_yet")), stop
    many, took_s = len(inputs.ranks), state.measured.pause_s.value
    unload = Skill("unload", "not_supported", state.why_kept)
    if not state.spec.reads_once and any(rank.can_unload for rank in inputs.ranks):
        known = state.unloading
        tried = known.result if known.resumes is not None and known.result else statement("never_tried")
        fix = "" if known.resumes else f"carbontui learn unload {state.spec.job}"
        unload = Skill("unload", "yes", statement("can_unload", tried=tried), fix)
    return (
        Skill("pause", "yes", statement("can_pause", processes=many, took_s=took_s)),
        Skill("duty cycle", "yes", statement("can_cycle")),
        unload,
    )
