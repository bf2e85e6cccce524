"""Notifications for a user who is not watching: the job is done, failed, stands still, or its budget is at risk."""

from typing import NamedTuple

from carbontui import protocol
from carbontui.text import figures, situation
from carbontui.tui.model.view_state import ViewState

STILL = frozenset({"paused", "unloaded"})


class Notification(NamedTuple):
    """`urgent` rings the bell."""

    text: str
    urgent: bool


def news(before: ViewState | None, after: ViewState) -> Notification | None:
    """The notification for this change; None for the first picture and for changes of no interest."""
    if before is None:
        return None
    was, now = before.status, after.status
    name, over = now.name, now.state not in protocol.LIVE_STATES
    if was.state != now.state and (over or (now.state in STILL and was.state not in STILL)):
        return Notification(f"{name}: {situation.stated(now)}", over)
    if at_risk(after) and not at_risk(before):
        return Notification(f"{name}: {at_risk(after)}", True)
    if situation.diverged(now) and not situation.diverged(was):
        return Notification(f"{name}: {situation.diverged(now)}", True)
    return None


def at_risk(view_state: ViewState) -> str:
    """Why the budget is at risk, or ''."""
    plan, status = view_state.plan, view_state.status
    if status.reason.code == "late" or (plan is not None and plan.late_s > 300):
        late = f"by {figures.duration(plan.late_s)}" if plan is not None and plan.late_s > 0 else ""
        return f"it will be late {late}".strip()
    over = next((one for one in status.allowances if one.used_up_at is not None), None)
    return "" if over is None else f"its {over.kind} budget will be used up"


def osc9(text: str) -> str:
    """The escape sequence that makes a terminal notify (iTerm2, kitty, WezTerm, Windows Terminal, foot)."""
    clean = "".join(char for char in text if char.isprintable())
    return f"\x1b]9;{clean}\x07"
