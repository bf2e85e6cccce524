"""What a job does, by whose decision, why and until when, in words: every output renders a Status by these."""

from collections.abc import Sequence

from carbontui import units
from carbontui.protocol import LIVE_STATES, Exit, Gpu, Level, Loss, PlanView, Statement, Status
from carbontui.text import figures
from carbontui.text.forms import SLOWED, after, led, state_word
from carbontui.text.statements import rendered


def state(status: Status) -> str:
    """'capped'."""
    now = status.situation
    return state_word(status.state, duty=now is not None and (now.applied or "").startswith("duty"))


def reason(status: Status, now_s: float | None = None) -> str:
    """'capped at 300 W per GPU by the plan until 18:00': why it is in its state, for who reads it at `now_s`, by
    default when it was measured."""
    at_s = units.from_iso(status.measured_at) if now_s is None else now_s
    return rendered(status.reason.said, status.reason.text, at_s)


def stated(status: Status, now_s: float | None = None) -> str:
    """'running: starting', 'capped at 300 W per GPU by the plan until 18:00'."""
    return led(state(status), reason(status, now_s))


def read_s(status: Status, wall_s: float) -> float:
    """The clock by which its times are read: ours, of a replay its own."""
    return units.from_iso(status.measured_at) if status.replayed else wall_s


def notices(status: Status, now_s: float | None = None) -> tuple[str, ...]:
    """Its notices for who reads them, in the order of `notice_keys`."""
    at_s = units.from_iso(status.measured_at) if now_s is None else now_s
    if len(status.notices_said) != len(status.notices):
        return status.notices
    return tuple(rendered(*one, at_s) for one in zip(status.notices_said, status.notices, strict=True))


def explanation(plan: PlanView, now_s: float | None = None, status: Status | None = None) -> str:
    """Why the plan is as it is, for who reads it at `now_s`, by default when it was made. As long as nothing has set
    the job of `status` apart from run-now, it gains what the account says."""
    at_s, account = units.from_iso(plan.made_at) if now_s is None else now_s, status and status.account
    ahead = account.ahead if account and abs(account.so_far.avoided_g or 0.0) < figures.LEAST_G else None
    gain_g = ahead.avoided_g if ahead else None

    def drawn(one: Statement) -> str:
        if gain_g and gain_g >= figures.LEAST_G and one.parts.get("unit") == "g" and "saved" in one.parts:
            one = Statement(one.code, {**one.parts, "saved": gain_g})
        if status and status.finish_expected and (ahead_of := one.parts.get("stretches")):
            # it ends when the headline says
            *before, last = ahead_of
            end_s = units.from_iso(status.finish_expected)
            one = Statement(one.code, {**one.parts, "stretches": [*before, (*last[:2], end_s)]})
        return rendered(one, "", at_s)

    return " ".join(map(drawn, plan.said)) or plan.explanation


def level(name: str, table: Sequence[Level] = (), *, step: int | None = 0) -> str:
    """'full speed', 'cap 250 W', 'cap 100 W ~' for one worked out from others, 'pause'."""
    known = next((info for info in table if info.name == name), None)
    if name == "full":
        return "full speed"
    if known is not None and known.kind == "cap" and known.cap_w is not None:
        return figures.marked(f"cap {known.cap_w:g} W", figures.ESTIMATED if known.assumed else "")
    return {"off": "pause" if step else "not started", "duty 50 %": "half speed"}.get(name, name)


def open_end(status: Status) -> str:
    """What ends that for which no end is known."""
    return "until there is room" if status.situation and status.situation.held_by == "site" else "until cleared"


def done(status: Status) -> float | None:
    """Share of the work that is done, 0..1; None where the total is not known."""
    if status.steps_total and status.step is not None:
        return min(1.0, status.step / status.steps_total)
    done_s, total_s = status.work_done_s, status.work_total_s
    return min(1.0, done_s / total_s) if done_s is not None and total_s else None


def at_level(status: Status, plan: PlanView | None) -> str:
    """What is in force, behind the state, and what it does between its steps: 'at full speed', 'at cap 300 W,
    evaluating', 'until its next step ends'; '' for a state that says it itself."""
    now, table = status.situation, plan.table if plan else ()
    if status.state == "pausing":
        return "until its next step ends"
    if status.state not in ("running", "throttled"):
        return ""
    name = now.applied if now is not None else status.level
    doing = {"evaluates": "evaluating", "loads": "waiting for its data"}.get(status.doing or "", "")
    at = "to half" if state(status) == SLOWED else "" if name is None else f"at {level(name, table)}"
    return ", ".join(filter(None, (at, doing)))


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
    """'loss NaN since step 4 180', 'loss NaN' where no step is seen, or '' while it is a number."""
    last = status.last_loss
    if last is None or last.finite:
        return ""
    return f"loss {loss(status)} {since(last)}".rstrip()


def since(last: Loss) -> str:
    """'since step 4 180', 'since step ~ 4 180' of one that was printed, which is read later, or ''."""
    at = last.not_finite_since_step
    return f"since step {'~ ' * last.printed}{figures.count(at)}" if at else ""


def held_up(status: Status) -> str:
    """'no step for 5 min; none of its GPUs has computed for 4 min': what holds the training up, in brief, or ''."""
    brief = (rendered(Statement(f"held_{one.code}", one.parts), "", 0.0) for one in status.notices_said)
    return next(filter(None, brief), "")


def why(status: Status, plan: PlanView | None, now_s: float | None = None) -> str:
    """The sentence under the state: the plan's own where it, or an override that it was made around, decides; else the
    reason."""
    now = status.situation
    if now is None or plan is None or not (plan.said or plan.explanation) or now.refused is not None:
        return reason(status, now_s)
    codes = {"plan": ("plan", "plan_wait", "late"), "person": ("override",)}
    decided = status.reason.code in codes.get(now.held_by, ())
    plain = status.state in ("running", "throttled", "paused", "unloaded", "waiting")
    return explanation(plan, now_s, status) if decided and plain else reason(status, now_s)


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


def ended(status: Status, now_s: float | None = None) -> str:
    """'failed, exit 1', 'stopped, signal 15: ended by its scheduler: ...': how and why, each said once."""
    how = f"{state(status)}, {exit_words(status.exit)}"
    said = status.reason.said
    known = said is not None and said.code in ("exited", "signalled")
    return how if known or status.reason.code == "exited" else f"{how}: {after(status.state, reason(status, now_s))}"


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
