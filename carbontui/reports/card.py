"""What a finished run gave, and how good its first forecast was."""

from __future__ import annotations

from carbontui.reports import figures
from carbontui.reports.story import FirstForecast, RunStory
from carbontui.text import figures as form


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
    """(label, text): what each lever gave, and how good the first word was."""
    levers = [f"{figure.label} {figure.value}" for figure in figures.parts(story)[:-1]]
    rows = [("levers", " · ".join(levers))] if levers else []
    if (first := story.first) is not None:
        missed = "".join(f" · forecast missed by {value}" for _, value in _missed(story))
        at, done = (form.clock(when, story.start_s) for when in (first.at_s, first.finish_s))
        was = f"was {form.grams(story.gco2_g)} at {form.clock(story.end_s, story.start_s)}"
        rows.append(("first said", f"{form.grams(first.gco2_g)}{_band(first)} at {at}, done {done}; {was}{missed}"))
    return tuple(rows)
