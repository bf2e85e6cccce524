"""Installs capd under systemd: a socket that starts it, and a tightly confined service."""

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from carbontui.power.capd import wire

UNITS = Path("/etc/systemd/system")
NAME = "carbontui-capd"

SOCKET_UNIT = """\
[Unit]
Description=carbontui: power limits for users, on GPUs that only they use

[Socket]
ListenStream={socket}
SocketMode=0666
DirectoryMode=0755

[Install]
WantedBy=sockets.target
"""

SERVICE_UNIT = """\
[Unit]
Description=carbontui capd: lowers power limits for users and restores them
Requires={name}.socket
After={name}.socket

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=100ms
StateDirectory=carbontui
Environment=LANG=C.UTF-8
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_SYS_PTRACE
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
PrivateTmp=yes
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=no
MemoryMax=200M
TasksMax=16

[Install]
WantedBy=multi-user.target
"""


def command(socket: Path = wire.SOCKET) -> list[str]:
    """The command that starts capd, isolated from the environment and folder it is started in."""
    return [sys.executable, "-I", "-m", "carbontui.power.capd", "--socket", os.fspath(socket)]


def units() -> dict[str, str]:
    """Name and text of each unit."""
    return {
        f"{NAME}.socket": SOCKET_UNIT.format(socket=wire.SOCKET),
        f"{NAME}.service": SERVICE_UNIT.format(name=NAME, command=" ".join(command())),
    }


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
    """The code of capd: the interpreter, and the folders its modules come from."""
    import msgspec
    import pynvml

    package = Path(__file__).parents[2]
    return [Path(sys.executable), Path(msgspec.__file__).parent, Path(pynvml.__file__), *package.rglob("*.py")]
