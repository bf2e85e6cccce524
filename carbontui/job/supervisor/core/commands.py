"""User commands: each is fully checked before anything changes, so a refused one changes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from carbontui import protocol, units
from carbontui.job import budget as budgets
from carbontui.job.allowance import Allowance, checked, recognised
from carbontui.job.supervisor.core import (
    attendance,
    boards,
    calibration,
    capabilities,
    finish,
    forbidden,
    override,
    progress,
    site_claim,
    unload_rules,
    unloading,
)
from carbontui.job.supervisor.core.effects import (
    Effect,
    Keep,
    LogLine,
    Record,
    Replan,
    SetLimit,
    StartCalibration,
    StopChild,
)
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.override import OverrideError, Overrides
from carbontui.job.supervisor.core.state import JobState

OVERRIDE_MAX_S = 366 * 86400.0
"""The longest override with an end; without an end it holds until cleared."""
NUMBER_MAX = 1e18
"""The largest number on the wire: viewers would refuse any status with a larger one (`protocol.NonNegative`)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """`result` is the answer, unless it waits for a pause or cap to take effect; `effects` are to be performed."""

    result: protocol.Result | None = None
    effects: tuple[Effect, ...] = ()
    awaits: Literal["pause", "cap"] | None = None


def apply(state: JobState, cmd: protocol.Cmd, seen: Inputs, by: str) -> tuple[JobState, Reply]:
    """The state after one command of `by`, with its reply and effects; a refused command leaves the state unchanged."""
    if not state.live:
        return state, _no(cmd, f"job {state.spec.job} is over ({state.decision.state})", 3)
    try:
        if cmd.verb == "stop":
            return state, _stop(cmd, by)
        if cmd.verb == "budget":
            return _budget(state, cmd, seen, by)
        if cmd.verb in ("forbid", "allow"):
            return _hours(state, cmd, seen, by)
        if cmd.verb == "calibrate":
            return state, _calibrate(state, cmd, seen, by)
        if cmd.verb == "rehearse":
            return _rehearse(state, cmd, seen, by)
        if cmd.verb == "guess":
            return _guess(state, cmd, by)
        return _override(state, cmd, seen, by)
    except (OverrideError, ValueError) as error:
        return state, _no(cmd, str(error), 2)


def _stop(cmd: protocol.Cmd, by: str) -> Reply:
    now = bool(cmd.args.get("now"))
    told: tuple[Effect, ...] = (
        Record("stop", {"by": by, "now": now}),
        LogLine(f"stop requested by {by}{' (now)' if now else ''}"),
    )
    return Reply(protocol.Result(cmd.id, True, text="stopping: INT, then TERM, then KILL"), (*told, StopChild(now)))


def _budget(state: JobState, cmd: protocol.Cmd, seen: Inputs, by: str) -> tuple[JobState, Reply]:
    text, now = str(cmd.args.get("budget", "")), seen.now_s
    if (allowance := recognised(text, state.spec.currency)) is not None:
        return _allowance(state, cmd, allowance, by)
    new = replace(state, budget=budgets.parse(text, now))
    deadline, left = new.deadline_s, new.progress.left_s
    # in the supervisor's time zone, which may differ from the user's: named, so that a mistake is noticed
    when = "" if deadline is None else f", until {units.fmt_named_clock(deadline, now)}"
    if deadline is not None and left is not None and now + left > deadline + finish.late_tolerance_s(new):
        when += f"; it cannot be met: flat out the work ends {units.fmt_clock(now + left, now)}"
    done = (Record("budget", {"by": by, "budget": text}), Replan(f"budget {text} by {by}"), Keep())
    return new, Reply(protocol.Result(cmd.id, True, text=f"budget {text}{when}"), done)


def _allowance(state: JobState, cmd: protocol.Cmd, new: Allowance, by: str) -> tuple[JobState, Reply]:
    """Set another carbon, cost or energy budget; the actions for the old one are chosen anew."""
    new = checked(new)
    used = state.totals.of(new.kind)
    words = f"{new.kind} budget {new.words(currency=state.spec.currency)}"
    so_far = f"{words}; {new.words(used, state.spec.currency)} used so far"
    done = (Record("budget", {"by": by, new.kind: new.most}), Replan(f"{words} by {by}"), Keep())
    after = replace(state, allowances=state.allowances.with_(new))
    return after, Reply(protocol.Result(cmd.id, True, text=so_far), done)


def _hours(state: JobState, cmd: protocol.Cmd, seen: Inputs, by: str) -> tuple[JobState, Reply]:
    """Forbid hours or allow them again: a constraint on every plan from now on."""
    now, asked = seen.now_s, cmd.args.get("hours")
    held = forbidden.current(state.forbidden, now)
    if cmd.verb == "forbid":
        said = forbidden.parse(str(asked or ""), now, by)
        new = replace(state, forbidden=forbidden.added(held, said))
        text = f"it will not run {said.text(now)}"
        left, deadline = new.progress.left_s, new.deadline_s
        if left is not None and deadline is not None:
            soonest = finish.soonest_s(new, now, left)
            if soonest > deadline + finish.late_tolerance_s(new):
                text += f"; the budget cannot be met: flat out the work ends {units.fmt_clock(soonest, now)}"
    elif not held:
        return state, _no(cmd, "no hours are forbidden", 3)
    else:
        meant = None if asked is None else forbidden.parse(str(asked), now)
        gone = tuple(one for one in held if meant is None or (one.start_s, one.end_s) == (meant.start_s, meant.end_s))
        if not gone:
            known = ", ".join(one.text(now) for one in held)
            return state, _no(cmd, f"hours {asked!r} are not forbidden; forbidden are: {known}", 3)
        new = replace(state, forbidden=tuple(one for one in held if one not in gone))
        text = f"it may run {', '.join(one.text(now) for one in gone)} again"
    facts = {"verb": cmd.verb, "by": by, "hours": asked, "text": text}
    done = (Record("hours", facts), Replan(f"{cmd.verb} hours by {by}"), Keep())
    return new, Reply(protocol.Result(cmd.id, True, text=text), done)


def _calibrate(state: JobState, cmd: protocol.Cmd, seen: Inputs, by: str) -> Reply:
    if cmd.args.get("show"):
        if state.curve is None:
            return _no(cmd, f"not calibrated yet{f': {seen.trial_text}' if seen.trial_text else ''}", 3)
        text, data = calibration.table(state.curve), msgspec.to_builtins(state.curve)
        return Reply(protocol.Result(cmd.id, True, text=text, data=data))
    why = calibration.refusal(state, seen)
    if seen.trial is not None:
        why = f"a calibration is running ({seen.trial_text})"
    if why:
        return _no(cmd, why, 1)
    low, high = (units.fmt_duration(seconds) for seconds in calibration.TAKES_S)
    text = f"calibrating: {low}, up to {high} if steps vary much; then see: carbontui calibrate --show"
    return Reply(protocol.Result(cmd.id, True, text=text), (StartCalibration(by),))


def _guess(state: JobState, cmd: protocol.Cmd, by: str) -> tuple[JobState, Reply]:
    work, accept = state.progress, cmd.args.get("accept") is True
    if work.guess is None or not (work.steps_total is None or work.guessed):
        known = "no source for one" if work.steps_total is None else f"the total is known: {work.steps_total} steps"
        return state, _no(cmd, f"no guess of the total steps: {known}", 3)
    steps, source = work.guess
    new = replace(state, progress=progress.agree(work, source if accept else ""))
    told = f"{steps} steps, guessed from {source}"
    facts = {"by": by, "accept": accept, "steps": steps, "source": source}
    done = (Record("guess", facts), Replan(f"guess {'accepted' if accept else 'refused'} by {by}"), Keep())
    text = f"planning with {told}" if accept else f"not planning with {told}"
    return new, Reply(protocol.Result(cmd.id, True, text=text), done)


def _rehearse(state: JobState, cmd: protocol.Cmd, seen: Inputs, by: str) -> tuple[JobState, Reply]:
    known = state.unloading
    if cmd.args.get("show"):
        data = {"phase": known.phase, "held": known.held, "verdict": known.verdict, **(known.facts or {})}
        text = unloading.words(known) if known.rehearsing else known.verdict or "never unloaded yet"
        return state, Reply(protocol.Result(cmd.id, True, text=text, data=data))
    if why := unload_rules.refusal(state, seen):
        awaits = {"awaits": "step"} if why == unload_rules.NO_STEP_YET else None
        return state, Reply(protocol.Result(cmd.id, False, error=why, exit_code=1, data=awaits))
    new = replace(state, unloading=unload_rules.begun(by, seen))
    done: tuple[Effect, ...] = (
        Record("rehearse", {"by": by}),
        LogLine(f"rehearsal of an unload requested by {by}"),
        Keep(),
    )
    return new, Reply(
        protocol.Result(cmd.id, True, text="rehearsing: it writes a checkpoint, exits and restarts"), done
    )


def _override(state: JobState, cmd: protocol.Cmd, seen: Inputs, by: str) -> tuple[JobState, Reply]:
    watts: float | None = None
    if cmd.verb == "cap":
        watts = _number(cmd.args.get("value_w"), "cap needs watts per GPU, like 300W")
        if refusal := capabilities.why_no_cap(state, seen, watts):
            return state, _no(cmd, refusal, 4)
    if cmd.verb == "boost" and (refusal := site_claim.why_no_boost(state, seen)):
        return state, _no(cmd, refusal, 4)
    until = _until(state, cmd, seen)
    held = override.apply(state.override, cmd.verb, by=by, expected_gen=cmd.override_gen, until_s=until, value_w=watts)
    new = replace(state, override=held)
    facts = {"verb": cmd.verb, "by": by, "until": cmd.args.get("until"), "value_w": watts, "gen": held.gen}
    done: tuple[Effect, ...] = (Record("override", facts), Replan(f"{cmd.verb} by {by}"), Keep())
    if cmd.verb == "pause":
        return new, Reply(effects=done, awaits="pause")
    if watts is not None:
        # repeating a cap that a board has dropped includes that board again
        new = replace(new, boards=replace(new.boards, left=boards.NONE_LEFT))
        again = (SetLimit(watts),) if state.asked.limit_w == watts else ()
        return new, Reply(effects=(*done, *again), awaits="cap")
    text = {"resume": "back to the plan", "boost": "flat out"}[cmd.verb]
    return new, Reply(protocol.Result(cmd.id, True, text=text + until_words(held, seen.now_s)), done)


def _until(state: JobState, cmd: protocol.Cmd, seen: Inputs) -> float | None:
    """`until` as epoch seconds of the job's clock; `for_s` counts from now. Raises OverrideError or ValueError."""
    now, until = seen.now_s, cmd.args.get("until")
    if cmd.args.get("for_s") is not None:
        asked: float | str = now + _number(cmd.args["for_s"], "for how long? like 30m or 2h")
    elif until is None:
        return None
    else:
        asked = budgets.parse_until(str(until), now)
    if not isinstance(asked, str):
        if asked <= now:
            raise OverrideError("that time is over already")
        if asked > now + OVERRIDE_MAX_S:
            raise OverrideError("that is more than a year away; without a time it holds until cleared")
        return asked
    # resolved now: the new plan is made around the override, and its next change would be the override's own end
    change = finish.planned(state, seen).next_at_s
    if change is None:
        raise OverrideError("the plan has no next change; say --for 30m or --until 18:00")
    return change


def _number(value: Any, wanted: str) -> float:
    """A number above zero, also as text. Raises OverrideError with what was `wanted`."""
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= NUMBER_MAX:
        raise OverrideError(wanted)
    return float(value)


# --- replies once the command has taken effect -------------------------------------------------------------------


def pause_held(state: JobState, cmd: protocol.Cmd, seen: Inputs) -> protocol.Result | None:
    """'paused at step N' once every rank has acknowledged; None before."""
    observed = state.decision.state
    if observed not in ("paused", "waiting", "unloaded"):
        return None
    how = "(SIGSTOP)" if state.asked.freeze else f"at step {state.progress.step}"
    text = f"paused {how}" if observed == "paused" else observed
    return protocol.Result(cmd.id, True, text=text + until_words(state.override, seen.now_s) + _unheard(state, seen))


def pause_asked(state: JobState, cmd: protocol.Cmd, seen: Inputs, why: str) -> protocol.Result:
    """The reply if no step has ended in time; `why` is the state's reason in words."""
    text = why if state.decision.why.code == "no_client" else f"asked, no boundary yet{_unheard(state, seen)}"
    return protocol.Result(cmd.id, True, text=text)


def _unheard(state: JobState, seen: Inputs) -> str:
    """'; silent: n2' if part of the job is not heard, so that it is unknown whether it is paused."""
    silent = attendance.silent(state.attendance, seen)
    return f"; silent: {', '.join(silent)}" if silent else ""


def cap_held(state: JobState, cmd: protocol.Cmd, seen: Inputs, watts: float) -> protocol.Result | None:
    """'capped' once the boards have accepted it, or why none did; None before they have answered."""
    asked = f"{watts:g} W per GPU"
    if state.decision.state in ("waiting", "unloaded"):
        return protocol.Result(cmd.id, True, text=f"asked for {asked}: set when it starts")
    if state.asked.limit_w != watts or seen.limits.pending:
        return None
    refused = boards.refused_cap(watts, seen)
    if refused.watts is not None:
        return protocol.Result(cmd.id, True, text=f"asked for {asked}, not capped: {refused.why}")
    answered = (seen.limits.outcomes.get(reading.uuid) for reading in seen.devices)
    notes = [outcome.text for outcome in answered if outcome and outcome.ok and outcome.text]
    told = f"asked for {asked}: {'; '.join(dict.fromkeys(notes))}" if notes else f"capped at {asked}"
    return protocol.Result(cmd.id, True, text=told + until_words(state.override, seen.now_s))


def cap_asked(cmd: protocol.Cmd, watts: float) -> protocol.Result:
    """The reply if no board has answered in time."""
    return protocol.Result(cmd.id, True, text=f"asked for {watts:g} W per GPU; the driver has not answered yet")


def until_words(held: Overrides, now_s: float) -> str:
    """', until 18:00 CET' if the override in force has an end."""
    return "" if held.until_s is None else f", until {units.fmt_named_clock(held.until_s, now_s)}"


def _no(cmd: protocol.Cmd, why: str, code: int) -> Reply:
    return Reply(protocol.Result(cmd.id, False, error=why, exit_code=code))
