"""A job as long as its `run` stays in front: its output is copied to stdout and stderr, signals go on to it, what has
happened is narrated on stderr, and the exit code is the command's."""

import contextlib
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import BinaryIO, NoReturn

from carbontui import early, protocol
from carbontui.job.files import runlog, store
from carbontui.job.keeper import signals
from carbontui.job.keeper.messages import RelayedSignal
from carbontui.job.life import stopping
from carbontui.system import proc
from carbontui.text import account

POLL_S = 0.1
CLOSING_S = 20.0
UNLOADED_EXIT = 85
BUDGET_EXIT = 5
LINES_MOST = 3
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
    """Our own lines on stderr: those of the start and two more at most, the last kept for the end; none if `quiet`."""

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

    def start(self, *texts: str) -> None:
        """The lines of the start."""
        self.line("\ncarbontui: ".join(filter(None, texts)))

    def news(self, text: str) -> None:
        """Something has happened meanwhile: a line if one is left besides the last."""
        if self._left > 1:
            self.line(text)

    def last(self, *texts: str) -> None:
        self._left = min(1, self._left)
        self.joined(*texts)


class Copy:
    """One of the command's output files, copied to a descriptor of ours as it grows."""

    def __init__(self, path: str, out: int, *, from_end: bool) -> None:
        self._path, self._out = Path(path), out
        copied = early.begun.copied[out - 1] if early.begun else 0
        self._begin = self._path.stat().st_size if from_end and self._path.exists() else copied

    _file: BinaryIO | None = None
    unread = False
    """Nobody reads what is copied any more."""
    within_a_line = False

    def more(self) -> bool:
        """Copy what there is; whether there was anything."""
        if self._file is None:
            with contextlib.suppress(OSError):
                self._file = self._path.open("rb")
                self._file.seek(self._begin)
        some = False
        while self._file is not None and (data := runlog.tail(self._file, 65536)):
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
        """`files`: of stdout and of stderr ('': the same). `from_end`: what they hold already is not copied.

        From now on signals wait to be forwarded: made before the job is started, it loses none."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.PASSED_ON)
        self.directory = directory
        self._says = says
        self._status: protocol.Status | None = None
        self._notices = account.NoticesShown()
        self._copies = [Copy(path, out, from_end=from_end) for out, path in enumerate(files, start=1) if path]
        self._unread_s: float | None = None
        self._end_shown = False

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
        elif time.monotonic() - self._unread_s > HEEDS_S and not self._end_shown:
            self._end_shown = stopping.by_keeper(job, now=False)

    def observe(self) -> store.Job | None:
        job = store.load(self.directory)
        if job is not None:
            self.forward(job)
            self.copy(job)
            status = job.status()
            for line in account.narrate(self._status, status, self._notices):
                self._says.news(line)
            self._status = status
        return job

    def follow(self) -> int:
        """Follow until the job has ended; the exit code for this process."""
        ended: float | None = None
        while True:
            job = self.observe()
            if job is not None and (job.exit is not None or not job.live):
                ended = ended or time.monotonic()
                # the supervisor completes the account after the child has ended
                if not job.alive("keeper") or time.monotonic() - ended > CLOSING_S:
                    break
            time.sleep(POLL_S)
        job = self.observe()
        return 1 if job is None else exit_code(job)
