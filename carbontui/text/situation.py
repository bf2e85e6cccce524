"""What a job does, by whose decision, why and until when, in words: every output renders a Status by these."""

from __future__ import annotations

from collections.abc import Sequence

from carbontui import units
from carbontui.protocol import LIVE_STATES, Exit, Gpu, Level, PlanView, Status
from carbontui.text import figures
from carbontui.text.forms import state_word


def state(status: Status) -> str:
    """'capped'."""
    return state_word(status.state)


def stated(status: Status) -> str:
    """'capped: capped at 300 W per GPU by the plan until 18:00'."""
    return f"{state(status)}: {status.reason.text}"


def level(name: str, table: Sequence[Level] = ()) -> str:
    """'full speed', 'cap 250 W', 'cap 100 W ~' for one worked out from others, 'pause'."""
    known = next((info for info in table if info.name == name), None)
    if name == "full":
        return "full speed"
    if known is not None and known.kind == "cap" and known.cap_w is not None:
        return figures.marked(f"cap {known.cap_w:g} W", figures.ESTIMATED if known.assumed else "")
    return "not started" if name == "off" else name


def done(status: Status) -> float | None:
    """Share of the work that is done, 0..1; None where the total is not known."""
    if status.steps_total:
        return min(1.0, status.step / status.steps_total)
    done_s, total_s = status.work_done_s, status.work_total_s
    return min(1.0, done_s / total_s) if done_s is not None and total_s else None


def at_level(status: Status, plan: PlanView | None) -> str:
    """What is in force, behind the state: 'at full speed', 'at cap 300 W', 'until its next step ends'; '' for a state
    that says it itself."""
    now, table = status.situation, plan.table if plan else ()
    if status.state == "pausing":
        return "until its next step ends"
    if status.state not in ("running", "throttled"):
        return ""
    name = now.applied if now is not None else status.level
    return "" if name is None else f"at {level(name, table)}"


OTHERS = "the rest other programs'"
"""A board has a part of its own for the job only where processes that are not the job's are seen on it."""


def own_part(gpu: Gpu) -> str:
    """'12 W ~ of it this job's, the rest other programs'', or '' for a board that the job has to itself."""
    if gpu.own_w is None:
        return ""
    return f"{figures.marked(figures.watts(gpu.own_w), figures.ESTIMATED)} of it this job's, {OTHERS}"


def refused(status: Status) -> str:
    """'cap of 100 W refused', or ''."""
    now = status.situation
    if now is None or now.refused is None:
        return ""
    return "cap refused" if now.refused.cap_w is None else f"cap of {now.refused.cap_w:g} W refused"


def loss(status: Status) -> str:
    """'1.23', 'NaN', or '' before any was reported or printed."""
    last = status.last_loss
    return "" if last is None else last.word or "NaN" if last.value is None else f"{last.value:.4g}"


def loss_words(status: Status) -> str:
    """'loss 1.23', 'loss NaN since step 4 180', or ''."""
    return diverged(status) or (f"loss {said}" if (said := loss(status)) else "")


def diverged(status: Status) -> str:
    """'loss NaN since step 4 180', or '' while it is a number."""
    last = status.last_loss
    if last is None or last.finite:
        return ""
    return f"loss {loss(status)} since step {figures.count(last.not_finite_since_step or 0)}"


def why(status: Status, plan: PlanView | None) -> str:
    """The sentence under the state: the plan's own where it, or an override that it was made around, decides; else the
    reason."""
    now = status.situation
    if now is None or plan is None or not plan.explanation or now.refused is not None:
        return status.reason.text
    codes = {"plan": ("plan", "plan_wait", "late"), "person": ("override",)}
    decided = status.reason.code in codes.get(now.held_by, ())
    plain = status.state in ("running", "throttled", "paused", "unloaded", "waiting")
    return plan.explanation if decided and plain else status.reason.text


def author(status: Status, now_s: float) -> str:
    """The override in force, where the sentence under the state does not name its author; '' otherwise."""
    now = status.situation
    if now is not None and (now.held_by != "person" or (status.reason.code == "override" and now.refused is None)):
        return ""
    return override(status, now_s) if status.state in LIVE_STATES else ""


def override(status: Status, now_s: float) -> str:
    """'pause by ada@pts/3 until 18:00', or ''."""
    held = status.override
    if held is None:
        return ""
    what = f"cap {held.value_w:g} W" if held.mode == "cap" and held.value_w is not None else held.mode
    until = "until cleared" if held.until is None else f"until {clock(held.until, now_s)}"
    return f"{what} by {held.by}, {until}"


def next_change(status: Status, plan: PlanView | None, now_s: float) -> str:
    """'next: pause at 17:30, in 2 h 05', or ''."""
    if status.next is None:
        return ""
    at = units.from_iso(status.next.at)
    name = level(status.next.level, plan.table if plan else ())
    return f"next: {name} at {figures.clock(at, now_s)}, in {figures.duration(at - now_s)}"


def exit_words(ended: Exit | None) -> str:
    """'exit 0', 'signal 9', 'exit unknown'."""
    if ended is None or (ended.code is None and ended.signal is None):
        return "exit unknown"
    return f"exit {ended.code}" if ended.code is not None else f"signal {ended.signal}"


def finish(status: Status, now_s: float) -> str:
    """'Fri 09:12', or an en dash where there is no end."""
    return "–" if status.finish_expected is None else clock(status.finish_expected, now_s)


def ended_at(status: Status, now_s: float) -> str:
    """When a finished job ended; '' while it lives, and for a replay, whose clock is not ours."""
    return "" if status.state in LIVE_STATES or status.replayed else clock(status.ended_at, now_s)


def clock(time: str, now_s: float) -> str:
    """A time of the wire as users read it: '17:30' today, else with the day."""
    return figures.clock(units.from_iso(time), now_s)
