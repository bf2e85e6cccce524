"""`run --try`: follows a trial run of the command before its start, and reports the outcome."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import click

from carbontui import protocol
from carbontui.job import history, launch, store
from carbontui.job import spec as options
from carbontui.job.runlog import last_lines
from carbontui.tui.loglines import LogLines
from carbontui.verbs.support import streams
from carbontui.verbs.support.foreground import exit_code

POLL_S = 0.2
TOLD_S = 10.0
"""The supervisor reports the outcome of a trial in less time than this."""
LINES = 20


def wanted(asked: bool, job: options.Options, *, offer: bool) -> bool:
    """Whether to try first: by --try, or by the answer to the offer, which is made where the start may be delayed."""
    if asked or not offer or not launch.waits(job):
        return asked
    text = (
        "The start may be delayed. Try the command now, for at least 20 steps and two minutes at most, so that it"
        " will not fail then?"
    )
    kept = signal.signal(signal.SIGHUP, signal.default_int_handler)  # a closed terminal is not an answer either
    try:
        with launch.undone(Path(job.dir)):
            return click.confirm(streams.folded(text), default=False, err=True)
    finally:
        signal.signal(signal.SIGHUP, kept)


def follow(directory: Path) -> None:
    """Wait until the trial is over, and print its outcome. Exits with the command's code where it has ended."""
    click.echo("carbontui: trying the command before its start (at least 20 steps, two minutes at most)", err=True)
    while (job := store.load(directory)) is not None and job.exit is None and job.trying and job.live:
        time.sleep(POLL_S)
    job = store.load(directory)
    if job is not None and job.exit is not None:
        stopped = job.exit.get("stopped")  # by a user: its reaction to that is not a crash
        for line in () if stopped else tail(job.log):
            click.echo(line, err=True)
        code = exit_code(job)
        due = time.monotonic() + TOLD_S
        while (store.load(directory) or job).live and time.monotonic() < due:
            time.sleep(POLL_S)  # its name is free once its keeper has left
        how = "was stopped" if stopped else f"ended with exit code {code}"
        click.echo(f"carbontui: it {how} during the trial; the job is over", err=True)
        sys.exit(code)
    due = time.monotonic() + TOLD_S
    while job is not None and time.monotonic() < due:
        tried = [one.text for one in _events(job) if one.kind == "tried"]
        if tried:
            click.echo(f"carbontui: {tried[-1]}", err=True)
            return
        time.sleep(POLL_S)
        job = store.load(directory)


def _events(job: store.Job) -> tuple[protocol.Event, ...]:

    try:
        return history.events(job.dir / "journal.db", 0.0, 500, False)
    except history.HistoryError:
        return ()


def tail(log: Path) -> list[str]:
    """The last lines of the command's output, without what steers a terminal."""
    try:
        with log.open("rb") as file:
            file.seek(last_lines(file, LINES))
            text = file.read(1 << 20).decode(errors="replace")
    except OSError:
        return []
    shown = LogLines(LINES + 1)
    shown.feed(text)
    rows = ("".join(run for run, _ in row) for row in shown.rows(LINES + 1))
    return [row for row in rows if row.strip()]
