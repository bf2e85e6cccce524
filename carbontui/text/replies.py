"""What is answered to a user's command that was taken."""

from collections.abc import Sequence
from typing import Any

from carbontui.text import figures
from carbontui.text.boards import limit_command
from carbontui.text.forms import Table, fill, wordings


def _above_lowered(*, watts: float, start: float, default: float, maker: str, board: str, now_s: float) -> str:
    command = limit_command(maker, board, round(1000 * default))
    return (
        f"{watts:g} W is above the limit found ({start:g} W), which is below the driver's default of {default:g} W; "
        f"to lift it: {command}; carbontui run --allow-raise permits it"
    )


REFUSALS: Table = wordings("refusals") | {
    "cap_above_lowered": _above_lowered,
    "not_calibrated": lambda *, last, now_s: f"not calibrated yet{f': {last}' if last else ''}",
}


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


REPLIES: Table = wordings("replies") | {
    "ordered": _ordered,
    "budget_set": _budget_set,
    "curve": lambda *, curve, now_s: "\n".join(curve_lines(curve)),
    "can_pause": _can_pause,
}
