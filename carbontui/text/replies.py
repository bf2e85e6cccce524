"""What is answered to a user's command that was taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from carbontui.text import figures
from carbontui.text.forms import Table, fill


def _curve(*, curve: Any, now_s: float) -> str:
    return "\n".join(curve_lines(curve))


def curve_lines(curve: Any) -> list[str]:
    """A speed curve (`power.curves.curve.Curve`), one line per level."""
    rate = f"{curve.rate_steps_per_s:.3g} steps/s at full speed" if curve.rate_steps_per_s else "not measured here"
    lines = [f"{curve.gpu} x {curve.gpus}: {rate}", *(_level(point) for point in curve.points)]
    if curve.parked_w is not None:
        lines.append(f"  parked      {curve.parked_w:7.1f} W ±{2 * (curve.parked_se or 0):.1f}")
    if curve.pause_s is not None and curve.resume_s is not None:
        lines.append(f"  pause {curve.pause_s:.1f} s, resume {curve.resume_s:.1f} s")
    if curve.basis == "public":
        lines.append(
            "  from public measurements of other trainings on other boards (Zeus, NSDI 2023): carbontui calibrate"
        )
    if curve.basis == "imported":
        lines.append("  imported: measured on another board of this model, which adds 4 %")
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


_FORCE = {"now": "; in force", "keeper": "; accepted, waiting for the keeper, which does not answer", "": ""}


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
    "forbidden": "it will not run {hours}{late:also}",
    "budget_unreachable_at_full_speed": "the budget cannot be met: at full speed the work ends {end_s:clock}",
    "allowed": "it may run {hours:list} again",
    # measuring
    "calibrating": "calibrating: {low_s:duration}, up to {high_s:duration} if steps vary much; "
    "then see: carbontui calibrate --show",
    "curve": _curve,
    "guess_taken": "planning with {steps:count} steps, guessed from {source}",
    "guess_left": "not planning with {steps:count} steps, guessed from {source}",
    "rehearsal_begins": "rehearsing: it writes a checkpoint, exits and restarts",
    "never_unloaded": "never unloaded yet",
    # what the training can do
    "sigstop_unasked": "not requested",
    "sigstop_asked": "requested with --sigstop",
    "can_pause": _can_pause,
    "can_cycle": "in whole steps; saves watts, not energy",
    "can_unload": "a checkpoint function is registered; {tried}",
    "never_tried": "never tried, so no plan uses it",
    "no_checkpoint_function": "it has no checkpoint function",
}
