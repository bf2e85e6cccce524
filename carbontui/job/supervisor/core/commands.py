"""User commands: each is fully checked before anything changes, so a refused one changes nothing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec

from carbontui import protocol, units
from carbontui.job.keeper.messages import Stop
from carbontui.job.supervisor.core.effects import Effect, Keep, LogLine, Record, Replan, SetLimit, StartCalibration
from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.rules import calibration, capabilities, site_claim, unload_rules
from carbontui.job.supervisor.core.state import boards, forbidden, membership, override, progress, unloading
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.override import OverrideError
from carbontui.job.supervisor.core.state.plan import Worth
from carbontui.job.terms import budget as budgets
from carbontui.job.terms.allowance import Allowance, checked, recognised
from carbontui.protocol import Fact, Statement, statement, written

OVERRIDE_MAX_S = 366 * 86400.0
"""The longest override with an end; without an end it holds until cleared."""
NUMBER_MAX = 1e18
"""The largest number on the wire: viewers would refuse any status with a larger one (`protocol.NonNegative`)."""


class Answered(NamedTuple):
    """What is answered: refused if there is an exit code. `data` is the same for machines."""

    said: Statement
    exit_code: int = 0
    data: Mapping[str, Fact] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """`answer` is None while it waits for a pause or cap to take effect; `effects` are to be performed."""

    answer: Answered | None = None
    effects: tuple[Effect, ...] = ()
    awaits: Literal["pause", "cap"] | None = None


def apply(
    state: JobState, cmd: protocol.Cmd, inputs: Inputs, by: str, *, accepted: bool = False
) -> tuple[JobState, Reply]:
    """The state after one command of `by`, with its reply and effects; a refused command leaves the state unchanged.

    `accepted`: it was taken before, so boards and site budget are not asked again.
    """
    if not state.live:
        return state, _no(statement("job_over", job=state.spec.job, state=state.decision.state), 3)
    try:
        if cmd.verb == "stop":
            return state, _stop(cmd, by)
        if cmd.verb == "budget":
            return _budget(state, cmd, inputs, by)
        if cmd.verb in ("forbid", "allow"):
            return _hours(state, cmd, inputs, by)
        if cmd.verb == "calibrate":
            return state, _calibrate(state, cmd, inputs, by)
        if cmd.verb == "rehearse":
            return _rehearse(state, cmd, inputs, by)
        if cmd.verb == "guess":
            return _guess(state, cmd, by)
        return _override(state, cmd, inputs, by, accepted=accepted)
    except OverrideError as refusal:
        return state, _no(refusal.said, 2)
    except ValueError as error:  # of a user's text: names it, and the forms that are understood
        return state, _no(written(str(error)), 2)


def _stop(cmd: protocol.Cmd, by: str) -> Reply:
    now = bool(cmd.args.get("now"))
    asked = statement("stop_asked_now", by=by) if now else statement("stop_asked", by=by)
    return Reply(Answered(statement("will_stop")), (Record("stop", {"by": by, "now": now}), LogLine(asked), Stop(now)))


def _budget(state: JobState, cmd: protocol.Cmd, inputs: Inputs, by: str) -> tuple[JobState, Reply]:
    text, now = str(cmd.args.get("budget", "")), inputs.now_s
    if (allowance := recognised(text, state.spec.currency)) is not None:
        return _allowance(state, allowance, by)
    new = replace(state, budget=budgets.parse(text, now), worth=Worth())
    deadline, left = new.budget_deadline_s, new.progress.left_s
    if new.budget.kind == "duration" and deadline is not None and deadline < now - budgets.PAST_S:
        raise ValueError(f"budget {text!r}: it counts from the job's start, and is over already")
    late: tuple[Statement, ...] = ()
    if deadline is not None and left is not None and now + left > deadline + finish.late_tolerance_s(new):
        late = (statement("unreachable_at_full_speed", end_s=now + left),)
    why = statement("cause_budget", budget=text, by=by)
    done = (Record("budget", {"by": by, "budget": text}), Replan(why), Keep())
    return new, Reply(Answered(statement("budget_set", budget=text, until_s=deadline, late=late)), done)


def _allowance(state: JobState, new: Allowance, by: str) -> tuple[JobState, Reply]:
    """Set another carbon, cost or energy budget; the actions for the old one are chosen anew."""
    new, currency = checked(new), state.spec.currency
    used, most = new.amount(currency, state.totals.of(new.kind)), new.amount(currency)
    why = statement("cause_allowance", kind=new.kind, most=most, by=by)
    done = (Record("budget", {"by": by, new.kind: new.most}), Replan(why), Keep())
    after = replace(state, allowances=state.allowances.with_(new), worth=Worth())
    return after, Reply(Answered(statement("allowance_set", kind=new.kind, most=most, used=used)), done)


def _hours(state: JobState, cmd: protocol.Cmd, inputs: Inputs, by: str) -> tuple[JobState, Reply]:
    """Forbid hours or allow them again: a constraint on every plan from now on."""
    now, asked = inputs.now_s, cmd.args.get("hours")
    held = forbidden.current(state.forbidden, now)
    if cmd.verb == "forbid":
        meant = forbidden.parse(str(asked or ""), now, by)
        new = replace(state, forbidden=forbidden.added(held, meant))
        left, deadline = new.progress.left_s, new.deadline_s
        late: tuple[Statement, ...] = ()
        if left is not None and deadline is not None:
            soonest = finish.soonest_s(new, now, left)
            if soonest > deadline + finish.late_tolerance_s(new):
                late = (statement("budget_unreachable_at_full_speed", end_s=soonest),)
        told = statement("forbidden", hours=meant.said, late=late)
    elif not held:
        return state, _no(statement("nothing_forbidden"), 3)
    else:
        wanted = None if asked is None else forbidden.parse(str(asked), now)
        gone = tuple(
            one for one in held if wanted is None or (one.start_s, one.end_s) == (wanted.start_s, wanted.end_s)
        )
        if not gone:
            known = tuple(one.said for one in held)
            return state, _no(statement("hours_not_forbidden", hours=asked, known=known), 3)
        new = replace(state, forbidden=tuple(one for one in held if one not in gone))
        told = statement("allowed", hours=tuple(one.said for one in gone))
    facts = {"verb": cmd.verb, "by": by, "hours": asked, "text": told}
    done = (Record("hours", facts), Replan(statement("cause_hours", verb=cmd.verb, by=by)), Keep())
    return new, Reply(Answered(told), done)


def _calibrate(state: JobState, cmd: protocol.Cmd, inputs: Inputs, by: str) -> Reply:
    if cmd.args.get("show"):
        if state.curve is None:
            return _no(statement("not_calibrated", last=state.calibrating.said), 3)
        return Reply(Answered(statement("curve", curve=state.curve), data=msgspec.to_builtins(state.curve)))
    why = calibration.refusal(state, inputs)
    if state.calibrating.level is not None:
        why = statement("calibration_runs", progress=state.calibrating.said)
    if why:
        return _no(why, 1)
    low_s, high_s = calibration.TAKES_S
    return Reply(Answered(statement("calibrating", low_s=low_s, high_s=high_s)), (StartCalibration(by),))


def _guess(state: JobState, cmd: protocol.Cmd, by: str) -> tuple[JobState, Reply]:
    work, accept = state.progress, cmd.args.get("accept") is True
    if work.guess is None or not (work.steps_total is None or work.guessed):
        if work.steps_total is None:
            return state, _no(statement("no_guess"), 3)
        return state, _no(statement("no_guess_needed", steps=work.steps_total), 3)
    steps, source = work.guess
    new = replace(state, progress=progress.agree(work, source if accept else progress.NONE))
    facts: dict[str, Fact] = {"by": by, "accept": accept, "steps": steps, "source": source}
    told = statement("guess_taken" if accept else "guess_left", steps=steps, source=source)
    why = statement("cause_guess_taken" if accept else "cause_guess_left", by=by)
    return new, Reply(Answered(told), (Record("guess", facts), Replan(why), Keep()))


def _rehearse(state: JobState, cmd: protocol.Cmd, inputs: Inputs, by: str) -> tuple[JobState, Reply]:
    known = state.unloading
    if cmd.args.get("show"):
        data = {"phase": known.phase, "held": known.resumes, "verdict": known.result or "", **unloading.facts(known)}
        said = unloading.said(known) if known.rehearsing else known.result or statement("never_unloaded")
        return state, Reply(Answered(said, data=data))
    if why := unload_rules.refusal(state, inputs):
        return state, Reply(Answered(why, 1, {"awaits": "step"} if why.code == "no_step_yet" else None))
    new = replace(state, unloading=unload_rules.begun(by, inputs))
    done = (Record("rehearse", {"by": by}), LogLine(statement("rehearsal_asked", by=by)), Keep())
    return new, Reply(Answered(statement("rehearsal_begins")), done)


def _override(state: JobState, cmd: protocol.Cmd, inputs: Inputs, by: str, *, accepted: bool) -> tuple[JobState, Reply]:
    watts: float | None = None
    if cmd.verb == "cap":
        watts = _number(cmd.args.get("value_w"), override.NO_WATTS)
        if not accepted and (refusal := capabilities.why_no_cap(state, inputs, watts)):
            return state, _no(refusal, 4)
    if cmd.verb == "boost" and not accepted and (refusal := site_claim.why_no_boost(state, inputs)):
        return state, _no(refusal, 4)
    until = _until(state, cmd, inputs)
    held = override.apply(state.override, cmd.verb, by=by, expected_gen=cmd.override_gen, until_s=until, value_w=watts)
    new = replace(state, override=held)
    ends = None if until is None else units.iso(until)
    facts = {"verb": cmd.verb, "by": by, "until": ends, "value_w": watts, "gen": held.gen}
    why = statement("cause_override", verb=cmd.verb, by=by)
    done: tuple[Effect, ...] = (Record("override", facts), Replan(why), Keep())
    if cmd.verb == "pause":
        return new, Reply(effects=done, awaits="pause")
    if watts is not None:
        # repeating a cap that a board has dropped includes that board again
        new = replace(new, boards=replace(new.boards, left=boards.NONE_LEFT))
        again = (SetLimit(watts),) if state.asked.limit_w == watts else ()
        return new, Reply(effects=(*done, *again), awaits="cap")
    said = statement("resumed") if cmd.verb == "resume" else statement("boosted", until_s=held.until_s)
    return new, Reply(Answered(said), done)


def _until(state: JobState, cmd: protocol.Cmd, inputs: Inputs) -> float | None:
    """`until` as epoch seconds of the job's clock; `for_s` counts from now. Raises OverrideError or ValueError."""
    now, until = inputs.now_s, cmd.args.get("until")
    if cmd.args.get("for_s") is not None:
        asked: float | str = now + _number(cmd.args["for_s"], statement("no_duration"))
    elif until is None:
        return None
    else:
        asked = budgets.parse_until(str(until), now)
    if not isinstance(asked, str):
        if asked <= now:
            raise OverrideError(statement("in_the_past"))
        if asked > now + OVERRIDE_MAX_S:
            raise OverrideError(statement("over_a_year_away"))
        return asked
    # resolved now: the new plan is made around the override, and its next change would be the override's own end
    change = finish.planned(state, inputs).next_at_s
    if change is None:
        raise OverrideError(statement("no_next_change"))
    return change


def _number(value: object, wanted: Statement) -> float:
    """A number above zero, also as text. Raises OverrideError with what was `wanted`."""
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= NUMBER_MAX:
        raise OverrideError(wanted)
    return float(value)


# --- answers once the command has taken effect -------------------------------------------------------------------


def pause_held(state: JobState, inputs: Inputs) -> Answered | None:
    """'paused at step N' once every rank has acknowledged; None before."""
    observed, until_s = state.decision.state, state.override.until_s
    if observed not in ("paused", "waiting", "unloaded"):
        return None
    silent = _unreached(state, inputs)
    if observed != "paused":
        return Answered(statement("still_already", state=observed, until_s=until_s, silent=silent))
    if state.asked.freeze:
        return Answered(statement("paused_by_signal", until_s=until_s, silent=silent))
    return Answered(statement("paused", step=state.progress.step, until_s=until_s, silent=silent))


def pause_asked(state: JobState, inputs: Inputs) -> Answered:
    """The answer if no step has ended in time."""
    why = state.decision.why
    return Answered(why.said if why.code == "no_client" else statement("pause_asked", silent=_unreached(state, inputs)))


def _unreached(state: JobState, inputs: Inputs) -> tuple[Statement, ...]:
    """Says which part of the job is not heard, so that it is unknown whether it is paused; () if all is."""
    silent = membership.silent(state.membership, inputs)
    return (statement("silent", names=silent),) if silent else ()


def cap_held(state: JobState, inputs: Inputs, watts: float) -> Answered | None:
    """'capped' once the boards have accepted it, or why none did; None before they have answered."""
    if state.decision.state in ("waiting", "unloaded"):
        return Answered(statement("cap_at_start", watts=watts))
    if state.asked.limit_w != watts or inputs.limits.pending:
        return None
    refused = boards.refused_cap(watts, inputs)
    if refused.watts is not None:
        return Answered(statement("not_capped", watts=watts, why=refused.why))
    answered = (inputs.limits.outcomes.get(reading.uuid) for reading in inputs.devices)
    notes = dict.fromkeys(outcome.text for outcome in answered if outcome and outcome.ok and outcome.text)
    until_s = state.override.until_s
    if notes:
        return Answered(statement("cap_taken", watts=watts, how=tuple(notes), until_s=until_s))
    return Answered(statement("capped", watts=watts, until_s=until_s))


WAITING = ("pause_asked", "cap_unanswered", "cap_at_start")
"""Answers that say themselves what they wait for."""


def ordered(answer: Answered, *, stored: bool, unreached: bool) -> Statement:
    """The answer to an order with how far it is in force. `unreached`: the keeper does not answer."""
    force = "keeper" if unreached else "" if answer.said.code in WAITING else "now"
    return statement("ordered", said=answer.said, force=force, stored=stored)


def _no(why: Statement, code: int) -> Reply:
    return Reply(Answered(why, code))
