"""Installs capd under systemd: a socket that starts it, and a tightly confined service."""

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from carbontui.power.capd import wire

UNITS = Path("/etc/systemd/system")
NAME = "carbontui-capd"

TEMPLATES = [Path(__file__).with_name(f"capd.{kind}") for kind in ("socket", "service")]


def command(socket: Path = wire.SOCKET) -> list[str]:
    """The command that starts capd, isolated from the environment and folder it is started in."""
    return [sys.executable, "-I", "-m", "carbontui.power.capd", "--socket", os.fspath(socket)]


def units() -> dict[str, str]:
    """Name and text of each unit."""
    parts = {"socket": wire.SOCKET, "name": NAME, "command": " ".join(command())}
    return {f"{NAME}{path.suffix}": path.read_text(encoding="utf-8").format(**parts) for path in TEMPLATES}


def writable_by_others(paths: Iterable[Path]) -> Path | None:
    """The first of these files and folders, or of their parents, that another user than root can change.

    What root runs must be owned by root: a carbontui in a user's home would make that user root.
    """
    for path in paths:
        for place in (path, *path.resolve().parents, path.resolve()):
            found = place.lstat() if place.is_symlink() else place.stat()
            sticky = stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)
            if found.st_uid != 0 or (found.st_mode & 0o022 and not place.is_symlink() and not sticky):
                return place
    return None


def code() -> list[Path]:
    """The code of capd: the interpreter, its units, and the folders its modules come from."""
    import msgspec
    import pynvml

    ours = (*TEMPLATES, *Path(__file__).parents[2].rglob("*.py"))
    return [Path(sys.executable), Path(msgspec.__file__).parent, Path(pynvml.__file__), *ours]
