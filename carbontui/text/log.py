"""Lines of carbontui.log, and what caused a new plan."""

from collections.abc import Mapping
from typing import Any

from carbontui import units
from carbontui.text import figures
from carbontui.text.forms import PARTS, Table, led, state_word


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
    "no_locks": "this file system has no POSIX locks: the journal is written under the monitor process's lock alone",
    "order_taken": "order taken from orders.log: {verb} by {by}",
    "order_refused": "order of {by} refused: {why}",
    "clock_set": "the clock was set by {jump_s:shift}",
    "slept": "the machine slept for {jump_s:duration}",
    "over_now": "the job is over: {why}",
    "no_new_keeper": "no new monitor process: {why}",
    "keeper_replaced": "the monitor process is gone while the command is {state}: {pid} takes its place",
    "keeper_gone": "the monitor process is gone: no restart from here on",
    "stored_left_out": "{deaths} supervisors fell silent one after another: starting without {part:part}",
    "journal_lost": _journal_lost,
    "journal_lost_logged": "{missing}; earlier curves and events are not in the new journal",
    "lost_continues": _continues,
    "lost_rows": "the account continues; earlier CO2 and cost are no longer revised with the grid's values",
    "lost_unknown": _unknown,
    "stop_asked": "stop requested by {by}",
    "stop_asked_now": "stop requested by {by} (now)",
    "rehearsal_asked": "test of an unload and resume requested by {by}",
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
    "boards_disowned": "not the training's GPUs, {joules:,.0f} J taken back: {boards:list}",
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
    "cause_watts_moved": "the watts that count are others now",
    "cause_site": "site budget",
    "cause_grid": "new grid data",
    "cause_clock": "the clock was set, or the machine slept",
    "cause_curve_found": "a speed curve was found",
    "cause_curve_simulated": "speeds under caps are simulated",
    "cause_curve_assumed": "a speed curve is assumed",
}


# --- events of the journal ---


def _override(*, verb: str, by: str, now_s: float, value_w: Any = None, until: Any = None, **_: Any) -> str:
    done = {"pause": "paused it", "boost": "boosted it", "resume": "went back to the plan"}
    what = f"capped it at {float(value_w):g} W per GPU" if verb == "cap" else done[verb]
    return f"{by} {what}" + (f", until {figures.budget(str(until), now_s)}" if until else "")


def _budget(*, by: str, now_s: float, budget: Any = None, **amounts: Any) -> str:
    other = next((f"{kind} budget {most:g}" for kind, most in amounts.items() if most), "")
    return f"{by} set {other or 'the budget to ' + figures.budget(str(budget), now_s)}"


def _plan(*, why: str, finish: str, gco2_g: float, now_s: float, whole_g: float | None = None, **_: Any) -> str:
    done = figures.clock(units.from_iso(finish), now_s)
    # the whole where it is known: later plans have less to come, whatever they save
    left, whole = f"{figures.grams(gco2_g)} to come", f"{figures.grams(whole_g)} in all"
    return f"new plan ({why}): done {done}, {left if whole_g is None else whole}"


def _end(*, state: str, now_s: float, signal: Any = None, code: Any = None, **_: Any) -> str:
    return f"{state}: {f'signal {signal}' if signal else f'exit {code}'}"


def _state(*, state: str, text: str, now_s: float, level_kind: str = "", **_: Any) -> str:
    return led(state_word(state, duty=level_kind == "duty"), text)


EVENTS: Table = {
    "event_override": _override,
    "event_override_over": "the {mode} of {by} is over",
    "event_budget": _budget,
    "event_hours": "{by}: {text}",
    "event_stop": lambda *, by, now_s, now=False: f"{by} stopped it{' now' if now else ''}",
    "event_state": _state,
    "event_plan": _plan,
    "event_calibration": lambda *, now_s, action="", text="", **_: " ".join(
        filter(None, ("calibration", action, text))
    ),
    "event_clock": "the clock was set, or the machine slept: {jump_s:shift}",
    "event_revised": lambda *, text, now_s, **_: f"the grid's values were revised: {text}",
    "event_journal_lost": lambda *, text, now_s, **_: str(text),
    "event_tried": "{text}",
    "event_end": _end,
}
SAID = "said"
"""The fact that has the statements of an event, whose texts are beside them."""
LEFT_OUT = frozenset({SAID, "levels", "start", "gap"})
"""Facts that no wording needs."""
PERSONAL = frozenset({"override", "override_over", "budget", "hours", "stop"})
"""Events caused by a user: shown in the event line."""
