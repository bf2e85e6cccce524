"""The machines of a job: of `run --hosts`, or of its Slurm job."""

import os
import socket
import subprocess
import sys

from carbontui import units
from carbontui.job.life.launch import LaunchError
from carbontui.job.terms import spec as job_spec
from carbontui.slurm import allocation, commands
from carbontui.system import bounded_command, ssh

ANSWER_S = 20.0
ANSWER_B = 2**20


def named(text: str) -> job_spec.Nodes:
    """The machines of `--hosts a,b`; this one need not be named. Each is asked once whether carbontui is installed at
    the same path as here. Raises LaunchError."""
    here = socket.gethostname()
    names: list[str] = []
    for word in units.listed(text):
        try:
            found = ssh.place(word)
        except ValueError as error:
            raise LaunchError(f"--hosts: {error}") from None
        if found.job is not None:
            raise LaunchError(f"--hosts: {units.printable(word)!r} names a job; give machines alone, like a,b")
        if found.host not in (here, "localhost", *names):
            names.append(found.host)
    if not names:
        raise LaunchError(f"--hosts {units.printable(text)!r}: names no other machine")
    for name in names:
        _check(name)
    reach = {name: ssh.begins_there(name) for name in names}
    return job_spec.Nodes(own=here, others=tuple(names), reach=reach, by_shell=True)


def _check(name: str) -> None:
    """Whether an agent can be started there. Raises LaunchError."""
    command = [*ssh.begins_there(name), f"{sys.executable} -c 'import carbontui.nodes.node'"]
    try:
        done = bounded_command.answer(command, within_s=ANSWER_S, most_b=ANSWER_B)
    except FileNotFoundError:
        raise LaunchError("--hosts: ssh is not installed here", 1) from None
    except subprocess.TimeoutExpired:
        raise LaunchError(f"--hosts: {name} has not answered for {ANSWER_S:.0f} s", 1) from None
    except OverflowError:
        raise LaunchError(f"--hosts: {name} sends output without end", 1) from None
    if done.returncode == 255:
        said = units.printable(" ".join(done.stderr.decode(errors="replace").split()))[:200]
        raise LaunchError(f"--hosts: {name}: {said or 'ssh cannot reach it without a password'}", 1)
    if done.returncode:
        raise LaunchError(f"--hosts: {name} has no carbontui at {sys.executable}: install it at the same path there", 1)


def of_slurm() -> job_spec.Nodes | None:
    """The machines of this Slurm job if there are several; an error in finding them is kept."""
    try:
        names = commands.promised_nodes(os.environ)
    except commands.SlurmError as error:
        fault = f"the other nodes of this job cannot be listed ({error}): they are neither metered nor controlled"
        return job_spec.Nodes(own="", others=(), fault=fault)
    if not names:
        return None
    own = commands.own_node(os.environ, names, socket.gethostname())
    job = os.environ["SLURM_JOB_ID"]
    others = tuple(name for name in names if name != own)
    return job_spec.Nodes(own=own, others=others, reach={name: commands.on_node(job, name) for name in others})


def allocated() -> dict[str, float | None]:
    """When Slurm ends the job of this process (epoch seconds), and the watts per GPU at which a fleet has started it;
    nothing without an answer: the supervisor asks for the limit again."""
    try:
        found = allocation.observe(os.environ, allocation.POLL_S)
    except commands.SlurmError:
        found = None
    return {} if found is None else {"ends_s": found.ends_s, "fleet_cap_w": found.cap_w}
