"""What a command is handed besides its environment: its standard input, other open descriptors, one output or two."""

import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple

from carbontui import early

_NAMED = re.compile(r"/(?:dev|proc/self)/fd/(\d+)\b")
"""How a shell names a pipe that it has opened for a command: `<(...)`."""


class Handed(NamedTuple):
    """Descriptors of this process that the command is to have; of `stdin` 0 is meant."""

    stdin: bool = False
    others: tuple[int, ...] = ()
    path: str | None = None
    """A file on stdin: where it is opened again, from byte `begin` on."""
    begin: int = 0
    pipes: tuple[int, ...] = ()
    """Pipes among them that the command is to read: once, a later start cannot read them again."""
    terminal: tuple[int, int] | None = None
    """Rows and columns of the terminal on stdin: the command gets one of its own of that size, at end of file."""

    def spec(self, stdin: int | None) -> dict[str, Any]:
        """The keeper's part; `stdin`: the number under which it gets standard input."""
        closes = [stdin if fd == 0 else fd for fd in self.pipes]
        told = {"stdin": stdin, "path": self.path, "begin": self.begin, "others": self.others, "closes": closes}
        return told | {"terminal": self.terminal}


NOTHING = Handed()


def handed(argv: tuple[str, ...], *, terminal: bool = False) -> Handed:
    """What a command started by this process would inherit; `terminal`: also a terminal's input."""
    others = tuple(fd for fd in _open() if fd > 2 and os.get_inheritable(fd))
    named = {int(number) for word in argv for number in _NAMED.findall(word)}
    pipes = tuple(fd for fd in others if fd in named and _is_pipe(fd))
    try:
        kind, path = os.fstat(0), str(Path("/proc/self/fd/0").readlink())
    except OSError:  # closed
        return Handed(others=others, pipes=pipes)
    if os.isatty(0) and not terminal:
        columns, rows = os.get_terminal_size(0)
        return Handed(others=others, pipes=pipes, terminal=(rows, columns))
    if stat.S_ISREG(kind.st_mode):
        return Handed(True, others, path, os.lseek(0, 0, os.SEEK_CUR), pipes)
    once = early.begun.once if early.begun else early.is_unread(0)
    return Handed(not os.path.samestat(kind, Path(os.devnull).stat()), others, pipes=(0, *pipes) if once else pipes)


def apart() -> bool:
    """Whether stdout and stderr of this process go to different places: then so do the command's."""
    try:
        return not os.path.samestat(os.fstat(1), os.fstat(2))
    except OSError:
        return False


def _open() -> list[int]:
    listed = [*Path("/proc/self/fd").iterdir()]
    return sorted(int(entry.name) for entry in listed if entry.exists())  # the one that listed them is closed by now


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
