"""An evaluation as Markdown and SVG. Pure: figures in, text out."""

import statistics
from collections.abc import Callable, Iterable
from html import escape
from itertools import count, product
from typing import Any

from carbontui.extensions.evaluation.evaluation import ANY_BOARD, DAY, summary
from carbontui.text import figures

Group = dict[str, Any]
Key = Callable[[Group], str]
OURS, FORESIGHT, CONSTANT, NOW = "ours", "perfect foresight", "best constant cap", "run now"
SMALL_PCT = 0.5
"""Points of saving below which nothing is to be had: no share of it is given."""


def markdown(evaluated: dict[str, Any], pictures: Iterable[str] = (), *, cpu_s: float) -> str:
    """The whole report: how it was made and what it took, the tables, what they mean."""
    groups: list[Group] = evaluated["groups"]
    of_boards: list[Group] = evaluated["boards"]
    single = sum(len(group["jobs"]) for group in groups) // len({(g["boundary"], g["caps"]) for g in groups})
    jobs = dict.fromkeys(f"{group['hours']} h within {group['slack']:g}x" for group in groups)
    grids = list(dict.fromkeys(group["data"] for group in groups))
    blended = " and published forecasts of that time" if len(evaluated["data"]) > len(grids) else ""
    lines = [
        "# Evaluation: the planner against simple rules, on recorded grids",
        "",
        f"    {evaluated['command']}",
        "",
        f"Seed {evaluated['seed']}; {evaluated['date']}; {evaluated['machine']}; {evaluated['took_s']:.0f} s, "
        f"{cpu_s:.0f} s of CPU. The same seed gives the same figures, to the digit, elsewhere.",
        "",
        f"{single} jobs on the recorded grids {', '.join(grids)}: {', '.join(jobs)}, from "
        f"{len(groups[0]['jobs'])} starts per grid, drawn from all hours; each in six settings: three boundaries, with "
        "power caps and without. All policies know carbontui's own forecast of what each zone's source had measured by "
        f"then{blended}; thresholds, the last week of that. Patience {evaluated['patience_pct']:g} %.",
        "",
        "A job of 650 W is off before its start, draws 90 W while paused, and takes 20 s to pause and 45 s to resume; "
        "speeds under caps: the mean of 24 published trainings on V100, A40, Quadro RTX 6000 and P100. Released: the "
        "GPU is let go while idle, nothing is charged while it waits to start. Reserved: a machine of 60 or 250 W "
        "beside the GPU is charged from the first moment to the finish. The best constant cap and foresight know the "
        "future. Savings: CO2 against running now, mean of the jobs; worst: the job that ended highest above running "
        "now (below zero: even that one saved), and above the constant cap; later: hours after running now; g/h: "
        "grams saved by each of these hours.",
    ]
    for caps, boundary in product((False, True), dict.fromkeys(map(_boundary, groups))):
        part = [group for group in groups if (group["caps"], _boundary(group)) == (caps, boundary)]
        lines += ["", f"## {'With power caps' if caps else 'Pauses alone'}, {boundary}", "", *_policies(part)]
    lines += ["", "## By grid: ours, the best of the simple rules, perfect foresight (mean saving, %)", ""]
    lines += _crossed(groups, _setting, lambda g: g["data"], _three)
    lines += ["", "## By length and budget: the same", ""]
    lines += _crossed(groups, _setting, lambda g: f"{g['hours']} h within {g['slack']:g}x", _three)
    every = sorted([*groups, *evaluated["patience"]], key=lambda g: float(g["patience_pct"]))
    main = {g["patience_pct"] for g in every if (g["hours"], g["slack"]) != DAY}
    for what, part in (
        ("all jobs", [g for g in every if g["patience_pct"] in main]),
        ("24 h within 2x", [g for g in every if (g["hours"], g["slack"]) == DAY]),
    ):
        lines += ["", f"## By patience, {what}: ours (mean saving, %, and hours later)", ""]
        lines += _crossed(part, _setting, lambda g: f"{g['patience_pct']:g} %", _hours)
    if len({job["seed"] for job in groups[0]["jobs"]}) > 1:
        lines += ["", "## By seed: ours, the best of the simple rules, perfect foresight (mean saving, %)", ""]
        lines += _crossed(_by_seed(groups), _setting, lambda g: f"{g['seed']}", _three)
    if varied := evaluated["variants"]:
        day = [g for g in groups if (g["hours"], g["slack"]) == DAY]
        lines += ["", f"## 24 h within 2x, {len(varied[0]['jobs'])} starts per grid, otherwise", "", VARIED, ""]
        lines += _crossed([*day, *varied], lambda g: g["variant"] or "CO2 alone, all known", _setting, _otherwise)
    if of_boards:
        of = f"24 h within 2x, {len(of_boards[0]['jobs'])} starts per grid, mean of its trainings (least to most)"
        lines += ["", f"## By GPU: ours, the best constant cap, perfect foresight ({of}, %)", ""]
        lines += _crossed(of_boards, lambda g: g["board"], _boundary, _band)
    lines += [f"\n![{name}]({name})" for name in pictures]
    lines += ["", "## Data", "", "| data | file | sha256 |", "|---|---|---|"]
    lines += [f"| {name} | {of['file']} | `{of['sha256']}` |" for name, of in evaluated["data"].items()]
    return "\n".join(lines) + "\n"


VARIED = (
    "Of ours / the best constant cap / foresight: what the plan weighs, saved against running now, mean of the jobs in "
    "%; of ours: its CO2, cost and hours later. Prices: as recorded, else 0.30 by day, 0.18 from 22 to 6 UTC. A carbon "
    "budget is kept so often, of so many where foresight does. Wrong work is known right once half of it is done."
)


def _by_seed(groups: list[Group]) -> list[Group]:
    """Each group in parts, by the seed that drew the start."""
    seeds = dict.fromkeys(job["seed"] for job in groups[0]["jobs"])
    return [
        {**group, "seed": seed, "jobs": [job for job in group["jobs"] if job["seed"] == seed]}
        for seed, group in product(seeds, groups)
    ]


def _otherwise(groups: list[Group]) -> str:
    jobs = [job for group in groups for job in group["jobs"]]
    goal, grams, cost = (summary(jobs, weights) for weights in (None, (0.0, 1.0), (1.0, 0.0)))
    given = [job for job in jobs if job["most_g"]]
    kept, could = (sum(job["policies"][one]["gco2_g"] <= job["most_g"] for job in given) for one in (OURS, FORESIGHT))
    cells = " / ".join(f"{goal[one]['mean_pct']:.1f}" for one in (OURS, CONSTANT, FORESIGHT))
    cells += f"; {grams[OURS]['mean_pct']:.1f}, {cost[OURS]['mean_pct']:.1f}; {goal[OURS]['delay_h']:.1f} h"
    cells += f", {late} late" if (late := goal[OURS]["late"]) else ""
    return cells + (f"; kept {kept} of {could}" if given else "")


def _boundary(group: Group) -> str:
    """'released', 'reserved 60 W': in words."""
    return str(group["boundary"]).replace("given-back", "released").replace("held", "reserved")


def _setting(group: Group) -> str:
    return f"{_boundary(group)}, {'caps' if group['caps'] else 'pauses'}"


def _together(groups: Iterable[Group]) -> dict[str, dict[str, Any]]:
    return summary([job for group in groups for job in group["jobs"]])


def _policies(groups: list[Group]) -> list[str]:
    base = CONSTANT if groups[0]["caps"] else NOW
    out = [
        f"| policy | mean % | worst % | over {base} % | late | switches | h later | g/h | of foresight above {base} |",
        "|---" * 9 + "|",
    ]
    rows, jobs = _together(groups), [job for group in groups for job in group["jobs"]]
    room = rows[FORESIGHT]["mean_pct"] - rows[base]["mean_pct"]
    for name, row in rows.items():
        cells = (
            f"**{name}**" if name == OURS else name,
            f"{row['mean_pct']:.1f}",
            *(figures.signed(worst, "{:.0f}".format) for worst in (row["worst_pct"], _worst(jobs, name, base))),
            str(row["late"]),
            *(f"{row[key]:.1f}" for key in ("switches", "delay_h")),
            "–" if row["saved_g_per_delay_h"] is None else f"{row['saved_g_per_delay_h']:.0f}",
            "–" if room < SMALL_PCT else f"{100 * (row['mean_pct'] - rows[base]['mean_pct']) / room:.0f} %",
        )
        out.append(f"| {' | '.join(cells)} |")
    return out


def _worst(jobs: list[dict[str, Any]], name: str, base: str) -> float:
    """% that the worst job emits above `base`."""
    return 100 * max(float(job["policies"][name]["gco2_g"] / job["policies"][base]["gco2_g"]) for job in jobs) - 100


def _crossed(groups: list[Group], row: Key, column: Key, cell: Callable[[list[Group]], str]) -> list[str]:
    columns = list(dict.fromkeys(map(column, groups)))
    out = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for head in dict.fromkeys(map(row, groups)):
        parts = ([g for g in groups if (row(g), column(g)) == (head, one)] for one in columns)
        out.append(f"| {head} | {' | '.join(cell(part) if part else '' for part in parts)} |")
    return out


def _three(groups: list[Group]) -> str:
    mean = {name: row["mean_pct"] for name, row in _together(groups).items()}
    simple = max(value for name, value in mean.items() if name not in (OURS, FORESIGHT))
    return f"{mean[OURS]:.1f} / {simple:.1f} / {mean[FORESIGHT]:.1f}"


def _hours(groups: list[Group]) -> str:
    row = _together(groups)[OURS]
    return f"{row['mean_pct']:.1f} ({row['delay_h']:.1f} h)"


def _band(groups: list[Group]) -> str:
    trainings = [_together(g for g in groups if g["training"] == one) for one in {g["training"] for g in groups}]
    each = {name: [rows[name]["mean_pct"] for rows in trainings] for name in (OURS, CONSTANT, FORESIGHT)}
    return " / ".join(f"{statistics.fmean(row):.1f} ({min(row):.0f} to {max(row):.0f})" for row in each.values())


def pictures(evaluated: dict[str, Any]) -> dict[str, str]:
    """By file name: the mean saving of every policy as bars, without caps and with them, released while idle."""
    drawn = {}
    for name, caps in (("pauses", False), ("caps", True)):
        wanted = (caps, "given-back", ANY_BOARD)
        part = (g for g in evaluated["groups"] if (g["caps"], g["boundary"], g["board"]) == wanted)
        rows = [(policy, row["mean_pct"]) for policy, row in _together(part).items() if policy != NOW]
        drawn[f"evaluation-{name}.svg"] = bars(f"CO2 saved against running now, %, {name} (released while idle)", rows)
    return drawn


def bars(title: str, rows: list[tuple[str, float]]) -> str:
    """An SVG of horizontal bars, negative ones to the left of zero; readable on light and dark pages."""
    low, high = min(0.0, *(value for _, value in rows)), max(1.0, *(value for _, value in rows))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{44 + 24 * len(rows)}" font-family="sans-serif" '
        'font-size="13"><rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="10" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for y, (name, value) in zip(count(36, 24), rows, strict=False):
        begin, end = (260 + 420 * (one - low) / (high - low) for one in sorted((0.0, value)))
        colour = "#1b7f4d" if name == OURS else "#8aa39a"
        out.append(f'<text x="250" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}" height="16" fill="{colour}"/>')
        out.append(f'<text x="{end + 6:.1f}" y="{y + 12}">{value:.1f}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
