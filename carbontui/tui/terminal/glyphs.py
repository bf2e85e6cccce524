"""The characters that drawings use, and what stands for each where a terminal shows ASCII alone."""

from __future__ import annotations

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
