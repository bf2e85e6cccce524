"""The inputs of the dashboard's layout, and the heights that follow from them; the rest is in its sheet."""

from __future__ import annotations

from carbontui.tui.model import words
from carbontui.tui.model.picture import Picture

LEGEND_FROM = 34
"""Least rows of a terminal that shows the chart's legend and the price."""

ROOMY_FROM = 38
"""Rows of a terminal on which the reason may take two of them."""


def shape(picture: Picture) -> tuple[object, ...]:
    """While this and the size are unchanged, the layout is unchanged."""
    return (
        picture.over,
        picture.series.watts is None,
        len(picture.status.gpus),
        bool(words.banner(picture.status, picture.series)),
        picture.series.price is None,
    )


def state_rows(width: int, height: int) -> int:
    """Rows of the state bar: a narrow one needs more of them for the same words, a tall one has them to spare."""
    if height >= ROOMY_FROM:
        return 4
    if width >= 64:
        return 3 if width >= 104 or height < 21 else 4
    return 5 if height >= 18 else 4


def boards_most(height: int) -> int:
    """Rows that the boards may take."""
    return 16 if height >= 48 else 4 if height >= 34 else 1
