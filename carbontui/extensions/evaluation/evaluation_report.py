"""An evaluation as Markdown and SVG. Pure: figures in, text out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from carbontui.text import figures

Group = dict[str, Any]
OURS, FORESIGHT, CONSTANT, NOW = "ours", "perfect foresight", "best constant cap", "run now"
SMALL = 0.005
"""A share of run-now's grams below which nothing is to be had: no share of it is given."""


def markdown(evaluated: dict[str, Any], pictures: Iterable[str] = (), *, cpu_s: float) -> str:
    """The whole report: how it was made and what it took, the tables, what they mean."""
    groups: list[Group] = evaluated["groups"]
    recorded = [group for group in groups if " recorded" in group["data"]]
    made = [group for group in groups if group not in recorded]
    hours = sorted({group["hours"] for group in groups})
    lines = [
        "# Evaluation: plans against simple rules, on data that anybody has",
        "",
        f"    {evaluated['command']}",
        "",
        f"Seed {evaluated['seed']}; {evaluated['date']}; {evaluated['machine']}; {evaluated['took_s']:.0f} s, "
        f"{cpu_s:.0f} s of CPU. "
        "The same seed gives the same figures, to the digit, elsewhere.",
        "",
        f"{sum(len(group['jobs']) for group in groups)} jobs in {len(groups)} groups: work of "
        f"{', '.join(map(str, hours))} h, budgets of "
        f"{', '.join(f'{slack:g}' for slack in sorted({group['slack'] for group in groups}))} times that, "
        "three boundaries, with power caps and without. Generated grids: a year of each zone around its shipped "
        "typical days, with forecasts whose errors are as large as published ones (`carbontui/backtest/generated.py`). "
        "**They are simulated**: what is saved on the real grid of a zone is another figure; recorded ones are in "
        "`tests/bench/results`. Recorded: Germany, April 2020, without any published forecast.",
        "",
        "A job of 650 W is off before its start, draws 90 W while paused, and takes 20 s to pause and 45 s to resume. "
        "Given-back: nothing is charged while it waits to start. Held: a machine of 60 or 250 W beside the board is "
        "charged from the first moment to the finish. All policies see the same forecast, thresholds the last week, as "
        "late as the source of each zone. Savings are of CO2 against running now; mean and median over jobs; worst: "
        "the job that ended highest above running now (below zero: even that one saved).",
    ]
    for title, chosen in (("Generated grids", made), ("Recorded grid", recorded)):
        for caps in (False, True):
            part = [group for group in chosen if group["caps"] is caps]
            if part:
                lines += ["", f"## {title}, {'with power caps' if caps else 'pauses alone'}", ""]
                lines += _by_boundary(evaluated["policies"], part)
    lines += ["", "## By length and budget: ours, the best of the simple rules, perfect foresight (saving, %)", ""]
    lines += _by_budget(made or groups)
    lines += [f"\n![{name}]({name})" for name in pictures]
    lines += ["", "## Data", "", "| data | file | sha256 |", "|---|---|---|"]
    lines += [f"| {name} | {of['file']} | `{of['sha256']}` |" for name, of in evaluated["data"].items()]
    return "\n".join(lines) + "\n"


def _by_boundary(policies: list[str], groups: list[Group]) -> list[str]:
    out = []
    for boundary in dict.fromkeys(group["boundary"] for group in groups):
        part = [group for group in groups if group["boundary"] == boundary]
        base = CONSTANT if part[0]["caps"] else NOW
        out += [
            f"### {boundary[0].upper()}{boundary[1:]}",
            "",
            f"| policy | mean % | median % | worst % | late | switches | of foresight above {base} |",
            "|---|---|---|---|---|---|---|",
        ]
        jobs = [job["policies"] for group in part for job in group["jobs"]]
        for name in policies:
            each = [_saving(job, name) for job in jobs]
            late, switches = sum(job[name]["late_s"] > 0 for job in jobs), [job[name]["switches"] for job in jobs]
            share = captured(jobs, name, base)
            cells = (
                f"{statistics.fmean(each):.1f}",
                f"{statistics.median(each):.1f}",
                figures.signed(-min(each), "{:.0f}".format),
                str(late),
                f"{statistics.fmean(switches):.1f}",
                "–" if share is None else f"{100 * share:.0f} %",
            )
            out.append(f"| {f'**{name}**' if name == OURS else name} | {' | '.join(cells)} |")
        out.append("")
    return out[:-1]


def _by_budget(groups: list[Group]) -> list[str]:
    slacks = sorted({group["slack"] for group in groups})
    out = [
        f"| boundary, levels | work | {' | '.join(f'{slack:g}x' for slack in slacks)} |",
        "|---|---" + "|---" * len(slacks) + "|",
    ]
    for boundary in dict.fromkeys(group["boundary"] for group in groups):
        for caps in (False, True):
            for hours in sorted({group["hours"] for group in groups}):
                cells = []
                for slack in slacks:
                    key = (boundary, caps, hours, slack)
                    part = [g for g in groups if (g["boundary"], g["caps"], g["hours"], g["slack"]) == key]
                    jobs = [job["policies"] for group in part for job in group["jobs"]]
                    simple = max(saved(jobs, name) for name in jobs[0] if name not in (OURS, FORESIGHT))
                    cells.append(f"{saved(jobs, OURS):.1f} / {simple:.1f} / {saved(jobs, FORESIGHT):.1f}")
                out.append(f"| {boundary}, {'caps' if caps else 'pauses'} | {hours} h | {' | '.join(cells)} |")
    return out


def _saving(job: dict[str, Any], name: str) -> float:
    share: float = job[name]["gco2_g"] / job[NOW]["gco2_g"]
    return 100 * (1 - share)


def saved(jobs: list[dict[str, Any]], name: str) -> float:
    """% of summed grams against running now."""
    return 100 * (1 - _grams(jobs, name) / _grams(jobs, NOW))


def captured(jobs: list[dict[str, Any]], name: str, base: str) -> float | None:
    """Share of what perfect foresight has above `base`; None where that is nearly nothing."""
    room = _grams(jobs, base) - _grams(jobs, FORESIGHT)
    return None if room < SMALL * _grams(jobs, NOW) else (_grams(jobs, base) - _grams(jobs, name)) / room


def _grams(jobs: list[dict[str, Any]], name: str) -> float:
    return math.fsum(job[name]["gco2_g"] for job in jobs)


def pictures(evaluated: dict[str, Any]) -> dict[str, str]:
    """By file name: the mean saving of every policy as bars, without caps and with them, given back."""
    drawn = {}
    for caps in (False, True):
        part = [g for g in evaluated["groups"] if g["caps"] is caps and g["boundary"] == "given-back"]
        jobs = [job["policies"] for group in part for job in group["jobs"]]
        rows = [(name, saved(jobs, name)) for name in evaluated["policies"] if name != NOW]
        title = f"CO2 saved against running now, %, {'with caps' if caps else 'pauses alone'} ({part[0]['boundary']})"
        drawn[f"evaluation-{'caps' if caps else 'pauses'}.svg"] = bars(title, rows)
    return drawn


def bars(title: str, rows: list[tuple[str, float]]) -> str:
    """An SVG of horizontal bars, negative ones to the left of zero; readable on light and dark pages."""
    left, width, step = 260, 420, 24
    low, high = min(0.0, *(value for _, value in rows)), max(1.0, *(value for _, value in rows))
    at: Callable[[float], float] = lambda value: left + width * (value - low) / (high - low)  # noqa: E731
    height = 44 + step * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="760" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(rows):
        y = 36 + step * number
        colour = "#1b7f4d" if name == OURS else "#8aa39a"
        begin, end = sorted((at(0.0), at(value)))
        out.append(f'<text x="{left - 10}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}" height="16" fill="{colour}"/>')
        out.append(f'<text x="{at(max(value, 0.0)) + 6:.1f}" y="{y + 12}">{value:.1f}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
