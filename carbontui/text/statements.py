"""Every statement in words: the one entry for codes of any kind."""

from collections.abc import Mapping
from typing import Any

import msgspec

from carbontui import protocol, units
from carbontui.protocol import Statement
from carbontui.text import figures, forms
from carbontui.text.log import EVENTS, LEFT_OUT, LOG, SAID
from carbontui.text.notices import NOTICES
from carbontui.text.plan import PLAN
from carbontui.text.replies import REFUSALS, REPLIES
from carbontui.text.sources import BOUNDARY, SOURCES
from carbontui.text.trials import TRIALS

TABLES = (BOUNDARY, EVENTS, LOG, NOTICES, PLAN, REFUSALS, REPLIES, SOURCES, TRIALS)
TABLE: forms.Table = {code: wording for table in TABLES for code, wording in table.items()}
"""The wording of every code of the package."""


def words(said: Statement, now_s: float) -> str:
    """The statement as text, as seen at `now_s`. Raises KeyError for a code without wording."""
    return forms.worded(said, now_s, TABLE)


def rendered(said: Statement | None, text: str, now_s: float) -> str:
    """A statement of the wire for who reads it here and now; `text` where an older or newer peer has no such."""
    try:
        return text if said is None else words(said, now_s)
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError):
        return text


def kept(said: Statement, now_s: float) -> str:
    """The statement as text that is stored, or read by scripts: its clock times name their zone."""
    with figures.zone_named():
        return words(said, now_s)


def reason(why: protocol.Why, now_s: float) -> protocol.Reason:
    """A reason as the wire has it."""
    return protocol.Reason(why.code, kept(why.said, now_s), why.said)


def read_here(status: protocol.Status, now_s: float) -> protocol.Status:
    """A status whose reason is in the words and the time zone of this process, for who passes its text on."""
    why = status.reason
    with figures.zone_named():
        told = protocol.Reason(why.code, rendered(why.said, why.text, now_s), why.said)
    return msgspec.structs.replace(status, reason=told)


def in_words(facts: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """The same facts with every statement among them as text that is kept."""
    return {key: kept(fact, now_s) if isinstance(fact, Statement) else fact for key, fact in facts.items()}


def recorded(facts: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """The facts of an event for the journal: every statement as text, and as it is for who reads it later."""
    said = {key: fact for key, fact in facts.items() if isinstance(fact, Statement)}
    return in_words(facts, now_s) | ({SAID: msgspec.to_builtins(said)} if said else {})


def event_line(at_s: float, kind: str, facts: Mapping[str, Any]) -> protocol.Event | None:
    """The event as viewers see it; None if it is of no interest to users, or cannot be read."""
    try:
        told = {name: fact for name, fact in {**facts, **facts.get(SAID, {})}.items() if name not in LEFT_OUT}
        said = Statement(f"event_{kind}", told)
        if said.code not in EVENTS or not (text := kept(said, at_s)):
            return None
        found = protocol.Event(units.iso(at_s), kind, text, str(facts.get("by") or ""), said=said)
        if kind == "state":
            return msgspec.structs.replace(found, state=str(facts["state"]))
        if kind != "plan":
            return found
        whole = facts.get("whole_g")
        return msgspec.structs.replace(
            found,
            finish=str(facts["finish"]),
            gco2_g=float(facts["gco2_g"]),
            whole_g=None if whole is None else float(whole),
        )
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
