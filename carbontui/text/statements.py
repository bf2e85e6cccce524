"""Every statement in words: the one entry for codes of any kind."""

from __future__ import annotations

from carbontui import protocol
from carbontui.protocol import Statement
from carbontui.text import forms
from carbontui.text.plan import PLAN
from carbontui.text.reasons import REASONS

TABLE: forms.Table = {**REASONS, **PLAN}
"""The wording of every code of the package."""


def reason(why: protocol.Why, now_s: float) -> protocol.Reason:
    """A reason as the wire has it: its code, and its words as seen at `now_s`."""
    return protocol.Reason(why.code, words(why.said, now_s))


def words(said: Statement, now_s: float) -> str:
    """The statement as text, as seen at `now_s`. Raises KeyError for a code without wording."""
    return forms.worded(said, now_s, TABLE)
