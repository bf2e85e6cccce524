"""`run --hosts`: the other machines of a job without a scheduler, reached over the user's own ssh."""

from __future__ import annotations

import socket
import subprocess
import sys

from carbontui import units
from carbontui.job import spec as job_spec
from carbontui.system import bounded_command, ssh
from carbontui.verbs.failure import Failure

ANSWER_S = 20.0
ANSWER_B = 2**20


def nodes(text: str) -> job_spec.Nodes:
    """The machines of `--hosts a,b`; this one need not be named. Each is asked once whether carbontui is installed at
    the same path as here. Raises Failure."""
    here = socket.gethostname()
    names: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        try:
            found = ssh.place(word)
        except ValueError as error:
            raise Failure(f"--hosts: {error}", 2) from None
        if found.job is not None:
            raise Failure(f"--hosts: {units.printable(word)!r} names a job; give machines alone, like a,b", 2)
        if found.host not in (here, "localhost", *names):
            names.append(found.host)
    if not names:
        raise Failure(f"--hosts {units.printable(text)!r}: names no other machine", 2)
    for name in names:
        _check(name)
    reach = {name: ssh.begins_there(name) for name in names}
    return job_spec.Nodes(own=here, others=tuple(names), reach=reach, by_shell=True)


def _check(name: str) -> None:
    """Whether an agent can be started there. Raises Failure."""
    command = [*ssh.begins_there(name), f"{sys.executable} -c 'import carbontui.cluster.node'"]
    try:
        done = bounded_command.answer(command, within_s=ANSWER_S, most_b=ANSWER_B)
    except FileNotFoundError:
        raise Failure("--hosts: ssh is not installed here", 1) from None
    except subprocess.TimeoutExpired:
        raise Failure(f"--hosts: {name} has not answered for {ANSWER_S:.0f} s", 1) from None
    except OverflowError:
        raise Failure(f"--hosts: {name} sends output without end", 1) from None
    if done.returncode == 255:
        said = units.printable(" ".join(done.stderr.decode(errors="replace").split()))[:200]
        raise Failure(f"--hosts: {name}: {said or 'ssh cannot reach it without a password'}", 1)
    if done.returncode:
        raise Failure(f"--hosts: {name} has no carbontui at {sys.executable}: install it at the same path there", 1)
