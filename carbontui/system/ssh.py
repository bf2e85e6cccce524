"""Jobs on other machines, over the user's own ssh.

A remote job gets a local socket, in a private folder; behind it `ssh HOST carbontui serve --stdio JOB` connects to the
supervisor there. A client of job.sock can use such a job in the same way. One connection per host is shared (OpenSSH's
ControlMaster): a password is asked once, before the screen is opened, and never by the screen.

    SshError: the host does not answer, or not as requested; one line, with control characters removed.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TypeVar

import msgspec

from carbontui import protocol, units
from carbontui.system import bounded_command

Answered = TypeVar("Answered")
ANSWER_S = 20.0
ANSWER_B = 16 * 2**20
"""Upper bound of one answer in bytes; the table of a thousand jobs is a tenth of it."""
PASSWORD_S = 120.0
"""More of it where a user may be typing a password."""
LINGER_S = 60
"""How long the shared connection outlives a program that could not close it."""
PLACE = re.compile(r"(?P<host>[^\s:/'`\"$&;<>|(){}]+)(?::(?P<job>.+))?")
"""A ProxyCommand of ~/.ssh/config may hand the name to a shell; OpenSSH refuses such names since 9.6."""


class SshError(Exception):
    """One line for the user; `why` is the same without the name of the host it begins with."""

    def __init__(self, why: str, host: str = "") -> None:
        super().__init__(f"{host}: {why}" if host else why)
        self.why = why


class SshPlace(msgspec.Struct, frozen=True):
    """`user@host` or a name from ~/.ssh/config, and a job there; None: its only live one."""

    host: str
    job: str | None = None


def place(text: str) -> SshPlace:
    """Parse `user@host[:job]`. Raises ValueError otherwise; a host that begins with a dash would be an option."""
    match = PLACE.fullmatch(text)
    if match is None or not text.isprintable():
        raise ValueError(f"{units.printable(text)!r} is not user@host or user@host:job")
    if match["host"].startswith("-") or "@-" in match["host"]:
        raise ValueError(f"{text!r}: a host does not begin with a dash")
    return SshPlace(match["host"], match["job"])


def begins_there(host: str, ssh: str = "ssh") -> tuple[str, ...]:
    """Command prefix that runs a command on another machine with its pipes connected here, for as long as both live.
    No password can be asked for: there is no terminal."""
    return (ssh, "-T", *_options("BatchMode=yes", "LogLevel=ERROR"), "--", host)


def _options(*own: str) -> list[str]:
    """Of ssh: these, and that it gives up on a machine which does not answer."""
    every = (*own, "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
    return [word for option in every for word in ("-o", option)]


class SshHost:
    """One machine. Use it as a context manager: leaving it closes the shared connection."""

    def __init__(
        self, name: str, *, carbontui: str = "carbontui", ssh: str = "ssh", within_s: float = ANSWER_S
    ) -> None:
        """`carbontui`: the command there, as found by its login shell; `within_s`: how long one answer may take."""
        self.name = name
        self._there = carbontui
        self._ssh = ssh
        self._within_s = within_s
        self._folder = Path(tempfile.mkdtemp(prefix="ct-"))
        self._listeners: dict[str, socket.socket] = {}
        self._calls: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SshHost:
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners.values():
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # its thread is in accept
            listener.close()
        for call in self._calls:
            call.terminate()
        self.close_shared()
        for call in self._calls:
            call.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close_shared(self) -> None:
        """Close the shared connection; the next request opens another."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [self._ssh, "-o", f"ControlPath={self._shared}", "-O", "exit", "--", self.name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=ANSWER_S,
                check=False,
            )

    def statuses(self, job: str | None = None, *, ask: bool = False) -> tuple[protocol.Status, ...]:
        """The jobs there, finished ones included; only `job` if one is named. Raises SshError.

        `ask`: ssh may ask for a password on the terminal.
        """
        found = tuple(self.data(["ls", "--json", "--all"], list[protocol.Status], ask=ask))
        if job is None:
            return found
        named = [status for status in found if status.job == job] or [status for status in found if status.name == job]
        live = [status for status in named if status.state in protocol.LIVE_STATES]
        return tuple(live[:1] or named[:1])

    def data(self, words: list[str], kind: type[Answered], *, ask: bool = False) -> Answered:
        """What carbontui there prints as JSON. Raises SshError."""
        text = self.answer(words, ask=ask)
        try:
            return msgspec.json.decode(text, type=kind)
        except (ValueError, RecursionError):
            raise self.misunderstood(text) from None

    def misunderstood(self, text: str) -> SshError:
        """Why an answer is none: another version's, or not carbontui's alone."""
        first = units.printable(text.strip().partition("\n")[0])[:80]
        if first and first[0] not in "{[":
            return SshError(f"its shell prints {first!r} before a command; let ~/.bashrc be silent there", self.name)
        return SshError("carbontui there does not answer as this version understands", self.name)

    def socket(self, job: str) -> Path:
        """A socket on this machine connected to the supervisor of the job there."""
        if job not in self._listeners:
            listener = self._listeners[job] = socket.socket(socket.AF_UNIX)
            listener.bind(str(self._folder / f"{len(self._listeners)}.sock"))
            listener.listen()
            threading.Thread(target=self._serve, args=(job,), name=f"ssh {self.name}", daemon=True).start()
        return Path(self._listeners[job].getsockname())

    @property
    def _shared(self) -> Path:
        return self._folder / "shared"

    def _command(self, words: list[str], *, ask: bool) -> list[str]:
        there = " ".join((self._there, *map(shlex.quote, words)))
        shared = ("ControlMaster=auto", f"ControlPath={self._shared}", f"ControlPersist={LINGER_S}")
        options = _options("BatchMode=no" if ask else "BatchMode=yes", *shared)
        return [self._ssh, "-T", *options, "--", self.name, there]

    def by_itself(self, words: list[str]) -> list[str]:
        """The command that runs carbontui there without this process: no password can be asked for."""
        there = " ".join((self._there, *map(shlex.quote, words)))
        return [*begins_there(self.name, shutil.which(self._ssh) or self._ssh), there]

    @property
    def rsh(self) -> str:
        """The remote shell of an rsync to this machine, over the shared connection. rsync adds the host and, for
        user@host, `-l user` before it: options have not ended."""
        return shlex.join(self._command([], ask=False)[:-3])

    def answer(self, words: list[str], asked: bytes = b"", within_s: float | None = None, *, ask: bool = False) -> str:
        """What carbontui there answers to `asked` on its standard input. Raises SshError."""
        within_s = (within_s or self._within_s) + (PASSWORD_S if ask else 0.0)
        try:
            done = bounded_command.answer(
                self._command(words, ask=ask), within_s=within_s, most_b=ANSWER_B, stdin=asked
            )
        except FileNotFoundError:
            raise SshError(f"{self._ssh} is not installed here") from None
        except subprocess.TimeoutExpired:
            raise SshError(f"{self.name} has not answered for {within_s:.0f} s") from None
        except OverflowError:
            raise SshError(f"the answer of {self.name} is too long: more than {ANSWER_B // 2**20} MiB") from None
        if done.returncode == 127:
            raise SshError(
                f"{self.name} does not find {units.printable(self._there)!r}: name it with --there, "
                "like --there '~/venv/bin/carbontui'"
            )
        if done.returncode != 0:
            raise SshError(_last_line(done.stderr) or f"ssh ended with {done.returncode}", self.name)
        return done.stdout.decode(errors="replace")

    def _serve(self, job: str) -> None:
        """Each connection is the standard input and output of a command of its own, which ends with it."""
        command = self._command(["serve", "--stdio", job], ask=False)
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listeners[job].accept()
                self._calls = [call for call in self._calls if call.poll() is None]
                with link, contextlib.suppress(OSError):
                    self._calls.append(
                        subprocess.Popen(command, stdin=link.fileno(), stdout=link.fileno(), stderr=subprocess.DEVNULL)
                    )


class ThisMachine(SshHost):
    """The machine at hand, asked as the others are."""

    def _command(self, words: list[str], *, ask: bool) -> list[str]:
        return [sys.executable, "-m", "carbontui.cli", *words]

    def close_shared(self) -> None:
        """There is none."""


def _last_line(said: bytes) -> str:
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return units.printable(lines[-1].strip()).removeprefix("carbontui: ")[:300] if lines else ""
