"""The screen: a stateless viewer of job.sock. `run` shows one job, `jobs` the table of all of them.

It may be killed at any moment, so it keeps nothing that must survive.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.screen import Screen

    from carbontui.tui.model.feed import Target
    from carbontui.tui.model.jobs_feed import JobsSnapshot
    from carbontui.tui.screens.dashboard import Dashboard
    from carbontui.tui.screens.jobs import Jobs


def run(
    target: Target,
    *,
    observe: Callable[[], JobsSnapshot] | None = None,
    readonly: bool = False,
    mouse: bool = True,
    ascii: bool = False,
    until_over: bool | None = None,
) -> int:
    """Show the dashboard until the user leaves it (`until_over`: or the job ends; not None: for `run`, whose
    lines are marked as ours); returns 0. On a pipe or a dumb terminal: one line per change.

    `observe` gives all jobs of the machine, for the table that the `t` key opens.
    """
    from carbontui.tui.terminal import tty

    why = tty.why_plain()
    if why:
        from carbontui.tui import plain

        tty.loaded()
        print(f"carbontui: {why}: one line per change", file=sys.stderr)
        return plain.follow(target, sys.stdout)

    def first() -> Dashboard:
        from carbontui.tui.screens.dashboard import Dashboard

        table = None if observe is None else lambda: _table(observe, readonly=readonly)
        return Dashboard(target, readonly=readonly, table=table, until_over=until_over)

    return _show(first, ascii, mouse)


def jobs(
    observe: Callable[[], JobsSnapshot], *, readonly: bool = False, ascii: bool = False, mouse: bool = True
) -> int:
    """Show the table of all jobs until the user leaves it; a job opened from it returns to it. Returns 0."""
    return _show(lambda: _table(observe, readonly=readonly), ascii, mouse)


def _show(first: Callable[[], Screen[str | None]], ascii: bool, mouse: bool = True) -> int:
    from carbontui.tui.terminal import tty

    tty.load_first()
    tty.prefer_still()
    from carbontui import paths
    from carbontui.tui.app import CarbonApp

    kept = paths.state_dir() / "theme"
    CarbonApp(first, ascii=tty.ascii_alone(ascii), kept_theme=kept).run(mouse=mouse)
    return 0


def _table(observe: Callable[[], JobsSnapshot], *, readonly: bool) -> Jobs:
    from carbontui.tui.screens.jobs import Jobs

    return Jobs(observe, lambda target: _opened(target, readonly=readonly), readonly=readonly)


def _opened(target: Target, *, readonly: bool) -> Dashboard:
    from carbontui.tui.screens.dashboard import Dashboard

    return Dashboard(target, readonly=readonly, from_table=True)
