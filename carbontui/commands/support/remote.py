"""Jobs of other machines: `attach user@host[:job]`, and the table of several hosts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import click

from carbontui import protocol
from carbontui.commands.support.command import Failure, refused
from carbontui.system import ssh
from carbontui.tui.model.target import Target

LOOK_EVERY_S = 5.0
there_option = click.option(
    "--there",
    default="carbontui",
    envvar="CARBONTUI_THERE",
    metavar="COMMAND",
    help="carbontui on the other machine, if it is not on its PATH.",
)


def is_remote(text: str) -> bool:
    """Whether an argument names another machine: user@host, host:job."""
    return "@" in text or ":" in text


def host_of(text: str, there: str) -> ssh.SshHost:
    """The machine of `user@host[:job]`. Raises Failure (2)."""
    with refused():
        return ssh.SshHost(ssh.place(text).host, carbontui=there)


def only_job(host: ssh.SshHost, job: str | None) -> protocol.Status:
    """The job meant; ssh may ask for a password. Raises Failure: 2 for an ambiguous name, 3 for none."""
    with refused("", ssh.SshError, code=3):
        found = host.statuses(job, ask=True)
    if job is None:
        found = tuple(status for status in found if status.state in protocol.LIVE_STATES)
    if not found:
        raise Failure(f"{host.name}: no job {job!r}" if job else f"{host.name}: no job is running", 3)
    if len(found) > 1:
        names = ", ".join(f"{status.name} ({status.job})" for status in found)
        raise Failure(f"{host.name}: several jobs are running; name one after a colon: {names}", 2)
    return found[0]


def target_of(host: ssh.SshHost, status: protocol.Status) -> Target:
    """What the screen opens; of a remote job that is over, only the last status is known."""
    return Target(status.job, status.name, host.socket(status.job), status=status, host=host.name)


class RemoteJobs:
    """The jobs of several machines, followed by one thread per machine while the context is open."""

    def __init__(self, hosts: Sequence[ssh.SshHost]) -> None:
        self._hosts = hosts
        self._leave = threading.Event()
        self._found: dict[str, tuple[Target, ...]] = {}
        self._faults: dict[str, str] = {}
        self._threads = [threading.Thread(target=self._follow, args=(host,), daemon=True) for host in hosts]

    def __enter__(self) -> RemoteJobs:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()

    def jobs(self) -> tuple[Target, ...]:
        """As last seen, host by host."""
        return tuple(target for host in self._hosts for target in self._found.get(host.name, ()))

    def facts(self) -> tuple[tuple[str, str, bool], ...]:
        """A line for each host: how many jobs it has, or why it cannot be seen."""
        return tuple((host.name, *self._fact(host.name)) for host in self._hosts)

    def _fact(self, name: str) -> tuple[str, bool]:
        if fault := self._faults.get(name):
            return f"unreachable: {fault}", False
        if name not in self._found:
            return "asking ...", True
        live = sum(not target.over for target in self._found[name])
        return f"{live} live, {len(self._found[name]) - live} over", True

    def _follow(self, host: ssh.SshHost) -> None:
        while not self._leave.is_set():
            try:
                self._found[host.name] = tuple(target_of(host, status) for status in host.statuses())
                self._faults.pop(host.name, None)
            except ssh.SshError as error:
                self._faults[host.name] = error.why
            self._leave.wait(LOOK_EVERY_S)


@contextlib.contextmanager
def opened(names: Sequence[str], there: str) -> Iterator[RemoteJobs]:
    """The hosts of `--hosts`, each contacted once so that ssh can prompt before the screen takes the terminal."""
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(host_of(name, there)) for name in names]
        for host in hosts:
            try:
                host.statuses(ask=True)
            except ssh.SshError as error:
                click.echo(f"carbontui: {error}", err=True)
        yield stack.enter_context(RemoteJobs(hosts))
