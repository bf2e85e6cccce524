"""Every statement in words: the one entry for codes of any kind."""

from __future__ import annotations

from carbontui.protocol import Statement
from carbontui.text import forms

TABLE: forms.Table = {}
"""The wording of every code of the package."""


def words(said: Statement, now_s: float) -> str:
    """The statement as text, as seen at `now_s`. Raises KeyError for a code without wording."""
    return forms.worded(said, now_s, TABLE)
