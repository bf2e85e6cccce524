"""The colours: an ink for each meaning, for dark and light screens and for a palette that is the terminal's own."""

from __future__ import annotations

from textual.theme import Theme

# one colour per meaning; soft ones lie under the band of a forecast
DARK = {
    "text": "#d3d9e2",
    "strong": "#f4f6f9",
    "dim": "#8490a0",
    "faint": "#39434f",
    "title": "#b6c0cd",
    "now": "#ffffff",
    "past": "#5d6875",
    "hatch": "#4f61a6",
    "hatch-back": "#161d2e",
    "beyond": "#5d6875",
    "beyond-soft": "#2b333d",
    "band": "#222a33",
    "preview": "#f08fb4",
    "running": "#7cc48a",
    "capped": "#58b4c4",
    "paused": "#829ff2",
    "unloaded": "#a78be0",
    "warning": "#e3b04b",
    "fault": "#ee6b73",
    "running-soft": "#3c6b48",
    "capped-soft": "#2c5f6a",
    "paused-soft": "#3d4e85",
    "unloaded-soft": "#54467a",
    "past-soft": "#404952",
    "cursor": "#1f2a36",
    "banner-back": "#4a3a12",
    "banner": "#ffd37a",
}
LIGHT = {
    "text": "#2a313a",
    "strong": "#0b0e12",
    "dim": "#66717f",
    "faint": "#c5ccd5",
    "title": "#3f4955",
    "now": "#000000",
    "past": "#868f9c",
    "hatch": "#6f82cc",
    "hatch-back": "#e9edfa",
    "beyond": "#868f9c",
    "beyond-soft": "#d8dee5",
    "band": "#e4e9ee",
    "preview": "#b8306d",
    "running": "#2a7f42",
    "capped": "#167f92",
    "paused": "#3f5fc8",
    "unloaded": "#7546bf",
    "warning": "#9a6a00",
    "fault": "#c02b38",
    "running-soft": "#8fc69d",
    "capped-soft": "#86c4cf",
    "paused-soft": "#a3b4ea",
    "unloaded-soft": "#bea6e2",
    "past-soft": "#c3c9d1",
    "cursor": "#dfe6f0",
    "banner-back": "#fbe7b5",
    "banner": "#6b4a00",
}
FAINT = ("faint", "beyond", "beyond-soft", "band")
"""Inks that the terminal's own palette has no colour for: there they are the default colour, dimmed."""
# bright black is the background of some palettes (Solarized), so nothing is drawn in it
_ANSI = {
    **dict.fromkeys(("text", "strong", "title", "now", "dim", "past", "past-soft", *FAINT), "ansi_default"),
    **dict.fromkeys(("running", "running-soft"), "ansi_green"),
    **dict.fromkeys(("capped", "capped-soft"), "ansi_cyan"),
    **dict.fromkeys(("paused", "paused-soft", "hatch"), "ansi_blue"),
    **dict.fromkeys(("unloaded", "unloaded-soft", "preview"), "ansi_magenta"),
    **dict.fromkeys(("hatch-back", "cursor"), "ansi_default"),
    "warning": "ansi_yellow",
    "fault": "ansi_red",
    "banner-back": "ansi_yellow",
    "banner": "ansi_black",
}


THEMES = (
    Theme(
        "carbon-dark",
        primary="#58b4c4",
        background="#0f1317",
        surface="#161b21",
        panel="#1c232b",
        foreground="#d3d9e2",
        variables={"footer-background": "#0f1317", "footer-key-foreground": "#f4f6f9"},
    ),
    Theme(
        "carbon-light",
        primary="#167f92",
        background="#fafbfc",
        surface="#f0f2f5",
        panel="#e6e9ee",
        foreground="#2a313a",
        dark=False,
        variables={"footer-background": "#fafbfc", "footer-key-foreground": "#0b0e12"},
    ),
)


def variables(theme: Theme) -> dict[str, str]:
    """The theme's values for the sheets' `$ink-...` variables."""
    inks = _ANSI if theme.ansi else DARK if theme.dark else LIGHT
    return {f"ink-{name}": colour for name, colour in inks.items()}
