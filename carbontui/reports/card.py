"""A run's results on one card: for a terminal, as Markdown to paste."""

from __future__ import annotations

import textwrap

from rich.cells import cell_len, set_cell_size

from carbontui import units
from carbontui.reports import figures
from carbontui.reports.story import FirstForecast, RunStory
from carbontui.text import figures as form

INSIDE = 52


def lines(story: RunStory) -> list[tuple[str, str]]:
    """(label, value) of the card."""
    shown = [(figure.label, figure.value) for figure in figures.figures(story)]
    gave = [(f"  {figure.label}", figure.value) for figure in figures.parts(story)[:-1]]
    at = next((index for index, (label, _) in enumerate(shown) if label == "avoided"), len(shown) - 1) + 1
    if (first := story.first) is not None and story.over:
        gave += [("first said", f"{form.grams(first.gco2_g)} CO2{_band(first)}"), *_missed(story)]
    shown[at:at] = gave
    return shown


def _band(first: FirstForecast) -> str:
    """' (3.2 kg to 3.6 kg)'; '' where none is known or its ends read alike."""
    between = form.between(form.grams, *first.band_g) if first.band_g else ""
    return f" ({between})" if between else ""


def _missed(story: RunStory) -> list[tuple[str, str]]:
    """How far the first forecast was off; nothing for a run that did not get to its end."""
    if story.status.state != "done" or story.first is None or story.gco2_g is None or story.first.gco2_g <= 0:
        return []
    off = story.gco2_g / story.first.gco2_g - 1.0
    return [("missed by", form.signed(off, form.percent) if abs(off) >= 0.005 else form.percent(0.0))]


def ending(story: RunStory) -> tuple[tuple[str, str], ...]:
    """(label, text) for the screen of a finished job: what each lever gave, and how good the first word was."""
    levers = [f"{figure.label} {figure.value}" for figure in figures.parts(story)[:-1]]
    rows = [("saved by", " · ".join(levers))] if levers else []
    if (first := story.first) is not None:
        missed = "".join(f" · forecast missed by {value}" for _, value in _missed(story))
        at, done = (form.clock(when, story.start_s) for when in (first.at_s, first.finish_s))
        was = f"was {form.grams(story.gco2_g)} at {form.clock(story.end_s, story.start_s)}"
        rows.append(("first said", f"{form.grams(first.gco2_g)}{_band(first)} at {at}, done {done}; {was}{missed}"))
    return tuple(rows)


def _figures(story: RunStory) -> list[str]:
    told = [] if story.options.simulated is None else ["SIMULATED GPU"]
    told += ["REPLAY of recorded grid data"] if story.options.replay is not None else []
    metered = figures.metered(story, 1)
    told += [] if story.unmetered else [f"{figures.metered_verb(story)} by {metered}"]
    return [*told, f"grid: {figures.zone(story) or 'not known'}", f"carbontui {story.version}"]


def terminal(story: RunStory, *, ascii: bool = False) -> str:
    """A framed card of equal width."""
    side, top, bottom = ("|", "+" + "-" * (INSIDE + 2) + "+", "+" + "-" * (INSIDE + 2) + "+")
    if not ascii:
        side, top, bottom = ("│", "╭" + "─" * (INSIDE + 2) + "╮", "╰" + "─" * (INSIDE + 2) + "╯")
    day = units.iso(story.start_s)[:10]
    body = [_both(story.status.name, day), ""]
    body += [_both(label, value) for label, value in lines(story)]
    body += ["", *(line for text in _figures(story) for line in textwrap.wrap(text, INSIDE))]
    return "\n".join([top, *[f"{side} {set_cell_size(text, INSIDE)} {side}" for text in body], bottom])


def _both(left: str, right: str) -> str:
    """Two texts at the two ends of a line; the left one gives way."""
    shown = set_cell_size(left, min(cell_len(left), max(4, INSIDE - cell_len(right) - 1)))
    return f"{shown}{' ' * max(1, INSIDE - cell_len(right) - cell_len(shown))}{right}"


def markdown(story: RunStory) -> str:
    """A small table for a README or a model card."""

    def cell(text: str) -> str:
        return text.strip().replace("|", "\\|").replace("<", "&lt;")

    rows = [f"| {cell(label)} | {cell(value)} |" for label, value in lines(story)]
    head = [f"| {cell(story.status.name)} | {units.iso(story.start_s)[:10]} |", "|---|---:|"]
    return "\n".join([*head, *rows, "", f"*{'; '.join(_figures(story))}*", ""])
