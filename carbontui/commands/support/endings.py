"""A job as the screen opens it, with what its report adds to the picture of a finished one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace

from carbontui import __version__, config, units
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure
from carbontui.job.files import store
from carbontui.text import account as words
from carbontui.tui.model.target import BetterHost, Form, Target


def target_of(job: store.Job) -> Target:
    """The reports are loaded once they are asked for."""

    def receipt(form: Form) -> str:
        from carbontui.reports import card, story

        try:
            told = story.build(job, status=job.status(), version=__version__)
        except story.NoStory as error:
            raise RuntimeError(str(error)) from None
        return {"text": card.terminal, "markdown": card.markdown, "svg": card.svg}[form](told)

    def ending() -> tuple[tuple[str, str], ...]:
        from carbontui.reports import card, story

        try:
            return card.ending(story.build(job, status=job.status(), version=__version__))
        except story.NoStory:
            return ()

    told = replace(without_reports(job), receipt=receipt, ending=ending, away=lambda: talk.away(job))
    hosts = None
    with contextlib.suppress(config.ConfigError):
        hosts = config.load().settings.hosts
    if not hosts or told.over or job.foreign:
        return told
    names = [name.strip() for name in hosts.split(",") if name.strip()]
    return replace(told, elsewhere=lambda: _elsewhere(job, names), move=lambda host: by_verb(job, host))


WORTH_MOVING = 0.05
"""A smaller saving is not offered."""


def _elsewhere(job: store.Job, names: list[str]) -> BetterHost | None:
    """The machine on which the rest of it would emit least; None where nothing is known, or gained."""
    from carbontui.account.hosts import better
    from carbontui.commands.support import hosts

    try:
        rest = hosts.of_job(job)
    except (Failure, ValueError):
        return None
    there = os.environ.get("CARBONTUI_THERE", "carbontui")
    here, *_ = rows = hosts.compared(rest, names, there, at_once=True)[0]
    best = better(rows, WORTH_MOVING)
    if best is None:
        return None
    saves = 1.0 - (best.row.gco2_g or 0.0) / (here.row.gco2_g or 1.0)
    return BetterHost(best.row.name, words.better_host(best.row.name, best.zone, saves, best.done_s - here.done_s))


def by_verb(job: store.Job, host: str) -> tuple[bool, str]:
    """By the verb, in a session of its own: leaving the screen does not end it."""
    log = job.dir / "move.log"
    try:
        with log.open("wb") as out:
            done = subprocess.run(
                [sys.executable, "-m", "carbontui.cli", "move", job.id, host, "--yes"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, check=False,
            )  # fmt: skip
        told = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError as error:
        return False, f"not moved: {error}"
    last = told[-1].removeprefix("carbontui: ") if told else f"move ended with {done.returncode}"
    return done.returncode == 0, units.printable(last)


def without_reports(job: store.Job) -> Target:
    """The job with what its files say, which are its only source once it is over."""
    told = Target(job.id, job.name, job.socket, job.status(), job.read_log, job.started_s, job.owner)
    return replace(told, whole_run=job.whole_run, last_look=job.dir / "last-look.json")
