"""Lines of carbontui.log, and what caused a new plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from carbontui import protocol, units
from carbontui.text import figures
from carbontui.text.forms import PARTS, Table


def _fault_logged(*, part: str, text: str, where: Mapping[str, object], now_s: float) -> str:
    return f"error in {PARTS.get(part, part)}: {text} ({where['name']}, line {where['line']} of {where['file']})"


def _journal_lost(*, aside: str | None, begins: str, now_s: float) -> str:
    what = "journal.db was gone" if aside is None else f"journal.db was damaged and is now {aside}"
    return f"{what}: {begins}"


def _continues(*, at: str, measured_again: bool, now_s: float) -> str:
    again = "; watts and latencies are measured again" if measured_again else ""
    return f"the account continues from the status of {at}{again}"


def _unknown(*, energy_too: bool, now_s: float) -> str:
    return ("energy is counted from now on, " if energy_too else "") + "CO2, cost and avoided CO2 are not known"


LOG: Table = {
    "fault": "error in {part:part} ({text}); see carbontui.log",
    "fault_logged": _fault_logged,
    "disk_low": "less than 1 GB is free on the disk of run.log ({folder})",
    "disk_slow": "the disk of the job's files is slow (one write took {took_s:duration}): rows wait in memory",
    "rows_dropped": "{rows:count} rows of the journal are lost: the disk did not take them",
    "orders_unstored": "orders are not stored ({why}): they end if the supervisor is replaced",
    "setting_unread": "{part:part} could not be read: the default is in force, what is stored stays as it is",
    "no_locks": "this file system has no POSIX locks: the journal is written under the keeper's lock alone",
    "order_taken": "order taken from orders.log: {verb} by {by}",
    "order_refused": "order of {by} refused: {why}",
    "clock_set": "the clock was set by {jump_s:shift}",
    "over_now": "the job is over: {why}",
    "no_new_keeper": "no new keeper: {why}",
    "keeper_replaced": "the keeper is gone while the command is {state}: {pid} takes its place",
    "keeper_gone": "the keeper is gone: no restart from here on",
    "stored_left_out": "{deaths} supervisors fell silent one after another: starting without {part:part}",
    "journal_lost": _journal_lost,
    "journal_lost_logged": "{missing}; earlier curves and events are not in the new journal",
    "lost_continues": _continues,
    "lost_rows": "the account continues; earlier CO2 and cost are no longer revised with the grid's values",
    "lost_unknown": _unknown,
    "stop_asked": "stop requested by {by}",
    "stop_asked_now": "stop requested by {by} (now)",
    "rehearsal_asked": "rehearsal of an unload requested by {by}",
    "unload": "unload: {result}",
    "calibration_begun": "calibration started by {by}",
    "curve_too_high": "the speed curve of an earlier run is of {drawn:.0f} W at full speed; "
    "{allowed:.0f} W are allowed now",
    "curve_reused": "speed curve of an earlier run reused: {levels} levels",
    "curve_assumed_imported": "speeds under caps assumed from an imported curve until this job is calibrated: "
    "{levels} levels",
    "curve_assumed_public": "speeds under caps assumed from public measurements until this job is calibrated: "
    "{levels} levels",
    "no_own_forecast": "no own forecast: {why}",
    "no_new_plan": "no new plan: {why}",
    "boards_disowned": "not the training's boards, {joules:,.0f} J taken back: {boards:list}",
    # causes of a new plan
    "cause_start": "start",
    "cause_slot": "slot",
    "cause_budget": "budget {budget:budget} by {by}",
    "cause_allowance": "{kind} budget {most} by {by}",
    "cause_allowances": "an allowance",
    "cause_hours": "{verb} hours by {by}",
    "cause_guess_taken": "guess accepted by {by}",
    "cause_guess_left": "guess refused by {by}",
    "cause_override": "{verb} by {by}",
    "cause_override_over": "the override ended",
    "cause_caps": "limits can be set",
    "cause_no_caps": "limits cannot be set",
    "cause_tried": "tried",
    "cause_unload_known": "whether it can be unloaded is known",
    "cause_watts_known": "the watts at full speed are known",
    "cause_site": "site budget",
    "cause_grid": "new grid data",
    "cause_clock": "the clock was set",
    "cause_curve_found": "a speed curve was found",
    "cause_curve_simulated": "speeds under caps are simulated",
    "cause_curve_assumed": "a speed curve is assumed",
}


Facts = Mapping[str, Any]


def event_line(at_s: float, kind: str, facts: Facts) -> protocol.Event | None:
    """The event as viewers see it; None if it is of no interest to users, or cannot be read."""
    words = _WORDS.get(kind)
    try:
        text = words(facts, at_s) if words else ""
        found = protocol.Event(units.iso(at_s), kind, text, str(facts.get("by") or ""))
        if kind == "state":
            found = structs.replace(found, state=str(facts["state"]))
        elif kind == "plan":
            whole = facts.get("whole_g")
            found = structs.replace(
                found,
                finish=str(facts["finish"]),
                gco2_g=float(facts["gco2_g"]),
                whole_g=None if whole is None else float(whole),
            )
        return found if text else None
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def _override(facts: Facts, at_s: float) -> str:
    done = {"pause": "paused it", "boost": "boosted it", "resume": "went back to the plan"}
    verb = str(facts["verb"])
    what = f"capped it at {float(facts['value_w']):g} W per GPU" if verb == "cap" else done[verb]
    until = f", until {facts['until']}" if facts.get("until") else ""
    return f"{facts['by']} {what}{until}"


def _budget(facts: Facts, at_s: float) -> str:
    other = next((f"{kind} budget {facts[kind]:g}" for kind in ("carbon", "cost", "energy") if facts.get(kind)), "")
    return f"{facts['by']} set {other or 'the budget to ' + figures.budget(str(facts['budget']), at_s)}"


def _plan(facts: Facts, at_s: float) -> str:
    finish = figures.clock(units.from_iso(str(facts["finish"])), at_s)
    # the whole where it is known: later plans have less to come, whatever they save
    whole = facts.get("whole_g")
    left = f"{figures.grams(float(facts['gco2_g']))} to come"
    grams = left if whole is None else f"{figures.grams(float(whole))} in all"
    return f"new plan ({facts['why']}): done {finish}, {grams}"


def _end(facts: Facts, at_s: float) -> str:
    how = facts.get("signal")
    return f"{facts['state']}: {f'signal {how}' if how else 'exit ' + str(facts.get('code'))}"


_WORDS: dict[str, Callable[[Facts, float], str]] = {
    "override": _override,
    "override_over": lambda facts, at_s: f"the {facts['mode']} of {facts['by']} is over",
    "budget": _budget,
    "hours": lambda facts, at_s: f"{facts['by']}: {facts['text']}",
    "stop": lambda facts, at_s: f"{facts['by']} stopped it{' now' if facts.get('now') else ''}",
    "state": lambda facts, at_s: f"{facts['state']}: {facts['text']}",
    "plan": _plan,
    "calibration": lambda facts, at_s: " ".join(filter(None, ("calibration", facts.get("action"), facts.get("text")))),
    "clock": lambda facts, at_s: f"the clock was set by {figures.duration(abs(float(facts['jump_s'])))}",
    "revised": lambda facts, at_s: f"the grid's values were revised: {facts['text']}",
    "journal_lost": lambda facts, at_s: str(facts["text"]),
    "tried": lambda facts, at_s: str(facts["text"]),
    "end": _end,
}
PERSONAL = frozenset({"override", "override_over", "budget", "hours", "stop"})
"""Events caused by a user: shown in the event line."""
