"""What is answered to a user's command that was taken."""

from collections.abc import Sequence
from typing import Any

from carbontui.text import figures
from carbontui.text.boards import limit_command
from carbontui.text.forms import Table, fill


def _above_lowered(*, watts: float, start: float, default: float, maker: str, board: str, now_s: float) -> str:
    command = limit_command(maker, board, round(1000 * default))
    return (
        f"{watts:g} W is above the limit found ({start:g} W), which is below the driver's default of {default:g} W; "
        f"to lift it: {command}; carbontui run --allow-raise permits it"
    )


REFUSALS: Table = {
    "job_over": "job {job} is over ({state})",
    "job_is": "the job is {state:state}",
    "job_is_because": "the job is {state:state} ({why})",
    "no_step_yet": "no training step has been seen yet",
    "overridden": "the job is under an override of {by}; clear it first: carbontui resume",
    # overrides
    "changed_first": "{by} changed it first ({mode}); check and repeat",
    "cleared_first": "someone cleared the override first; check and repeat",
    "not_an_override": "{verb!r} is not an override",
    "no_watts": "cap needs watts per GPU, like 300W",
    "no_duration": "--for needs a duration, like 30m",
    "in_the_past": "that time is in the past",
    "over_a_year_away": "that is more than a year away; without a time it holds until cleared",
    "no_next_change": "the plan has no next change; say --for 30m or --until 18:00",
    "no_room_to_boost": "a boost takes {needs:watts}; the site budget of {cap:watts} leaves it {left:watts} "
    "with every other job at its minimum",
    # caps
    "cap_in_replay": "hours are replayed here, and a limit on a real GPU would be real",
    "caps_off": "caps are off for this job (--no-cap)",
    "boards_unanswered": "the GPU driver has not answered yet; try again in a moment",
    "no_board_to_cap": "no GPU of this job has a power limit to set",
    "board_takes_no_cap": "{board}: {why}{fix:also}",
    "cap_too_low": "{watts:g} W is below what {board} takes; at least {least:g} W",
    "cap_too_high": "{watts:g} W is above what {board} takes; at most {most:g} W",
    "cap_above_found": "{watts:g} W is above the limit found ({found:g} W); carbontui run --allow-raise permits it",
    "cap_above_lowered": _above_lowered,
    # hours, guesses
    "nothing_forbidden": "no hours are forbidden",
    "hours_not_forbidden": "hours {hours!r} are not forbidden; forbidden are: {known:list}",
    "no_guess": "no guess of the total steps: no source for one",
    "no_guess_needed": "no guess of the total steps: the total is known: {steps:count} steps",
    # calibrations
    "not_calibrated": lambda *, last, now_s: f"not calibrated yet{f': {last}' if last else ''}",
    "calibration_runs": "a calibration is running ({progress})",
    "replay_uncalibrated": "a replay cannot be calibrated: its watts are those of a model or of another time",
    "no_gpu": "there is no GPU to calibrate on",
    "gpu_of_others": "other processes use its GPU (pid {pid}): their work would be measured too",
    "gpu_in_slices": "its GPU is shared by MIG slices: their work would be measured too",
    "no_slack_to_calibrate": "no slack is left before the deadline; give it some: carbontui budget 1.5x",
    # SIGSTOP
    "processes_unreported": "the driver does not report which processes use {board}",
    "processes_share": "{count} processes use {name} ({board})",
    "processes_together": "its {count} processes use GPUs together",
    "keeper_gone_to_thaw": "the monitor process, which undoes it, is gone",
    # rehearsals
    "unloaded_until_start": "it was tried, and unloaded at step {step:count} to wait for its start, "
    "which will show if it resumes",
    "rehearses_already": "{by} tests it already ({phase})",
    "reads_a_pipe": "it reads a pipe, which a later start could not read again; hand it a file (< FILE)",
    "nothing_to_checkpoint_with": "it has no checkpoint function (carbontui.on_checkpoint(save), docs/frameworks.md)",
    "begun_inside": "it was begun inside a script or notebook, which nobody could start again",
    "nothing_restarts_it": "the monitor process is gone: nothing would restart it",
    "too_much_to_repeat": "{done_s:duration} of work is done and would be repeated if the resume fails; "
    "at most {most_s:duration} may be{worked:also}",
    "resumed_before": "a resume has worked before",
}


def _curve(*, curve: Any, now_s: float) -> str:
    return "\n".join(curve_lines(curve))


def curve_lines(curve: Any) -> list[str]:
    """A speed curve (`power.curves.curve.Curve`), one line per level."""
    rate = f"{curve.rate_steps_per_s:.3g} steps/s at full speed" if curve.rate_steps_per_s else "not measured here"
    lines = [f"{curve.gpu} x {curve.gpus}: {rate}", *(_level(point) for point in curve.points)]
    if curve.parked_w is not None:
        lines.append(f"  paused      {curve.parked_w:7.1f} W ±{2 * (curve.parked_se or 0):.1f}")
    if curve.pause_s is not None and curve.resume_s is not None:
        lines.append(f"  pause {curve.pause_s:.1f} s, resume {curve.resume_s:.1f} s")
    if curve.basis == "public":
        lines.append(
            "  from public measurements of other trainings on other GPUs (Zeus, NSDI 2023): carbontui learn speed"
        )
    if curve.basis == "imported":
        lines.append("  imported: measured on another GPU of this model, which adds 4 %")
    if curve.simulated:
        lines.append("  SIMULATED GPU: a model, not a measurement")
    return lines + ([f"  {curve.note}"] if curve.note else [])


def _level(point: Any) -> str:
    name = "full" if point.cap_w is None else f"cap {point.cap_w:.0f} W"
    joules = "" if point.j_per_step is None else f"  {point.j_per_step:.4g} J/step"
    watts, speed = 2 * point.power_se, f"{figures.percent(point.speed, 1):>7} ±{200 * point.speed_se:.1f}"
    return f"  {name:<11} {point.power_w:7.1f} W ±{watts:.1f}  speed {speed}{joules}"


def _can_pause(*, processes: int, took_s: float | None, now_s: float) -> str:
    held = ""
    if took_s is not None:
        took = f"{1000 * took_s:.0f} ms" if took_s < 1 else figures.duration(took_s)
        held = f"; a pause takes hold after {took}"
    return f"{processes} process{'es' if processes > 1 else ''} at its steps{held}"


def _budget_set(*, budget: str, until_s: float | None, late: Sequence[str], now_s: float) -> str:
    told, parts = figures.budget(budget, now_s), {"until_s": until_s, "late": late}
    if until_s is not None and told == figures.named_clock(until_s, now_s):
        return fill("budget until {told}{late:also}", now_s, told=told, **parts)
    return fill("budget {told}{until_s:until_named}{late:also}", now_s, told=told, **parts)


_FORCE = {"now": "; in force", "keeper": "; accepted, waiting for the monitor process, which does not answer", "": ""}


def _ordered(*, said: str, force: str, stored: bool, now_s: float) -> str:
    return said + _FORCE[force] + ("" if stored else "; not stored: it ends if the supervisor is replaced")


REPLIES: Table = {
    "ordered": _ordered,
    "order_waits": "accepted, waiting for the {who}",
    "will_stop": "stopping: INT, then TERM, then KILL",
    # overrides
    "resumed": "back to the plan",
    "boosted": "at full speed{until_s:until_named}",
    "paused": "paused at step {step:count}{until_s:until_named}{silent:also}",
    "paused_by_signal": "paused (SIGSTOP){until_s:until_named}{silent:also}",
    "still_already": "{state}{until_s:until_named}{silent:also}",
    "pause_asked": "accepted, waiting for the current step to end{silent:also}",
    "cap_at_start": "cap of {watts:g} W per GPU accepted, waiting for the start",
    "not_capped": "cap of {watts:g} W per GPU requested, not capped: {why}",
    "cap_taken": "cap of {watts:g} W per GPU requested{how:also}{until_s:until_named}",
    "capped": "capped at {watts:g} W per GPU{until_s:until_named}",
    "cap_unanswered": "cap of {watts:g} W per GPU accepted, waiting for the driver",
    # budgets and hours
    "budget_set": _budget_set,
    "unreachable_at_full_speed": "it cannot be met: at full speed the work ends {end_s:clock}",
    "allowance_set": "{kind} budget {most}; {used} used so far",
    "slot": "{at_s:clock}",
    "forbidden": "it will not run {hours}{late:also}",
    "budget_unreachable_at_full_speed": "the budget cannot be met: at full speed the work ends {end_s:clock}",
    "allowed": "it may run {hours:list} again",
    # measuring
    "calibrating": "calibrating: {low_s:duration}, up to {high_s:duration} if steps vary much; "
    "then see: carbontui learn speed --show",
    "curve": _curve,
    "guess_taken": "planning with {steps:count} steps, guessed from {source}",
    "guess_left": "not planning with {steps:count} steps, guessed from {source}",
    "rehearsal_begins": "test-resuming: it writes a checkpoint, exits and restarts",
    "never_unloaded": "never unloaded yet",
    # what the training can do
    "sigstop_unasked": "not requested",
    "sigstop_asked": "requested with --sigstop",
    "can_pause": _can_pause,
    "can_cycle": "in whole steps; saves watts, not energy",
    "can_unload": "a checkpoint function is registered; {tried}",
    "never_tried": "never tried, so no plan uses it",
}
