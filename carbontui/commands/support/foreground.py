"""`run` as long as it stays in front: `--try` follows a first short run; without a terminal it copies run.log to
stdout, narrates on stderr, and exits with the job's code."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import click

from carbontui import protocol
from carbontui.job.files import history, store
from carbontui.job.files.runlog import last_lines
from carbontui.job.keeper import signals
from carbontui.job.keeper.messages import RelayedSignal
from carbontui.job.life import launch, stopping
from carbontui.job.terms import spec as options
from carbontui.reports import story
from carbontui.reports.figures import gave
from carbontui.system import proc, streams
from carbontui.text import account as account_words
from carbontui.text import figures, first_run, situation
from carbontui.text.notices import NoticesTold
from carbontui.tui.model.loglines import LogLines, text_of

POLL_S = 0.1
CLOSING_S = 20.0
UNLOADED_EXIT = 85
BUDGET_EXIT = 5
LINES_MOST = 3
HELD = ("waiting", "throttled", "pausing", "paused", "unloaded")
UNREAD = "resume.json.unread"
"""Beside the marker that the client knows: its Python then gets the error of a pipe that nobody reads."""
HEEDS_S = 3.0
"""A program that ignores SIGPIPE and writes on this much later is stopped."""


def exit_code(job: store.Job) -> int:
    """The child's code; 128 + n: signal n; 5: a budget stopped it; 85: unloaded under --requeue; 1: exit unknown."""
    record = job.exit or {}
    if record.get("budget"):
        return BUDGET_EXIT
    if record.get("unloaded"):
        return UNLOADED_EXIT
    if record.get("signal") is not None:
        return 128 + int(record["signal"])
    return 1 if record.get("code") is None else int(record["code"])


def leave(code: int, directory: Path) -> NoReturn:
    """Exit as the command did: by its signal, where one has ended it, as whoever waits for it would see it alone."""
    job = store.load(directory)
    number = job.exit.get("signal") if job is not None and job.exit is not None else None
    if number is not None and code == 128 + number:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    sys.exit(code)


class Narration:
    """Our own lines on stderr: three at most, the last of them kept for the end; none if `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._left = 0 if quiet else LINES_MOST
        self.within_a_line = False
        """What the command has written to the same place has no end of line yet: a line of ours would become part of
        it."""

    def line(self, text: str) -> None:
        if self._left and not self.within_a_line:
            self._left -= 1
            with contextlib.suppress(OSError):
                sys.stderr.write(f"carbontui: {text}\n")  # at once: others may write to this terminal

    def joined(self, *texts: str) -> None:
        """All that is to be said at this moment, in one line."""
        if said := "; ".join(filter(None, texts)):
            self.line(said)

    def news(self, text: str) -> None:
        """Something has happened meanwhile: a line if one is left besides the last."""
        if self._left > 1:
            self.line(text)

    def last(self, *texts: str) -> None:
        self._left = min(1, self._left)
        self.joined(*texts)


def narrate(old: protocol.Status | None, new: protocol.Status, notices: NoticesTold) -> Iterator[str]:
    """What a reader of the output would ask about: why nothing comes, and what the supervisor has to say."""
    same = old is not None and (old.state, old.reason.text) == (new.state, new.reason.text)
    begins_again = old is None and (new.state, new.reason.code) == ("unloaded", "exited")
    if new.state in HELD and not same and not begins_again:
        yield situation.stated(new)
    if new.at_end is not None and (old is None or old.at_end is None):
        yield f"at the end: {account_words.at_end(new.at_end)}"
    yield from notices.news(new)


def summary(status: protocol.Status, means: str = "") -> str:
    """How the job has ended and its account in one line; `means`: the avoided CO2 by lever."""
    ended = situation.stated(status)
    if account_words.unmetered(status):
        return f"{ended}; {figures.NOT_METERED}"
    parts = [figures.kwh(status.energy_wall_kwh)]
    if status.gco2_g is not None:
        parts.append(f"{figures.grams(status.gco2_g)} CO2")
    if said := account_words.avoided(status):
        parts.append(said + (f" ({means})" if means else ""))
    parts += [more] if not status.avoided_g and (more := first_run.more(status)) else []
    parts += [account_words.excluded(apart) for apart in status.excluded]
    if status.cost is not None:
        parts.append(figures.money(status.cost.value, status.cost.currency))
    how = status.provenance.get("energy_gpu_kwh")
    return f"{ended}; " + ", ".join(parts) + (f" ({how.how})" if how else "")


class Copy:
    """One of the command's output files, copied to a descriptor of ours as it grows."""

    def __init__(self, path: str, out: int, *, from_end: bool) -> None:
        self._path, self._out, self._file = Path(path), out, None
        self._begin = self._path.stat().st_size if from_end and self._path.exists() else 0
        self.unread = False
        """Nobody reads what is copied any more."""
        self.within_a_line = False

    _file: BinaryIO | None

    def more(self) -> bool:
        """Copy what there is; whether there was anything."""
        if self._file is None:
            with contextlib.suppress(OSError):
                self._file = self._path.open("rb")
                self._file.seek(self._begin)
        some = False
        while self._file is not None and (data := self._file.read(65536)):
            some, self.within_a_line = True, not data.endswith(b"\n")
            rest = memoryview(b"" if self.unread else data)
            while rest:
                try:
                    rest = rest[os.write(self._out, rest) :]
                except BrokenPipeError:
                    self.unread = True
                    return True
        return some


class Foreground:
    """Follows one job until it ends: signals in, output out, where stderr is apart to stderr; news by `says`."""

    def __init__(self, directory: Path, files: tuple[str, str], says: Narration, *, from_end: bool = False) -> None:
        """`files`: of stdout and of stderr ('': the same). `from_end`: what they hold already is not copied."""
        self.directory = directory
        self._says = says
        self._status: protocol.Status | None = None
        self._notices = NoticesTold()
        self._copies = [Copy(path, out, from_end=from_end) for out, path in enumerate(files, start=1) if path]
        self._unread_s: float | None = None
        self._end_told = False

    def listen(self) -> None:
        """Take over the forwarded signals; call it before the job is started, so that none is lost."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.PASSED_ON)

    def forward(self, job: store.Job) -> None:
        """Have the keeper forward the received signals, unless their sender signalled the command as well."""
        for found in signals.taken():
            if not stopping.tell_keeper(job, RelayedSignal(found.number, found.pid)) and (child := job.alive("child")):
                proc.signal_group(child, found.number)

    def copy(self, job: store.Job) -> None:
        """Copy the output; once nobody reads it, end a command that writes on, as it would end alone."""
        wrote, *_ = [copy.more() for copy in self._copies]
        self._says.within_a_line = self._copies[-1].within_a_line
        child = job.alive("child")
        if not (self._copies[0].unread and wrote) or child is None:
            return
        if self._unread_s is None:
            self._unread_s = time.monotonic()
            with contextlib.suppress(OSError):
                (self.directory / UNREAD).touch()
            proc.signal_group(child, signal.SIGPIPE)
        elif time.monotonic() - self._unread_s > HEEDS_S and not self._end_told:
            self._end_told = stopping.by_keeper(job, now=False)

    def look(self) -> store.Job | None:
        job = store.load(self.directory)
        if job is not None:
            self.forward(job)
            self.copy(job)
            status = job.status()
            for line in narrate(self._status, status, self._notices):
                self._says.news(line)
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
        return 1 if job is None else exit_code(job)

    def summary(self) -> str:
        """The account of the job that has ended; '' if it is gone."""
        job = store.load(self.directory)
        if job is None:
            return ""
        now = job.status()
        split = story.split_at_a_look(job, now)
        return summary(now, gave(split) if split else "")


TRY_POLL_S = 0.2
TOLD_S = 10.0
"""The supervisor reports the outcome of a trial in less time than this."""
LINES = 20


HELD_TELL_S = 5.0


class Held:
    """Says every few seconds that a try or an estimate is held, and by what: it would look like a slow training."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._told_s = 0.0

    def look(self, status: protocol.Status) -> None:
        now_s = time.monotonic()
        if status.state not in HELD or status.state == "throttled":
            self._since_s = None
            return
        if self._since_s is None:
            self._since_s = self._told_s = now_s
        if now_s - self._told_s >= HELD_TELL_S:
            self._told_s = now_s
            streams.over_itself("")
            held_for = figures.duration(now_s - self._since_s)
            click.echo(f"carbontui: held for {held_for}: {situation.stated(status)}", err=True)


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
    held = Held()
    while (job := store.load(directory)) is not None and job.exit is None and job.trying and job.live:
        held.look(job.status())
        time.sleep(TRY_POLL_S)
    job = store.load(directory)
    if job is not None and job.exit is not None:
        stopped = job.exit.get("stopped")  # by a user: its reaction to that is not a crash
        for line in () if stopped else [*tail(job.log), *(tail(job.err) if job.err else ())]:
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
    rows = map(text_of, shown.rows(LINES + 1))
    return [row for row in rows if row.strip()]
