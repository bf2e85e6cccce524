"""The run as one self-contained HTML page: no request, no script, fit to print and to send."""

from __future__ import annotations

from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from carbontui.reports import charts, figures, prose
from carbontui.reports.story import RunStory
from carbontui.text import figures as form
from carbontui.text.plan import certificate

HEADS = ("energy at the wall", "emitted", "run-now", "avoided", "elapsed")


def html(story: RunStory) -> str:
    """The page. Untrusted text (names, reasons) is escaped by the template."""
    source = resources.files("carbontui.reports").joinpath("page.html.j2").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(source)
    account = figures.figures(story)
    return template.render(
        story=story,
        begun=figures.date_and_clock(story.start_s),
        ended=figures.date_and_clock(story.end_s) if story.over else "now, still running",
        clock_name=form.clock_name(story.start_s),
        zone=figures.zone(story),
        notices=[*story.status.notices, *story.notes],
        heads=[figure for figure in account if figure.label in HEADS],
        prose=prose.story_of(story),
        timeline=Markup(charts.timeline(story)),
        cumulated=Markup(charts.cumulated(story)),
        losses=Markup(charts.losses(story)),
        figures=account,
        parts=figures.parts(story),
        tables=figures.tables(story),
        decisions=[
            (
                figures.clock(made.at_s, story),
                figures.STATE_WORDS.get(made.state, made.state) if made.kind == "state" else "a user",
                made.text,
            )
            for made in story.decisions
        ],
        basis=basis(story),
        methods=prose.methods(story),
        equivalences=equivalences(story),
    )


def basis(story: RunStory) -> list[tuple[str, str]]:
    """The basis of the figures: (what, where it comes from)."""
    flat = "not measured" if story.full_wall_w is None else f"{form.watts(story.full_wall_w)} at the wall, measured"
    gap = "" if story.worst_gap is None else f", {certificate(story.worst_gap)}"
    return [
        ("energy", figures.metered(story)),
        ("intensity", figures.shares(story.grid_kinds, figures.KIND_WORDS)),
        ("grid sources", "; ".join(story.sources) or "none"),
        ("watts at full speed", flat),
        ("work done", f"{form.duration(story.done_s)} at full speed"),
        ("PUE, host", f"{story.options.pue:g}, {form.watts(story.options.host_w)} besides the metered devices"),
        ("plans", f"{story.plans} made{gap}"),
        ("bands (±)", _bands(story)),
        ("accuracy", figures.accuracy(story)),
    ]


def _bands(story: RunStory) -> str:
    """What the bands of the parts cover, or why there are none."""
    if story.split is None:
        return "none: avoided CO2 is not known"
    if story.split.halves is None:
        return "none: full-speed watts or step times were seen too few times to estimate their error"
    return (
        "80 %: the errors of mean full-speed watts and of the mean step time, as they varied in this run, of forecasts"
        " used in place of values, and of typical days; values that a source published as realised are taken as exact"
    )


def equivalences(story: RunStory) -> str:
    """Equivalents of the emitted grams, with their source."""
    said = figures.equivalences(story.gco2_g)
    return f"Emitted as much as {' or '.join(said)} ({figures.EQUIVALENCES_SOURCE})." if said else ""
