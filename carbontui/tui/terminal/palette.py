"""The colours: an ink for each meaning, for dark and light screens and for a palette that is the terminal's own."""

import os
from collections.abc import Collection, Mapping

from textual.theme import Theme

from carbontui.line import SHAPES as STATES

__all__ = ["STATES"]

BAR = " ▁▂▃▄▅▆▇█"
"""`BAR[n]` is a column filled to n eighths."""
PART = ("", *"▏▎▍▌▋▊▉")
"""`PART[n]` is a cell filled to n eighths from the left."""
HATCH, DENSE, STIPPLE = "░", "▓", "·"
RULE, NOW, DASH, DOTTED, TICK, TRACK = "─", "│", "╌", "┊", "│", "━"
POINTER, LEAST, KNOB, MARK, POINT = "▲", "▼", "●", "◇", "◆"
ELLIPSIS, BROKEN = "…", "≈"
"""`BROKEN`: an axis that does not begin at zero."""
BRAILLE = 0x2800
"""The first of 256 characters, one for each set of eight dots."""

_PLAIN = str.maketrans(
    dict.fromkeys(map(chr, range(BRAILLE, BRAILLE + 256)), ".")
    | dict(zip(BAR, " ..::||##", strict=True))
    | dict(zip(STATES.values(), ".o>%;=^+x#?", strict=True))
    # what other programs draw their progress bars with
    | dict.fromkeys("▉▊▋▌", "#")
    | dict.fromkeys("▍▎▏▒", ":")
    | dict(zip("░▓·─│┃╌┊━▲▼●◇◆…–—×→←↑↓₂Δ−°≈", "/%'-||-:=^vO+*~--x><^v2d-o=", strict=True))
)


def plain(text: str, app: object) -> str:
    """Our own text in characters that the app's terminal can show."""
    if not getattr(app, "ascii", False):
        return text
    return text.replace(" · ", " - ").translate(_PLAIN).encode("ascii", "replace").decode()


# one colour per meaning; soft ones lie under the band of a forecast. Bright black is the background of some palettes
# (Solarized), so nothing is drawn in it
_STYLES = {
    "text": ("#d3d9e2", "#2a313a", "ansi_default"),
    "strong": ("#f4f6f9", "#0b0e12", "ansi_default"),
    "dim": ("#8490a0", "#66717f", "ansi_default"),
    "faint": ("#39434f", "#c5ccd5", "ansi_default"),
    "title": ("#b6c0cd", "#3f4955", "ansi_default"),
    "now": ("#ffffff", "#000000", "ansi_default"),
    "past": ("#5d6875", "#868f9c", "ansi_default"),
    "hatch": ("#4f61a6", "#6f82cc", "ansi_blue"),
    "hatch-back": ("#161d2e", "#e9edfa", "ansi_default"),
    "hatch-mean": ("#273152", "#c4cdec", "ansi_default"),
    "beyond": ("#5d6875", "#868f9c", "ansi_default"),
    "beyond-soft": ("#2b333d", "#d8dee5", "ansi_default"),
    "preview": ("#f08fb4", "#b8306d", "ansi_magenta"),
    "running": ("#7cc48a", "#2a7f42", "ansi_green"),
    "capped": ("#58b4c4", "#167f92", "ansi_cyan"),
    "paused": ("#829ff2", "#3f5fc8", "ansi_blue"),
    "unloaded": ("#a78be0", "#7546bf", "ansi_magenta"),
    "warning": ("#e3b04b", "#9a6a00", "ansi_yellow"),
    "fault": ("#ee6b73", "#c02b38", "ansi_red"),
    "running-soft": ("#3c6b48", "#8fc69d", "ansi_green"),
    "capped-soft": ("#2c5f6a", "#86c4cf", "ansi_cyan"),
    "paused-soft": ("#3d4e85", "#a3b4ea", "ansi_blue"),
    "unloaded-soft": ("#54467a", "#bea6e2", "ansi_magenta"),
    "past-soft": ("#404952", "#c3c9d1", "ansi_default"),
    "cursor": ("#1f2a36", "#dfe6f0", "ansi_default"),
    "banner-back": ("#4a3a12", "#fbe7b5", "ansi_yellow"),
    "banner": ("#ffd37a", "#6b4a00", "ansi_black"),
}
"""By name: on a dark screen, on a light one, and from the terminal's own palette."""
FAINT = ("faint", "beyond", "beyond-soft")
"""Inks that the terminal's own palette has no colour for: there they are the default colour, dimmed."""

THEMES = (
    Theme(
        "carbon-dark", primary="#58b4c4", background="#0f1317", surface="#161b21", panel="#1c232b", foreground="#d3d9e2"
    ),
    Theme(
        "carbon-light",
        primary="#167f92",
        background="#fafbfc",
        surface="#f0f2f5",
        panel="#e6e9ee",
        foreground="#2a313a",
        dark=False,
    ),
)


def variables(theme: Theme) -> dict[str, str]:
    """The theme's values for the sheets' `$ink-...` variables."""
    column = 2 if theme.ansi else 0 if theme.dark else 1
    return {f"ink-{name}": colours[column] for name, colours in _STYLES.items()}


def first_theme(known: Collection[str], environ: Mapping[str, str] = os.environ) -> str:
    """The theme to start with: the first known one of TEXTUAL_THEME; '' for none."""
    return next((name for each in environ.get("TEXTUAL_THEME", "").split(",") if (name := each.strip()) in known), "")
