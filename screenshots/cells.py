"""A screen as an SVG without seams: blocks and lines are drawn as shapes, so no font leaves gaps between cells."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from textual.app import App

WIDTH, HEIGHT, MARGIN = 9.0, 20.0, 12.0
"""Of a cell, and around all of them, in pixels."""
DENSE = {"░": 0.3, "▒": 0.55, "▓": 0.75}
"""Shades as opacity."""
LINES = {"─": (0.0, 0.47, 1.0, 0.06), "━": (0.0, 0.43, 1.0, 0.14), "│": (0.44, 0.0, 0.12, 1.0)}
"""Left, top, width and height of a line in its cell."""


def shape(char: str) -> tuple[float, float, float, float] | None:
    """Left, top, width and height that a character fills of its cell; None for one that a font draws."""
    if char in DENSE:
        return 0.0, 0.0, 1.0, 1.0
    if "▁" <= char <= "█":
        part = (ord(char) - ord("▁") + 1) / 8
        return 0.0, 1.0 - part, 1.0, part
    if "▉" <= char <= "▏":
        return 0.0, 0.0, (ord("▏") - ord(char) + 1) / 8, 1.0
    return LINES.get(char)


def colour(color: Color | None, foreground: bool, base: str) -> str:
    return base if color is None or color.is_default else color.get_truecolor(DIMMED_MONOKAI, foreground=foreground).hex


def svg(app: App[object]) -> str:
    """The screen of an app in its test mode."""
    width, height = app.size
    ground = app.screen.styles.background.hex6
    drawn = [f'<rect width="100%" height="100%" rx="8" fill="{ground}"/>']
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        x = 0
        for segment in strip:
            style = segment.style or Style.null()
            drawn += _run(x, y, segment.text, style, ground)
            x += cell_len(segment.text)
    whole = width * WIDTH + 2 * MARGIN, height * HEIGHT + 2 * MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole[0]:g} {whole[1]:g}" width="{whole[0]:g}" '
        f'height="{whole[1]:g}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14.5" '
        # without it a scaled picture has a faint line between cells
        'shape-rendering="crispEdges">'
    )
    return "\n".join([head, *drawn, "</svg>", ""])


def _run(x: int, y: int, text: str, style: Style, ground: str) -> Iterable[str]:
    """One piece of a row: its background, its shapes (equal neighbours as one), its words."""
    front, back = colour(style.color, True, "#d3d9e2"), colour(style.bgcolor, False, ground)
    front, back = (back, front) if style.reverse else (front, back)
    left, top = MARGIN + x * WIDTH, MARGIN + y * HEIGHT
    if back != ground:
        yield _rect(left, top, cell_len(text) * WIDTH, HEIGHT, back)
    at, begun = 0, 0
    while at < len(text):
        begun = at
        char = text[at]
        while at < len(text) and text[at] == char:
            at += 1
        found = shape(char)
        if found is not None:
            dx, dy, wide, tall = found
            cells = at - begun
            if wide == 1.0:
                box = (left + begun * WIDTH, cells * WIDTH)
                yield _rect(box[0], top + dy * HEIGHT, box[1], tall * HEIGHT, front, DENSE.get(char, 1.0))
            else:
                for cell in range(begun, at):
                    yield _rect(left + (cell + dx) * WIDTH, top + dy * HEIGHT, wide * WIDTH, tall * HEIGHT, front)
    words = "".join(" " if shape(char) else char for char in text)
    for start, word in _words(words):
        long = cell_len(word) * WIDTH
        weight = ' font-weight="bold"' if style.bold else ""
        faint = ' opacity="0.6"' if style.dim else ""
        yield (
            f'<text x="{left + start * WIDTH:g}" y="{top + HEIGHT * 0.74:g}" textLength="{long:g}" '
            f'lengthAdjust="spacingAndGlyphs" fill="{front}"{weight}{faint} xml:space="preserve">{escape(word)}</text>'
        )


def _words(text: str) -> Iterable[tuple[int, str]]:
    """Stretches between two blanks or more, and the cell where each begins."""
    at = 0
    for part in text.split("  "):
        word = part.strip(" ")
        if word:
            yield cell_len(text[:at]) + cell_len(part) - cell_len(part.lstrip(" ")), word
        at += len(part) + 2


def _rect(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> str:
    seen = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{seen}/>'
