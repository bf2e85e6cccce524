"""One line of text for each journal event that a user wants to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from carbontui import protocol, units
from carbontui.text import figures

Facts = Mapping[str, Any]


def told(at_s: float, kind: str, facts: Facts) -> protocol.Event | None:
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
