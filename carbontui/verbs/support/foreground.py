"""`run` as long as it stays in front: `--try` follows a first short run; without a terminal it copies run.log to
stdout, narrates on stderr, and exits with the job's code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from carbontui import protocol
from carbontui.job import launch, stopping, store
from carbontui.job import spec as options
from carbontui.job.history import HistoryError
from carbontui.job.keeper import signals
from carbontui.job.keeper.messages import RelayedSignal
from carbontui.job.runlog import last_lines
from carbontui.job.supervisor.record.history_thread import read_events
from carbontui.reports import story
from carbontui.reports.figures import gave
from carbontui.system import proc
from carbontui.text import account as account_words
from carbontui.text import figures, situation
from carbontui.tui.loglines import LogLines
from carbontui.verbs.support import streams

POLL_S = 0.1
CLOSING_S = 20.0
UNLOADED_EXIT = 85
BUDGET_EXIT = 5


def exit_code(job: store.Job) -> int:
    """The child's code; 128 + n: signal n; 5: a budget stopped it; 85: unloaded under --requeue; 1: exit unknown."""
    record = job.exit
    if record is None:
        return 1
    if record.get("budget"):
        return BUDGET_EXIT
    if record.get("unloaded"):
        return UNLOADED_EXIT
    if record.get("signal") is not None:
        return 128 + int(record["signal"])
    return int(record["code"])


def say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"carbontui: {line}", file=sys.stderr, flush=True)


def narrate(old: protocol.Status | None, new: protocol.Status) -> Iterator[str]:
    """The lines a reader of the log needs about a change of status."""
    if old is None or (old.state, old.reason.text) != (new.state, new.reason.text):
        yield situation.stated(new)
    if new.at_end is not None and (old is None or old.at_end is None):
        yield f"at the end: {account_words.at_end(new.at_end)}"
    for notice in new.notices:
        if old is None or notice not in old.notices:
            yield notice


def summary(status: protocol.Status, means: str = "") -> str:
    """The job's account in one line, printed at its end; `means`: the avoided CO2 by lever."""
    if account_words.unmetered(status):
        return f"{status.state}: {figures.NOT_METERED}"
    parts = [figures.kwh(status.energy_wall_kwh)]
    if status.gco2_g is not None:
        parts.append(f"{figures.grams(status.gco2_g)} CO2")
    if said := account_words.avoided(status):
        parts.append(said + (f" ({means})" if means else ""))
    parts += [account_words.excluded(apart) for apart in status.excluded]
    if status.cost is not None:
        parts.append(figures.money(status.cost.value, status.cost.currency))
    how = status.provenance.get("energy_gpu_kwh")
    return f"{status.state}: " + ", ".join(parts) + (f" ({how.how})" if how else "")


class Foreground:
    """Follows one job until it ends: signals in, output from byte `log_from` on and narration out."""

    def __init__(
        self, directory: Path, out: BinaryIO, say_line: Callable[[str], None] = say, *, log_from: int = 0
    ) -> None:
        self.directory = directory
        self.out = out
        self.say = say_line
        self._status: protocol.Status | None = None
        self._log: BinaryIO | None = None
        self._log_from = log_from

    def listen(self) -> None:
        """Take over the forwarded signals; call it before the job is started, so that none is lost."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.PASSED_ON)

    def forward(self, job: store.Job) -> None:
        """Have the keeper forward the received signals, unless their sender signalled the command as well."""
        for found in signals.taken():
            if not stopping.tell_keeper(job, RelayedSignal(found.number, found.pid)) and (child := job.alive("child")):
                proc.signal_group(child, found.number)
                self.say(f"signal {found.number} passed on; the keeper does not answer")

    def copy_log(self, path: Path) -> None:
        if self._log is None:
            with contextlib.suppress(OSError):
                self._log = path.open("rb")
                self._log.seek(self._log_from)
        while self._log is not None and (data := self._log.read(65536)):
            try:
                self.out.write(data)
                self.out.flush()
            except BrokenPipeError:
                # the reader of our stdout is gone; the job and its log go on
                self.out = Path(os.devnull).open("wb")  # noqa: SIM115
                return

    def look(self) -> store.Job | None:
        job = store.load(self.directory)
        if job is not None:
            self.forward(job)
            self.copy_log(job.log)
            status = job.status()
            for line in narrate(self._status, status):
                self.say(line)
            self._status = status
        return job

    def follow(self) -> int:
        """Follow until the job has ended; the exit code for this process."""
        ended: float | None = None
        while True:
            job = self.look()
            if job is not None and (job.exit is not None or not job.live):
                ended = ended or time.monotonic()
                # the supervisor completes the account after the child has ended
                if not job.alive("keeper") or time.monotonic() - ended > CLOSING_S:
                    break
            time.sleep(POLL_S)
        job = self.look()
        if job is None:
            return 1
        now = job.status()
        split = story.split_at_a_look(job, now)
        self.say(summary(now, gave(split) if split else ""))
        return exit_code(job)


TRY_POLL_S = 0.2
TOLD_S = 10.0
"""The supervisor reports the outcome of a trial in less time than this."""
LINES = 20


def try_wanted(asked: bool, job: options.Options, *, offer: bool) -> bool:
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


def follow_try(directory: Path) -> None:
    """Wait until the trial is over, and print its outcome. Exits with the command's code where it has ended."""
    click.echo("carbontui: trying the command before its start (at least 20 steps, two minutes at most)", err=True)
    while (job := store.load(directory)) is not None and job.exit is None and job.trying and job.live:
        time.sleep(TRY_POLL_S)
    job = store.load(directory)
    if job is not None and job.exit is not None:
        stopped = job.exit.get("stopped")  # by a user: its reaction to that is not a crash
        for line in () if stopped else tail(job.log):
            click.echo(line, err=True)
        code = exit_code(job)
        due = time.monotonic() + TOLD_S
        while (store.load(directory) or job).live and time.monotonic() < due:
            time.sleep(TRY_POLL_S)  # its name is free once its keeper has left
        how = "was stopped" if stopped else f"ended with exit code {code}"
        click.echo(f"carbontui: it {how} during the trial; the job is over", err=True)
        sys.exit(code)
    due = time.monotonic() + TOLD_S
    while job is not None and time.monotonic() < due:
        tried = [one.text for one in _events(job) if one.kind == "tried"]
        if tried:
            click.echo(f"carbontui: {tried[-1]}", err=True)
            return
        time.sleep(TRY_POLL_S)
        job = store.load(directory)


def _events(job: store.Job) -> tuple[protocol.Event, ...]:

    try:
        return read_events(job.dir / "journal.db", 0.0, 500, False)
    except HistoryError:
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
