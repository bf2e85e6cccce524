"""Agent processes: how one is started, those that outlived their supervisor, and those that restore what was left."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from carbontui.power.limit import leases
from carbontui.power.messages import Outcome
from carbontui.system import isolation, proc

MODULE = "carbontui.power.agent"
GRACE_S = 5.0
"""How long an agent may take to restore limits and exit."""
WAIT_S = 900
"""How long a process left behind waits for a hung driver: temporary stalls end within minutes."""


def command(*options: str) -> list[str]:
    """The command that starts an agent."""
    return [sys.executable, "-m", MODULE, *options]


def owner() -> str:
    """This process's pid and start time, as passed to its agent."""
    return f"{os.getpid()}:{proc.start_time(os.getpid())}"


def orphans(job: str) -> list[int]:
    """Pids of this job's agents whose supervisor is gone. They exit by themselves unless stopped or hung."""
    found = []
    for one in proc.processes():
        argv = proc.arguments(one.pid)
        if MODULE not in argv or proc.option(argv, "--job") != job:
            continue
        pid, _, started = proc.option(argv, "--owner").partition(":")
        if pid.isdigit() and started.isdigit() and not proc.same_process(int(pid), int(started)):
            found.append(one.pid)
    return found


def end_orphans(job: str) -> list[int]:
    """Kill this job's orphans and return their pids. Their limits are in their leases."""
    found = orphans(job)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return found


def restore_stale(timeout_s: float = 20.0) -> tuple[Outcome, ...]:
    """Restore every stale limit, through a separate agent (NVML is loaded nowhere else).

    Returns one outcome per lease; a failed one carries the command for the user to run.
    """
    stale = leases.stale_leases()
    if not stale:
        return ()
    try:
        run = subprocess.run(
            command("--mend"),
            capture_output=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=isolation.environment(os.environ),
            cwd="/",  # -m would import from the user's current directory
        )
        return msgspec.json.decode(run.stdout, type=tuple[Outcome, ...])
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        return not_restored(stale, f"could not be restored ({type(error).__name__})")


def not_restored(left: tuple[leases.LeaseRecord, ...], why: str) -> tuple[Outcome, ...]:
    """The outcome for each of these limits, with the command for the user to run."""
    return tuple(Outcome(one.uuid, False, "error", one.ours_mw[-1] / 1000, why, one.fix) for one in left)


def wait_for_driver(cwd: Path) -> None:
    """Start a detached process that restores stale limits as soon as the driver answers, or gives up after a while.

    Raises OSError if no process can be started.
    """
    subprocess.Popen(
        command("--mend", "--wait", str(WAIT_S)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=isolation.environment(os.environ),
        cwd=cwd,
    )
