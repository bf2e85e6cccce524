"""How numbers and times are written inside a sentence: `{until_s:clock}`, `{left_s:duration}`, `{grams:grams}`.

A wording is a template with these forms beside Python's own format specifications, or a function where a template
cannot say it. Its fields are the parts of the statement.
"""

import json
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carbontui.protocol import Statement
from carbontui.text import figures

Wording = str | Callable[..., str]
"""A template, or a function of the parts by name and of `now_s`."""
Table = Mapping[str, Wording]
"""The wording of each code."""
_CATALOGUE = json.loads(Path(__file__).with_name("wordings.json").read_text("utf-8"))


def wordings(table: str) -> dict[str, Wording]:
    """The templates of one table of wordings.json, whose groups are headings for who reads it."""
    return {code: text for group in _CATALOGUE[table].values() for code, text in group.items()}


def _also(more: Any) -> str:
    clauses = (more,) if isinstance(more, str) else more or ()
    return "".join(f"; {clause}" for clause in clauses if clause)


def until(at_s: float | None, now_s: float) -> str:
    """' until 18:00', or '' without an end."""
    return "" if at_s is None else f" until {figures.clock(at_s, now_s)}"


SLOWED = "slowed"


def state_word(state: str, *, duty: bool = False) -> str:
    """To GPU users a throttled board is one in thermal trouble: under a cap it is capped, by a duty cycle slowed."""
    return (SLOWED if duty else "capped") if state == "throttled" else state


def led(word: str, sentence: str) -> str:
    """'running: starting', 'paused by ada': the sentence led by a word, which is not said twice."""
    return sentence if sentence.startswith(word) else f"{word}: {sentence}"


def after(word: str, sentence: str) -> str:
    """The sentence as it goes on behind a word that stands before it in a column: 'by ada' behind 'paused'."""
    return sentence.removeprefix(f"{word} ").removeprefix(f"{word}: ")


PARTS: Mapping[str, str] = _CATALOGUE["parts"][""]
"""The parts of the supervisor that a fault is confined to, where the code is not the word."""

_OF_TIME: Mapping[str, Callable[[Any, float], str]] = {
    "budget": figures.budget,
    "clock": figures.clock,
    "time_of_day": lambda at_s, now_s: figures.clock(at_s, at_s),
    "until": until,
    # ', until 18:00 CET', or nothing without an end; of what was typed: named, so that a mistake is noticed
    "until_named": lambda at_s, now_s: "" if at_s is None else f", until {figures.named_clock(at_s, now_s)}",
}
_OF_VALUE: Mapping[str, Callable[[Any], str]] = {
    "duration": figures.duration,
    "shift": lambda by_s: figures.signed(by_s, figures.duration),
    "percent": figures.percent,
    "watts": figures.watts,
    "kwh": figures.kwh,
    "grams": figures.grams,
    "count": figures.count,
    "part": lambda part: PARTS.get(part, part),
    "list": ", ".join,
    "and": " and ".join,
    "share": lambda share: "half" if share == 0.5 else figures.percent(share),
    "state": state_word,
    "also": _also,  # '; this; that', or nothing
}


class _Template(string.Formatter):
    def __init__(self, now_s: float) -> None:
        self._now_s = now_s

    def format_field(self, value: Any, format_spec: str) -> Any:
        if format_spec in _OF_TIME:
            return _OF_TIME[format_spec](value, self._now_s)
        if format_spec in _OF_VALUE:
            return _OF_VALUE[format_spec](value)
        return super().format_field(value, format_spec)


def fill(template: str, now_s: float, **parts: Any) -> str:
    """The template with its fields filled in; times are written as seen at `now_s` ('18:00' today, else with the day).

    Raises KeyError for a field without a part.
    """
    return _Template(now_s).format(template, **parts)


def worded(said: Statement, now_s: float, table: Table) -> str:
    """The statement as text, statements among its parts included. Raises KeyError for a code without wording."""
    parts = {name: _part(value, now_s, table) for name, value in said.parts.items()}
    wording = table[said.code]
    return fill(wording, now_s, **parts) if isinstance(wording, str) else wording(now_s=now_s, **parts)


def _part(value: Any, now_s: float, table: Table) -> Any:
    if isinstance(value, Statement):
        return worded(value, now_s, table)
    return tuple(_part(one, now_s, table) for one in value) if isinstance(value, tuple) else value
