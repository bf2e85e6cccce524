"""`run --try`: a first short run before the start, and what is said while a short run is held."""

import contextlib
import signal
import sys
import time
from pathlib import Path

import click

from carbontui import protocol
from carbontui.job.files import history, store
from carbontui.job.files.runlog import last_lines
from carbontui.job.life import launch
from carbontui.job.life.foreground import exit_code
from carbontui.job.terms import spec as options
from carbontui.system import proc, streams
from carbontui.text import figures, situation
from carbontui.text.account import HELD
from carbontui.tui.model.loglines import LogLines, text_of

TRY_POLL_S = 0.2
SHOWN_EVERY_S = 10.0
"""The supervisor reports the outcome of a trial in less time than this."""
LINES = 20
HELD_TELL_S = 5.0


class Held:
    """Says every few seconds that a try or an estimate is held, and by what: it would look like a slow training."""

    _since_s: float | None = None
    _shown_s = 0.0

    def observe(self, status: protocol.Status) -> None:
        now_s = time.monotonic()
        if status.state not in HELD or status.state == "throttled":
            self._since_s = None
            return
        if self._since_s is None:
            self._since_s = self._shown_s = now_s
        if now_s - self._shown_s >= HELD_TELL_S:
            self._shown_s = now_s
            streams.over_itself("")
            held_for = figures.duration(now_s - self._since_s)
            click.echo(f"carbontui: held for {held_for}: {situation.stated(status)}", err=True)


def try_wanted(job: options.Options) -> bool:
    """Whether to try first, by the answer to the offer."""
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


def follow_try(directory: Path) -> None:
    """Wait until the trial is over, and print its outcome. Exits with the command's code where it has ended."""
    click.echo("carbontui: trying the command before its start (at least 20 steps, two minutes at most)", err=True)
    held = Held()
    while (job := store.load(directory)) is not None and job.exit is None and job.trying and job.live:
        held.observe(job.status())
        time.sleep(TRY_POLL_S)
    job = store.load(directory)
    if job is not None and job.exit is not None:
        stopped = job.exit.get("stopped")  # by a user: its reaction to that is not a crash
        for line in () if stopped else [*tail(job.log), *(tail(job.err) if job.err else ())]:
            click.echo(line, err=True)
        code = exit_code(job)
        # its name is free once its keeper has left
        proc.awaited(lambda: (known := store.load(directory)) is None or not known.live, SHOWN_EVERY_S)
        how = "was stopped" if stopped else f"ended with exit code {code}"
        click.echo(f"carbontui: it {how} during the trial; the job is over", err=True)
        sys.exit(code)
    due = time.monotonic() + SHOWN_EVERY_S
    while job is not None and time.monotonic() < due:
        tried: list[str] = []
        with contextlib.suppress(history.HistoryError):
            events = history.events(job.dir / "journal.db", 0.0, 500, False)
            tried = [one.text for one in events if one.kind == "tried"]
        if tried:
            click.echo(f"carbontui: {tried[-1]}", err=True)
            return
        time.sleep(TRY_POLL_S)
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
    return [row for row in map(text_of, shown.rows(LINES + 1)) if row.strip()]
