"""The run as Markdown, CSV and JSON, as one self-contained HTML page (no request, no script, fit to print and to send),
as a row of CodeCarbon's emissions.csv, and as a model card's block, all from the same figures.

Every field of the last is a figure of the journal, whose row is named beside it, or "unknown". Nothing is filled in.
"""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import asdict
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from carbontui import units
from carbontui.account.boundary import IDLE
from carbontui.grid import zones
from carbontui.reports import charts, figures, run_text
from carbontui.reports.figures import at_digits, split_numbers
from carbontui.reports.parts import GRAM_DIGITS, KWH_DIGITS, DayPart, EpochPart, kind_of, rounded
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
        "by_day": [_day(part) for part in story.days],
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


def _day(part: DayPart) -> dict[str, Any]:
    shown = {"start": units.iso(part.at_s), **part._asdict(), "energy_wall_kwh": part.kwh}
    return at_digits({name: value for name, value in shown.items() if name not in ("at_s", "kwh")})


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
                figures.clock(made.at_s, story),
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


# --- in the columns and forms of others ---

CODECARBON_COLUMNS = (
    "timestamp", "project_name", "run_id", "experiment_id", "duration", "emissions", "emissions_rate", "cpu_power",
    "gpu_power", "ram_power", "cpu_energy", "gpu_energy", "ram_energy", "energy_consumed", "water_consumed",
    "country_name", "country_iso_code", "region", "cloud_provider", "cloud_region", "os", "python_version",
    "codecarbon_version", "cpu_count", "cpu_model", "gpu_count", "gpu_model", "longitude", "latitude", "ram_total_size",
    "tracking_mode", "cpu_utilization_percent", "gpu_utilization_percent", "ram_utilization_percent", "ram_used_gb",
    "on_cloud", "pue", "wue",
)  # fmt: skip
"""Those of CodeCarbon 3.3.2 (MIT licence), in its order and units: kWh, kg CO2, watts, seconds. A column is empty where
the journal has no value: a board that was never read must not appear with 0 W."""


FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""A spreadsheet reads a cell that begins with one of these as a formula (OWASP, CSV injection); the wide forms, too."""


class NotThatFile(ValueError):
    """A file to append to that has other columns."""


def codecarbon_row(story: RunStory) -> dict[str, str]:
    """By column. Energies include the PUE, as CodeCarbon's do, and add up to `energy_consumed`: what a machine draws
    besides boards and memory stands with its CPU, and what idles anyway is in no part. CodeCarbon writes on a file only
    where it has exactly its columns, so boundary, band and the whole machine stand in the free text of one."""
    kinds = [kind for kind in ("ram", "gpu", "cpu") if kind in story.by_kind]
    kwh = rounded([story.by_kind[kind] for kind in kinds], story.energy_wall_kwh, KWH_DIGITS)
    names = sorted({gpu.name for gpu in story.status.gpus})
    known = {
        "timestamp": units.iso(story.end_s)[:19],
        "project_name": _text(story.status.name),
        "run_id": story.status.job,
        "experiment_id": _in_words(story),
        "duration": f"{story.elapsed_s:.3f}",
        "energy_consumed": f"{story.energy_wall_kwh:.9f}",
        "gpu_count": str(len(story.status.gpus)) if story.status.gpus else "",
        "gpu_model": _text(" + ".join(names)),
        "region": _text(story.options.zone or ""),
        "tracking_mode": "process",
        "pue": f"{story.options.pue:g}",
    }
    for kind, energy in zip(kinds, kwh, strict=True):
        same = (part.seconds for part in story.by_device if part.name != IDLE and kind_of(part.name) == kind)
        known[f"{kind}_energy"] = f"{energy:.{KWH_DIGITS}f}"
        if (seconds := max(same, default=0.0)) > 0:
            known[f"{kind}_power"] = f"{energy * units.J_PER_KWH / seconds:.3f}"
    if story.gco2_g is not None:
        known["emissions"] = f"{story.gco2_g / 1000:.9f}"
        known["emissions_rate"] = f"{story.gco2_g / 1000 / story.elapsed_s:.12f}" if story.elapsed_s > 0 else ""
    return {column: known.get(column, "") for column in CODECARBON_COLUMNS}


def _in_words(story: RunStory) -> str:
    """'always-on: energy above idle, 0.4 to 0.6 kWh; whole machine 0.7 kWh, 0.6 to 0.8 kWh'."""
    known = disclosed(story)
    (lo, hi), whole = known["energy_band_kwh"], known["whole_machine"]
    band = "" if lo is None else f", {lo} to {hi} kWh"
    beside = whole and f"; whole machine {whole['energy_kwh']} kWh, {whole['lo_kwh']} to {whole['hi_kwh']} kWh"
    return f"{known['boundary']}{band}{beside or ''}"


def _text(name: str) -> str:
    """An untrusted name as a cell that every reader takes as text: prefixed with OWASP's quote where needed."""
    shown = units.printable(name)
    return f"'{shown}" if name.startswith(tuple(FORMULA)) else shown


def codecarbon(story: RunStory) -> str:
    """Header and row."""
    out = io.StringIO()
    rows = csv.DictWriter(out, CODECARBON_COLUMNS, lineterminator="\n")
    rows.writeheader()
    rows.writerow(codecarbon_row(story))
    return out.getvalue()


def append(path: Path, story: RunStory) -> None:
    """Append a row to the file, as CodeCarbon does; a new file gets the header first.

    Raises OSError, and NotThatFile where the file has other columns.
    """
    whole = codecarbon(story)
    header, line = whole.split("\n", 1)
    with path.open("ab+") as file:
        file.seek(0)
        # a device has no end, and another program's file may have no line
        first = file.readline(len(header) + 2).rstrip(b"\r\n")
        if not first:
            file.write(whole.encode())
        elif first != header.encode():
            raise NotThatFile(f"{path} has other columns than CodeCarbon 3.3.2 writes; name a new file")
        else:
            file.seek(-1, os.SEEK_END)
            ends = file.read(1) == b"\n"
            file.write((line if ends else f"\n{line}").encode())


UNKNOWN = "unknown"


def model_card(story: RunStory, training_type: str | None) -> str:
    """The `co2_eq_emissions` block of a Hugging Face model card (docs: Model cards, CO2 emissions): YAML, emissions in
    grams. Each line's comment names its row."""
    zone = story.options.zone
    place = UNKNOWN if not zone else f"{zone} ({known.name})" if (known := zones.every().get(zone)) else zone
    sources = "; ".join(story.sources) or UNKNOWN
    fields: list[tuple[str, Any, str]] = [
        ("emissions", _g(story.gco2_g), "journal state accounts.gco2_g, in grams"),
        ("source", f"carbontui {story.version}: {figures.metered(story)}; grid: {sources}", "journal energy, grid"),
        ("boundary", json.dumps(disclosed(story)), "spec.json boundary, snapshot whole_machine"),
        ("training_type", training_type or UNKNOWN, "--training-type"),
        ("geographical_location", place, "spec.json zone"),
        ("hardware_used", figures.hardware(story) or UNKNOWN, "snapshot gpus"),
    ]
    lines = [f"  {name}: {json.dumps(value, ensure_ascii=False)}  # {row}" for name, value, row in fields]
    return "\n".join(["co2_eq_emissions:", *lines, ""])


def disclosed(story: RunStory) -> dict[str, Any]:
    """What belongs to an energy: its boundary, its band in kWh, and the whole machine's figure beside it."""
    used, whole = story.account.so_far, story.status.whole_machine
    return {
        "boundary": f"{story.options.boundary}: energy {figures.counted(story)}",
        "energy_band_kwh": [used.energy_wall_lo_kwh, used.energy_wall_hi_kwh],
        "whole_machine": None if whole is None else msgspec.structs.asdict(whole),
    }


def _g(grams: float | None) -> float | str:
    return UNKNOWN if grams is None else round(grams, GRAM_DIGITS)
