"""Rows of a comparison as a table on the terminal: sorted, filtered, and drawn as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import click

from carbontui.account.compare import Elsewhere
from carbontui.text import figures

SHOWN, BAR = 15, 12
SortKey = Literal["co2", "energy", "time", "cost"]
SORT_KEYS: tuple[str, ...] = get_args(SortKey)
_OF: dict[SortKey, Callable[[Elsewhere], float | None]] = {
    "co2": lambda row: row.gco2_g,
    "energy": lambda row: row.kwh,
    "time": lambda row: row.time_s,
    "cost": lambda row: row.cost,
}


def chosen(rows: Sequence[Elsewhere], *, sort: SortKey | None, only: str | None) -> list[Elsewhere]:
    """The rows whose name contains `only`, lowest first by `sort`; rows without that figure come last."""
    kept = [row for row in rows if only is None or only.lower() in row.name.lower()]
    if sort is None:
        return kept
    figure = _OF[sort]
    return sorted(kept, key=lambda row: (figure(row) is None, figure(row) or 0.0))


def show(rows: Sequence[Elsewhere], own: Elsewhere | None, *, every_row: bool, speeds: bool = False) -> None:
    """Print them, `own` always among them; bars are CO2, or energy where no grid is known."""
    shown = list(rows if every_row else rows[:SHOWN])
    if own is not None and own not in shown:
        shown.append(own)
    priced = any(row.cost is not None for row in shown)
    by_grams = any(row.gco2_g is not None for row in shown)
    most = max(((row.gco2_g if by_grams else row.kwh) or 0.0 for row in shown), default=0.0)
    width = max(len(row.name) for row in shown)
    head = [f"{'':<{width}}", *([f"{'speed':>6}"] if speeds else []), f"{'time':>9}", f"{'energy':>9}"]
    click.echo("  ".join([*head, *([f"{'price':>10}"] if priced else []), f"{'CO2':>8}"]))
    one_how = len({row.how for row in shown}) == 1
    for row in shown:
        cells = [f"{row.name:<{width}}", *([f"{row.speed:>5.2f}x"] if speeds else [])]
        cells += [f"{figures.duration(row.time_s):>9}", f"{figures.kwh(row.kwh):>9}"]
        if priced:
            cells.append(f"{'' if row.cost is None else format(row.cost, ',.2f'):>10}")
        bar = _bar((row.gco2_g if by_grams else row.kwh) or 0.0, most)
        how = f"{'' if one_how else row.how}{'  <- here' if row is own else ''}"
        click.echo("  ".join([*cells, f"{figures.grams(row.gco2_g):>8}", bar, how]).rstrip())
    if one_how and shown:
        click.echo(f"all rows: {shown[0].how}")
    if len(shown) < len(rows):
        click.echo(f"... {len(rows) - len(shown)} more with --all")


def _bar(value: float, most: float) -> str:
    filled = round(BAR * value / most) if most > 0 else 0
    return f"{'█' * filled:<{BAR}}"
