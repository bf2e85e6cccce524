"""The screen: a stateless viewer of job.sock. `run` shows one job, `jobs` the table of all of them.

It may be killed at any moment, so it keeps nothing that must survive.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from carbontui import paths, units

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
    until_over: bool | None = None,
) -> int:
    """Show the dashboard until the user leaves it (`until_over`: or the job ends; not None: for `run`, whose
    lines are marked as ours); returns 0, or 1 after a fault. On a pipe or a dumb terminal: one line per change.

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

    return _show(first, mouse, paths.job_dir(target.job))


def jobs(observe: Callable[[], JobsSnapshot], *, readonly: bool = False, mouse: bool = True) -> int:
    """Show the table of all jobs until the user leaves it; a job opened from it returns to it. Returns 0, or 1 after a
    fault."""
    return _show(lambda: _table(observe, readonly=readonly), mouse, paths.state_dir())


def _show(first: Callable[[], Screen[str | None]], mouse: bool, folder: Path) -> int:
    from carbontui.tui.terminal import tty

    tty.load_first()
    tty.prefer_still()
    from carbontui.tui.app import CarbonApp

    app = CarbonApp(first, ascii=tty.ascii_alone())
    app.run(mouse=mouse)
    if app._exception is not None:
        keep_fault(app._exception, folder if folder.is_dir() else paths.state_dir())
    return app.return_code or 0


def keep_fault(fault: BaseException, folder: Path) -> None:
    """Append its traceback to carbontui.log, best effort: what the terminal shows of it is soon gone."""
    with contextlib.suppress(OSError), (folder / "carbontui.log").open("a", errors="replace") as log:
        log.write(f"{units.iso(time.time())} screen: {''.join(traceback.format_exception(fault))}")


def _table(observe: Callable[[], JobsSnapshot], *, readonly: bool) -> Jobs:
    from carbontui.tui.screens.jobs import Jobs

    return Jobs(observe, lambda target: _opened(target, readonly=readonly), readonly=readonly)


def _opened(target: Target, *, readonly: bool) -> Dashboard:
    from carbontui.tui.screens.dashboard import Dashboard

    return Dashboard(target, readonly=readonly, from_table=True)
