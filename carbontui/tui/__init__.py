"""The screen: a stateless viewer of job.sock. `run` shows one job, `choose` lets a person pick one of several.

It may be killed at any moment, so it keeps nothing that must survive.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from carbontui import protocol

if TYPE_CHECKING:
    from carbontui.tui.screens.station import Seen
    from carbontui.tui.target import Target


def run(target: Target, *, readonly: bool = False, mouse: bool = True, ascii: bool = False) -> int:
    """The dashboard until the person leaves it; returns 0. On a pipe or a dumb terminal one line per change instead."""
    from carbontui.tui import terminal

    why = terminal.why_plain()
    if why:
        from carbontui.tui import plain

        print(f"carbontui: {why}: one line per change", file=sys.stderr)
        return plain.follow(target, sys.stdout)
    terminal.prefer_still()
    from carbontui.tui.app import CarbonApp
    from carbontui.tui.screens.dashboard import Dashboard

    glyphs = terminal.glyphs(ascii)
    CarbonApp(lambda: Dashboard(target, glyphs, readonly=readonly)).run(mouse=mouse)
    return 0


def station(look: Callable[[], Seen], *, ascii: bool = False, mouse: bool = True) -> str | None:
    """The screen without a running job; the id of the job opened from it, None when the person leaves."""
    from carbontui.tui import terminal

    terminal.prefer_still()
    from carbontui.tui.app import CarbonApp
    from carbontui.tui.screens.station import Station

    glyphs = terminal.glyphs(ascii)
    return CarbonApp(lambda: Station(look, glyphs)).run(mouse=mouse)


def choose(statuses: Sequence[protocol.Status], *, ascii: bool = False, mouse: bool = True) -> str | None:
    """The id of the job a person picks; None when they leave, or when there is no terminal."""
    from carbontui.tui import terminal

    if terminal.why_plain():
        return None
    terminal.prefer_still()
    from carbontui.tui.app import CarbonApp
    from carbontui.tui.screens.choose import Choose

    glyphs = terminal.glyphs(ascii)
    return CarbonApp(lambda: Choose(tuple(statuses), glyphs)).run(mouse=mouse)
