"""When an allowance will be used up, and which actions that triggers.

Actions are tried in the user's order. `warn`, `cap` and `ask` respond to the forecast: each only if the ones before
it leave the expected total above the allowance. `pause`, `stop` and `stop!` wait until it is used up. Training that
cannot be stopped goes on, and reports what it uses.
"""

from collections.abc import Sequence
from dataclasses import replace

from carbontui import protocol, units
from carbontui.account import expected_end as account
from carbontui.account.expected_end import WorkSegment
from carbontui.job.supervisor.core.planning import expected_end, machine
from carbontui.job.supervisor.core.planning.problem import DEFAULT_UNLOAD_S
from carbontui.job.supervisor.core.state.allowances import Allowances, NoCap, Prospect
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.state.plan import PAUSE, UNLOAD, PlanChoice
from carbontui.job.terms.allowance import Allowance, AllowanceKind, OnBudget
from carbontui.protocol import Statement, Why, statement

CHECKED_EVERY_S = 10.0
"""Machine seconds between two forecasts of the totals; actual use is compared at every tick."""
CHECKED_EVERY_REPLAY_S = 0.5
ASK_S = 600.0
"""A question not answered by then is dropped; training has continued meanwhile."""
RELIEF = 0.97
"""Hysteresis: an action ends once this share of the allowance would suffice without it."""
RESERVE_MOST = 0.05
"""At most this share of an allowance is reserved for the last checkpoint."""

# --- the judgement -----------------------------------------------------------------------------------------------


def with_allowances(state: JobState, inputs: Inputs) -> JobState:
    """The state with its allowances compared with actual and expected use, and the actions chosen."""
    held = state.allowances
    if not held.given:
        return state
    used = state.totals.of
    if not state.live:
        ended = tuple(p._replace(used=used(p.allowance.kind), expected=None) for p in held.prospects)
        return replace(state, allowances=replace(held, prospects=ended))
    every = CHECKED_EVERY_REPLAY_S if state.clock.replay else CHECKED_EVERY_S
    if inputs.mono_s - held.checked_mono_s >= every:
        held = _exhausted_ahead(state, inputs)
    else:
        known = [(p, used(p.allowance.kind), p.expected) for p in held.prospects]
        # an expected total is no less than what was used since it was made
        least = (p._replace(used=now, expected=None if whole is None else max(whole, now)) for p, now, whole in known)
        held = replace(held, prospects=tuple(least))
    return replace(state, allowances=_used_up(state, inputs, held))


def _exhausted_ahead(state: JobState, inputs: Inputs) -> Allowances:
    """The expected totals, and the actions they call for."""
    share = _forecast_share(state, inputs)
    held = replace(state.allowances, checked_mono_s=inputs.mono_s, no_cap="", forecast_share=share)
    freely = _prospects(state, inputs, None)
    if _fits(freely, RELIEF if held.cap_w is not None or held.asked_s is not None or held.over else 1.0):
        return replace(held, prospects=freely, over=(), cap_w=None, asked_s=None)
    cap_w: float | None = None
    why: NoCap = ""
    prospects = freely
    if "cap" in held.order:
        cap_w, why, prospects = _cap(state, inputs, freely)
    over = _exceeded(prospects)
    asks = "ask" in held.order and bool(over)
    asked_s = (inputs.now_s if held.asked_s is None else held.asked_s) if asks else None
    return replace(held, prospects=prospects, over=over, cap_w=cap_w, no_cap=why, asked_s=asked_s)


def _cap(
    state: JobState, inputs: Inputs, freely: tuple[Prospect, ...]
) -> tuple[float | None, NoCap, tuple[Prospect, ...]]:
    """The fastest cap under which everything fits, else the one that uses least; else the reason for no cap."""
    caps = sorted(machine.caps(state), key=lambda entry: -entry.cap_w)
    if not caps:
        return None, "no_limits" if not state.caps_hold else "unmeasured", freely
    found = [(entry.cap_w, _prospects(state, inputs, entry.cap_w)) for entry in caps]
    for cap_w, prospects in found:
        if _fits(prospects, 1.0):
            return cap_w, "", prospects
    first = _exceeded(freely)[0] if _exceeded(freely) else None
    totals = [(_expected(prospects, first), cap_w, prospects) for cap_w, prospects in found]
    total, cap_w, prospects = min(totals, key=lambda entry: entry[0])
    if total >= _expected(freely, first):
        return None, "none_saves", freely
    return cap_w, "", prospects


def _used_up(state: JobState, inputs: Inputs, allowances: Allowances) -> Allowances:
    """pause or stop once nothing is left, keeping a reserve for the last checkpoint."""
    reserve = _reserve(state, inputs) if "stop" in allowances.order else {}

    def gone(entry: Prospect) -> bool:
        kept_back = min(RESERVE_MOST * entry.allowance.most, reserve.get(entry.allowance.kind, 0.0))
        return entry.used >= entry.allowance.most - kept_back

    spent = next((entry.allowance.kind for entry in allowances.prospects if gone(entry)), None)
    if spent is None:
        return replace(allowances, spent=None, act=None, no_stop=False)
    act: OnBudget | None = None
    unable = False
    for step in allowances.order:
        if step == "stop" and allowances.act != "stop" and not _can_stop(inputs):
            unable = True  # without a checkpoint function
            continue
        if step in ("pause", "stop", "stop!"):
            act = step
            break
    return replace(allowances, spent=spent, act=act, no_stop=unable)


def _can_stop(inputs: Inputs) -> bool:
    leader = inputs.leader
    return inputs.child.state == "unloaded" or (leader is not None and leader.can_unload)


def _will_not_stop(state: JobState, inputs: Inputs) -> bool:
    """Whether the action `stop` would not stop this training, as its first steps show: while it can be chosen anew."""
    held = state.allowances
    needed = held.given and "stop" in held.order and not {"pause", "stop!"} & set(held.order) and held.spent is None
    return bool(needed) and inputs.leader is not None and state.progress.step > 0 and not _can_stop(inputs)


def _reserve(state: JobState, inputs: Inputs) -> dict[AllowanceKind, float]:
    """What writing a checkpoint and exiting uses, at full speed."""
    watts = machine.full_wall_w(state, inputs)
    if watts is None:
        return {}
    kwh = units.joules_to_kwh(watts * DEFAULT_UNLOAD_S)
    intensity = None if state.outlook is None else state.outlook.value_at(inputs.now_s)
    return {"energy": kwh, "carbon": kwh * (intensity or 0.0), "cost": kwh * (state.spec.price_per_kwh or 0.0)}


# --- the figures -------------------------------------------------------------------------------------------------


def _prospects(state: JobState, inputs: Inputs, cap_w: float | None) -> tuple[Prospect, ...]:
    rest = expected_end.stretches(state, inputs, cap_w)
    endless = expected_end.endless(state, inputs) if rest is None else None
    return tuple(_prospect(state, inputs, entry, rest, endless) for entry in state.allowances.given)


def _prospect(
    state: JobState,
    inputs: Inputs,
    entry: Allowance,
    rest: Sequence[WorkSegment] | None,
    endless: Sequence[WorkSegment] | None,
) -> Prospect:
    used = state.totals.of(entry.kind)
    ahead = rest if rest is not None else endless
    priced = _per_kwh(state, entry.kind)
    if ahead is None or priced is None:
        return Prospect(entry, used)
    rent = (state.spec.gpu_price or 0.0) * max(1, len(inputs.devices)) if entry.kind == "cost" else 0.0
    start_s, step_s, values = priced
    remaining_total = account.remaining_total(ahead, start_s, step_s, values, rent_per_h=rent)
    if remaining_total is None:
        return Prospect(entry, used)
    expected = used + remaining_total if rest is not None else None
    gone = account.used_up_at(entry.most - used, ahead, start_s, step_s, values, rent_per_h=rent)
    return Prospect(entry, used, expected, gone)


def _per_kwh(state: JobState, kind: AllowanceKind) -> tuple[float, float, Sequence[float | None]] | None:
    """(start, slot seconds, value per kWh and slot) of the counted quantity; None if unknown."""
    outlook = state.outlook
    if kind == "energy":
        return 0.0, 900.0, (1.0,)
    if kind == "carbon":
        return None if outlook is None else (outlook.start_s, outlook.step_s, outlook.mean)
    return expected_end.prices(state)


def _fits(prospects: Sequence[Prospect], share: float) -> bool:
    """Whether no allowance is expected to be exceeded; an unknown total is no reason to act."""
    return all(p.expected is None or p.expected <= share * p.allowance.most for p in prospects)


def _exceeded(prospects: Sequence[Prospect]) -> tuple[AllowanceKind, ...]:
    return tuple(p.allowance.kind for p in prospects if p.expected is not None and p.expected > p.allowance.most)


def _expected(prospects: Sequence[Prospect], kind: AllowanceKind | None) -> float:
    return next((p.expected or 0.0 for p in prospects if p.allowance.kind == kind), 0.0)


def _forecast_share(state: JobState, inputs: Inputs) -> float:
    end = expected_end.at_end(state, inputs)
    if end is None or end.gco2_hi_g is None:
        return 0.0
    rest_g = end.gco2_g - (state.totals.gco2_g or 0.0)
    return max(0.0, (end.gco2_hi_g - end.gco2_g) / rest_g) if rest_g > 0 else 0.0


# --- what follows ------------------------------------------------------------------------------------------------


def holds(state: JobState) -> PlanChoice | None:
    """The level that a used-up allowance holds the job at, and why; None if none is used up."""
    held = state.allowances
    if held.act is None or held.act == "stop!" or held.spent is None:
        return None
    spent = next(entry for entry in held.given if entry.kind == held.spent)
    amount, stop = spent.amount(state.spec.currency), held.act == "stop"
    said = statement("used_up_leaving" if stop else "used_up_paused", kind=spent.kind, amount=amount)
    return PlanChoice(UNLOAD if stop else PAUSE, Why("budget_stop", said), "allowance")


def why_last(state: JobState) -> Statement | None:
    """For the keeper: why the command must not be restarted after its next exit; None if it may be."""
    held = state.allowances
    if held.act not in ("stop", "stop!") or held.spent is None:
        return None
    spent = next(entry for entry in held.given if entry.kind == held.spent)
    return statement("used_up", kind=spent.kind, amount=spent.amount(state.spec.currency))


def notices(state: JobState, inputs: Inputs) -> list[Statement]:
    """One per allowance that is, or will be, exceeded, with the action taken; and that `stop` will not be able to."""
    held, now_s = state.allowances, inputs.now_s
    found = [one for prospect in held.prospects if (one := _notice(state, prospect, now_s))]
    if held.cap_w is not None and not held.over:
        kinds = tuple(entry.kind for entry in held.given)
        found.append(statement("capped_for_allowances", watts=held.cap_w, kinds=kinds))
    if _will_not_stop(state, inputs):
        found.append(statement("allowance_cannot_stop", why=state.why_kept))
    return found


def _notice(state: JobState, prospect: Prospect, now_s: float) -> Statement | None:
    """The notice for one allowance; None while it suffices, or if no warning was requested."""
    held, entry, currency = state.allowances, prospect.allowance, state.spec.currency
    kind, most, used = entry.kind, entry.amount(currency), entry.amount(currency, prospect.used)
    question = _question(entry, held, currency, now_s)
    if prospect.used >= entry.most:
        # an exceeded allowance is reported whether or not `warn` was requested
        if held.act == "pause":
            then = statement("allowance_pauses")
        elif held.act is not None:
            then = statement("allowance_ends") if held.act == "stop" else statement("allowance_interrupts")
        else:
            kept = statement("allowance_cannot_end", why=state.why_kept)
            goes_on = kept if held.no_stop else statement("allowance_goes_on")
            then = statement("with_question", said=goes_on, question=question)
        return statement("allowance_used_up", kind=kind, most=most, used=used, then=then)
    if kind not in held.over:
        return None
    if "warn" not in held.order:
        return statement("allowance_question", kind=kind, most=most, question=question[0]) if question else None
    assert prospect.expected is not None
    return statement(
        "allowance_not_enough",
        kind=kind,
        most=most,
        expected=entry.amount(currency, prospect.expected),
        used_up_s=prospect.used_up_s,
        cap_w=held.cap_w,
        more=((statement("no_cap", why=held.no_cap),) if held.no_cap else ()) + question,
    )


def _question(entry: Allowance, allowances: Allowances, currency: str | None, now_s: float) -> tuple[Statement, ...]:
    """What the user is asked; () where nothing is."""
    if allowances.asked_s is None:
        return ()
    until_s = allowances.asked_s + ASK_S
    if now_s >= until_s:
        return (statement("question_unanswered"),)
    example = {"carbon": "3kg", "cost": f"20{currency or 'EUR'}", "energy": "8kWh"}[entry.kind]
    return (statement("question", example=example, until_s=until_s),)


def on_wire(state: JobState) -> tuple[protocol.AllowanceStatus, ...]:
    """As viewers see them."""
    held = state.allowances
    doing = held.act or ("ask" if held.asked_s is not None else "cap" if held.cap_w is not None else None)
    if doing is None and held.over:
        doing = "warn" if "warn" in held.order else None
    unit = {"carbon": "gCO2", "cost": state.spec.currency or "", "energy": "kWh"}
    return tuple(
        protocol.AllowanceStatus(
            kind=p.allowance.kind,
            most=p.allowance.most,
            unit=unit[p.allowance.kind],
            used=round(p.used, 9),
            expected=None if p.expected is None else round(p.expected, 9),
            used_up_at=None if p.used_up_s is None else units.iso(p.used_up_s),
            act=doing,
        )
        for p in held.prospects or tuple(Prospect(entry, state.totals.of(entry.kind)) for entry in held.given)
    )
