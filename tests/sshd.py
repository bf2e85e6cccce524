"""Debian's openssh-server on loopback: throwaway keys, this user alone. Used by the tests of other machines."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
WHY_NOT = "" if SSHD and shutil.which("ssh") else "no openssh-server here"


def client(folder: Path, servers: dict[str, Sshd]) -> str:
    """An `ssh` in `folder` that knows these servers by these names; its path."""
    folder.mkdir()
    (folder / "config").write_text("".join(server.known_as(name) for name, server in servers.items()))
    path = folder / "ssh"
    path.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    path.chmod(0o755)
    return str(path)


class Sshd:
    """A server that knows one key; `ssh` is a client that knows this server as any host name, `near` as well."""

    def __init__(self, root: Path, environment: dict[str, str], prefix: tuple[str, ...] = ()) -> None:
        """`environment`: what a login finds set there; `prefix` begins the server, in namespaces of its own."""
        assert SSHD is not None
        self.root, self.prefix = root, prefix
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)], check=True)
        (root / "authorized").write_bytes((root / "user.pub").read_bytes())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (root / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {root}/host\nAuthorizedKeysFile {root}/authorized\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nPidFile none\nMaxSessions 50\n"
            "SetEnv " + " ".join(f'{name}="{value}"' for name, value in environment.items()) + "\n"
        )
        self.bin = root / "bin"
        self.ssh = client(self.bin, {"*": self})
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def known_as(self, name: str) -> str:
        """Its part of a client's configuration."""
        return (
            f"Host {name}\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.root}/user\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile {self.root}/known\n  LogLevel ERROR\n"
        )

    def start(self) -> None:
        assert SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.process = subprocess.Popen(
            [*self.prefix, SSHD, "-D", "-e", "-f", str(self.root / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stderr=(self.root / "sshd.log").open("ab"),
            start_new_session=True,
        )
        due = time.monotonic() + 10
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < due and self.process.poll() is None, (self.root / "sshd.log").read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        """The server and every connection it has."""
        if self.process is not None:
            children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout
            self.process.terminate()
            for pid in children.split():
                subprocess.run(["kill", pid], capture_output=True)
            self.process.wait()
            self.process = None
