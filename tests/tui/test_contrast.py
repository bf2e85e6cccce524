"""What must be read stands out: WCAG 2.1's ratio of luminances, for text 4.5:1 and for marks 3:1."""

from __future__ import annotations

import pytest

from carbontui.tui.terminal import palette

TEXT = ("text", "strong", "dim", "title", "preview", "running", "capped", "paused", "unloaded", "warning", "fault")
MARKS = ("past", "hatch", "beyond", "now")
"""Columns of the charts. Frames, tracks and the bands behind them are no marks: nothing is read from them alone."""


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb, https://www.w3.org/TR/WCAG21/#dfn-relative-luminance"""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", palette.THEMES, ids=lambda theme: theme.name)
def test_words_and_marks_stand_out_from_the_ground(theme) -> None:
    colours = {name.removeprefix("ink-"): colour for name, colour in palette.variables(theme).items()}
    grounds = {"background": theme.background, "cursor": colours["cursor"]}
    for name in TEXT:
        assert contrast(colours[name], theme.background) >= 4.5, name
    for name in ("text", "strong"):
        assert all(contrast(colours[name], ground) >= 4.5 for ground in grounds.values()), f"{name} under the cursor"
    assert contrast(colours["banner"], colours["banner-back"]) >= 4.5
    for name in MARKS:
        assert contrast(colours[name], theme.background) >= 3.0, name


def test_a_theme_is_the_one_named() -> None:
    known = {"carbon-dark", "carbon-light", "nord"}
    assert palette.first_theme(known, {}) == ""
    assert palette.first_theme(known, {"TEXTUAL_THEME": "none-such, carbon-light"}) == "carbon-light"
