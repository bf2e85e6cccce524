"""`run --try`: following the try of a command before its start, and what is told of it."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import click

from carbontui.job import launch, store
from carbontui.job import spec as options
from carbontui.job.runlog import last_lines
from carbontui.tui.loglines import LogLines
from carbontui.verbs import streams
from carbontui.verbs.foreground import exit_code

POLL_S = 0.2
TOLD_S = 10.0
"""The supervisor says within less what a try has come to."""
LINES = 20


def wanted(asked: bool, job: options.Options, *, offer: bool) -> bool:
    """Whether to try first: said with --try, or answered to the offer, which is made where the start may wait."""
    if asked or not offer or not launch.waits(job):
        return asked
    text = (
        "The start may wait. Try the command now, for at least 20 steps and two minutes at most, so that it cannot"
        " fail then?"
    )
    kept = signal.signal(signal.SIGHUP, signal.default_int_handler)  # a terminal that is closed is no answer either
    try:
        with launch.undone(Path(job.dir)):
            return click.confirm(streams.folded(text), default=False, err=True)
    finally:
        signal.signal(signal.SIGHUP, kept)


def follow(directory: Path) -> None:
    """Until the try is over, and say what it has come to. Exits with the command's code where it has ended."""
    click.echo("carbontui: trying it before the start (at least 20 steps, two minutes at most)", err=True)
    while (job := store.load(directory)) is not None and job.exit is None and job.trying and job.live:
        time.sleep(POLL_S)
    job = store.load(directory)
    if job is not None and job.exit is not None:
        stopped = job.exit.get("stopped")  # by a person: what it said to that is no crash
        for line in () if stopped else tail(job.log):
            click.echo(line, err=True)
        code = exit_code(job)
        due = time.monotonic() + TOLD_S
        while (store.load(directory) or job).live and time.monotonic() < due:
            time.sleep(POLL_S)  # its name is free once its keeper has left
        how = "was stopped" if stopped else f"ended with exit code {code}"
        click.echo(f"carbontui: it {how} while it was tried; the job is over", err=True)
        sys.exit(code)
    due = time.monotonic() + TOLD_S
    while job is not None and time.monotonic() < due:
        told = next((notice for notice in job.status().notices if notice.startswith("tried: ")), "")
        if told:
            click.echo(f"carbontui: {told}", err=True)
            return
        time.sleep(POLL_S)
        job = store.load(directory)


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
