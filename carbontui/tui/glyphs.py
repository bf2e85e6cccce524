"""The characters that drawings use: one table of shapes, in Unicode blocks and in plain ASCII."""

from __future__ import annotations

from dataclasses import dataclass

from carbontui.line import SHAPES


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Shapes of one set. `bar[n]` is a column filled to n eighths; `gauge[n]` a row filled to n eighths."""

    bar: str
    gauge: str
    hatch: str
    dense: str
    stipple: str
    pointer: str
    rule: str
    now: str
    dash: str
    dotted: str
    tick: str
    track: str
    knob: str
    mark: str
    point: str
    ellipsis: str
    braille: bool
    states: dict[str, str]


BLOCKS = Glyphs(
    bar=" ▁▂▃▄▅▆▇█",
    gauge=" ▏▎▍▌▋▊▉█",
    hatch="░",
    dense="▓",
    stipple="·",
    pointer="▲",
    rule="─",
    now="│",
    dash="╌",
    dotted="┊",
    tick="│",
    track="━",
    knob="●",
    mark="◇",
    point="◆",
    ellipsis="…",
    braille=True,
    states=SHAPES,
)
ASCII = Glyphs(
    bar=" ..::||##",
    gauge=" ....####",
    hatch="/",
    dense="%",
    stipple="'",
    pointer="^",
    rule="-",
    now="|",
    dash="-",
    dotted=":",
    tick="|",
    track="=",
    knob="O",
    mark="+",
    point="*",
    ellipsis="~",
    braille=False,
    states={
        "starting": ".",
        "waiting": "o",
        "running": ">",
        "throttled": "%",
        "pausing": ";",
        "paused": "=",
        "unloaded": "^",
        "done": "+",
        "failed": "x",
        "stopped": "#",
        "lost": "?",
    },
)

_BARS = dict.fromkeys("█▉▊▋▌▓", "#") | dict.fromkeys("▍▎▏▒░", ":") | dict.fromkeys("━─", "-") | dict.fromkeys("┃│", "|")
"""Characters that other programs draw their progress bars with."""
_TO_ASCII = str.maketrans(
    _BARS
    | {
        "·": "-",
        "–": "-",
        "—": "-",
        "×": "x",
        "→": ">",
        "←": "<",
        "↑": "^",
        "↓": "v",
        "…": "~",
        "₂": "2",
        "Δ": "d",
        "−": "-",
    }
)


def plain(text: str, glyphs: Glyphs) -> str:
    """Our own text in characters this terminal can show."""
    return text if glyphs.braille else text.translate(_TO_ASCII).encode("ascii", "replace").decode()
