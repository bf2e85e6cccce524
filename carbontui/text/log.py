"""Lines of carbontui.log, and what caused a new plan."""

from collections.abc import Mapping
from typing import Any

from carbontui import units
from carbontui.text import figures
from carbontui.text.forms import PARTS, Table, led, state_word, wordings


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


LOG: Table = wordings("log") | {
    "fault_logged": _fault_logged,
    "journal_lost": _journal_lost,
    "lost_continues": _continues,
    "lost_unknown": _unknown,
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


EVENTS: Table = wordings("events") | {
    "event_override": _override,
    "event_budget": _budget,
    "event_stop": lambda *, by, now_s, now=False: f"{by} stopped it{' now' if now else ''}",
    "event_state": _state,
    "event_plan": _plan,
    "event_calibration": lambda *, now_s, action="", text="", **_: " ".join(
        filter(None, ("calibration", action, text))
    ),
    "event_end": _end,
}
SAID = "said"
"""The fact that has the statements of an event, whose texts are beside them."""
LEFT_OUT = frozenset({SAID, "levels", "start", "gap"})
"""Facts that no wording needs."""
PERSONAL = frozenset({"override", "override_over", "budget", "hours", "stop"})
"""Events caused by a user: shown in the event line."""
