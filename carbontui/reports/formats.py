"""The run as Markdown, CSV and JSON, and as one self-contained HTML page (no request, no script, fit to print and to
send), all from the same figures."""

import csv
import io
from dataclasses import asdict
from importlib import resources
from itertools import pairwise
from typing import Any

import msgspec

from carbontui import units
from carbontui.reports import charts, figures, run_text
from carbontui.reports.figures import at_digits, split_numbers
from carbontui.reports.parts import GRAM_DIGITS, KWH_DIGITS, EpochPart, rounded
from carbontui.reports.story import RunStory
from carbontui.text import figures as form
from carbontui.text.plan import proof

SCHEMA = "carbontui.report/1"
OF_STATUS = ("coverage", "places", "moves_cost", "cost", "witnesses", "whole_machine")
PLAIN = ("energy_gpu_kwh", "energy_wall_kwh", "gco2_g", "avoided_g", "revised_g", "full_wall_w", "plans", "version")
"""Figures that stand in JSON under their own names."""


def markdown(story: RunStory) -> str:
    """For a README, an issue or a lab book."""
    lines = [f"# {_cell(story.status.name)}", "", f"job {story.status.job}", ""]
    lines += [f"> **{_cell(notice)}**" for notice in story.status.notices]
    lines += ["", *[_cell(text) + "\n" for text in run_text.story_of(story)]]
    lines += ["## Account", "", *_table(("figure", "value", "rests on"), figures.figures(story))]
    if parts := figures.parts(story):
        lines += ["", "## CO2 saved by", "", *_table(("by", "CO2", "against"), parts)]
    for made in figures.tables(story):
        lines += ["", *([f"## {made.title}", ""] if made.title else ()), *_table(made.head, made.rows)]
    lines += ["", "## Decisions", "", *[f"- {_cell(line)}" for line in run_text.decisions(story)]]
    lines += ["", "## Sources and methods", "", *_table(("what", "where it comes from"), basis(story))]
    for_a_paper = (run_text.citation(story), "", run_text.methods(story), "")
    lines += ["", "## For a methods section", "", *map(_cell, for_a_paper)]
    return "\n".join(lines)


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    found = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return found + [f"| {' | '.join(_cell(str(cell)) for cell in row)} |" for row in rows]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def numbers(story: RunStory) -> dict[str, Any]:
    """The run as plain values, at the digits of `status --json`; durations in seconds, times RFC 3339."""
    status, ended = story.status, units.iso(story.end_s) if story.over else None
    figures = {
        "schema": SCHEMA,
        **{name: getattr(status, name) for name in ("job", "name", "state")},
        "reason": {"code": status.reason.code, "text": status.reason.text},
        "started": units.iso(story.start_s),
        "ended": ended,
        "ended_at": ended,
        **{name: msgspec.to_builtins(getattr(story, name)) for name in ("elapsed_s", "account", "excluded")},
        "gaps": [{"reason": part.name, "s": round(part.seconds, 3)} for part in story.gaps],
        **{name: msgspec.to_builtins(getattr(status, name)) for name in OF_STATUS},
        "work_done_s": story.done_s,
        "steps": status.step,
        **{name: getattr(story.options, name) for name in ("zone", "pue", "slurm_job")},
        **{name: getattr(story, name) for name in PLAIN},
        "avoided_why": "nothing held it back" if story.avoided_g == 0 and story.run_now_g is None else None,
        "embodied_g": story.embodied.grams if story.embodied else None,
        "by_day": [at_digits(asdict(part)) for part in story.days],
        "revisions": list(story.revisions),
        "split": None if story.split is None else split_numbers(story.split),
        "by_state": [at_digits(asdict(part)) for part in story.by_state],
        "by_device": [at_digits(asdict(part)) for part in story.by_device],
        "by_epoch": [_epoch(part) for part in story.epochs],
        "metered_by": dict(story.how),
        "intensity_kinds": dict(story.grid_kinds),
        "sources": list(story.sources),
        "decisions": [{**asdict(made), "at": units.iso(made.at_s)} for made in story.decisions],
        "notices": list(status.notices),
    }
    return at_digits(figures)


def _epoch(part: EpochPart) -> dict[str, Any]:
    return {
        "epoch": part.number,
        "last_epoch": part.last if part.last is not None else part.number,
        "start": units.iso(part.start_s),
        "end": units.iso(part.end_s),
        "energy_wall_kwh": part.kwh,
        **{name: getattr(part, name) for name in ("steps", "gco2_g", "loss")},
    }


CSV_COLUMNS = ("time", "seconds", "watts", "kwh", "gco2_per_kwh", "gco2_g", "run_now_gco2_g")


def table(story: RunStory) -> str:
    """A row per column of the charts: its energy and emissions. The sums are the run's totals."""
    chart = story.chart
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(CSV_COLUMNS)
    kwh = rounded(chart.kwh, story.energy_wall_kwh, KWH_DIGITS)
    parts = [b - a for a, b in pairwise((0.0, *chart.emitted_g))]
    grams = None if story.gco2_g is None else rounded(parts, story.gco2_g, GRAM_DIGITS)
    for index, watts in enumerate(chart.watts):
        at = chart.start_s + index * chart.step_s
        seconds = min(story.end_s, at + chart.step_s) - max(story.start_s, at)
        flat: float | str = ""
        if chart.run_now_g and story.run_now_g is not None:
            flat = round(chart.run_now_g[index] - (chart.run_now_g[index - 1] if index else 0.0), GRAM_DIGITS)
        known = chart.intensity[index]
        rows.writerow(
            (
                units.iso(max(story.start_s, at)), round(seconds, 3), "" if watts is None else round(watts, 3),
                kwh[index], "" if known is None else round(known, 3),
                "" if grams is None else grams[index], flat,
            )
        )  # fmt: skip
    return out.getvalue()


HEADS = ("energy", "emitted", "run now", "avoided", "elapsed")


def html(story: RunStory) -> str:
    """The page. Untrusted text (names, reasons) is escaped by the template."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    source = resources.files("carbontui.reports").joinpath("page.html.j2").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(source)
    account = figures.figures(story)
    return template.render(
        story=story,
        begun=figures.date_and_clock(story.start_s),
        ended=figures.date_and_clock(story.end_s) if story.over else "now, still running",
        clock_name=form.clock_name(story.start_s),
        zone=figures.zone(story),
        called=figures.counted(story),
        notices=[*story.status.notices, *story.notes],
        heads=[figure for figure in account if figure.label.startswith(HEADS)],
        prose=run_text.story_of(story),
        timeline=Markup(charts.timeline(story)),
        cumulated=Markup(charts.cumulated(story)),
        losses=Markup(charts.losses(story)),
        figures=account,
        parts=figures.parts(story),
        tables=figures.tables(story),
        decisions=[
            (
                form.clock(made.at_s, story.start_s),
                figures.STATE_WORDS.get(made.state, made.state) if made.kind == "state" else "a user",
                made.text,
            )
            for made in story.decisions
        ],
        basis=basis(story),
        methods=[run_text.citation(story), run_text.methods(story)],
    )


def basis(story: RunStory) -> list[tuple[str, str]]:
    """The basis of the figures: (what, where it comes from)."""
    flat_w, called = story.full_wall_w, figures.counted(story)
    gap = "" if story.worst_gap is None else f", {proof(story.worst_gap)}"
    return [
        ("energy", figures.metered(story)),
        ("intensity", figures.shares(story.grid_kinds, figures.KIND_WORDS)),
        ("grid sources", "; ".join(story.sources) or "none"),
        ("watts at full speed", "not measured" if flat_w is None else f"{form.watts(flat_w)} {called}, measured"),
        ("work done", f"{form.duration(story.done_s)} at full speed"),
        ("PUE, host", f"{story.options.pue:g}, {form.watts(story.host_w)} besides the metered devices"),
        ("plans", f"{story.plans} made{gap}"),
        ("bands (±)", _bands(story)),
        ("accuracy", figures.accuracy(story)),
        *run_text.origin(story),
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
