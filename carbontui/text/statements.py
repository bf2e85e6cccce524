"""Every statement in words: the one entry for codes of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from carbontui import protocol
from carbontui.protocol import Statement
from carbontui.text import forms
from carbontui.text.account import BOUNDARY
from carbontui.text.log import LOG
from carbontui.text.notices import NOTICES
from carbontui.text.plan import PLAN
from carbontui.text.reasons import REASONS
from carbontui.text.replies import REFUSALS, REPLIES
from carbontui.text.sources import SOURCES
from carbontui.text.trials import TRIALS

TABLES = (BOUNDARY, LOG, NOTICES, PLAN, REASONS, REFUSALS, REPLIES, SOURCES, TRIALS)
TABLE: forms.Table = {code: wording for table in TABLES for code, wording in table.items()}
"""The wording of every code of the package."""


def reason(why: protocol.Why, now_s: float) -> protocol.Reason:
    """A reason as the wire has it: its code, and its words as seen at `now_s`."""
    return protocol.Reason(why.code, words(why.said, now_s))


def words(said: Statement, now_s: float) -> str:
    """The statement as text, as seen at `now_s`. Raises KeyError for a code without wording."""
    return forms.worded(said, now_s, TABLE)


def in_words(facts: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """The same facts with every statement among them as text."""
    return {key: words(fact, now_s) if isinstance(fact, Statement) else fact for key, fact in facts.items()}
