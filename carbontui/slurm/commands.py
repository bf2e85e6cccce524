"""A Slurm job's nodes from its environment, and wrappers of Slurm's commands."""

import functools
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence

from carbontui import units
from carbontui.system import bounded_command

ASK_S = 20.0
NODES_MOST = 100_000
"""Upper bound of a node range."""
ANSWER_B = 64 * 2**20
"""Upper bound of one answer in bytes; a queue of 200,000 jobs is smaller."""
REFUSED_B = 2**20
"""Of what was said of orders that were refused."""
ERROR_B = 4096
"""Of what a command that failed has said; the rest would only be split into words."""
KEPT = frozenset({"SLURM_JOB_ID", "SLURM_CONF", "SBATCH_SIGNAL"})
"""Slurm variables kept for our srun and sbatch; every other one would act as an option. The last is kept on purpose:
Slurm shows it in no record."""


class SlurmError(RuntimeError):
    """A Slurm command failed; the text names it and its message."""


def ask(
    *command: str,
    environment: Mapping[str, str] | None = None,
    within_s: float = ASK_S,
    given_up: Callable[[], bool] | None = None,
) -> str:
    """The standard output of a Slurm command. Raises SlurmError."""
    done = _run(command, environment=environment, within_s=within_s, given_up=given_up)
    if done.returncode:
        said = " ".join(_text(done.stderr[:ERROR_B]).split())[:300] or f"ended with {done.returncode}"
        raise SlurmError(f"{command[0]}: {units.printable(said)}")
    return _text(done.stdout)


def submitted(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, given_up: Callable[[], bool] | None = None
) -> str:
    """The id of the job that this `sbatch --parsable` has submitted. Raises SlurmError, also where it ends well and
    names none: a wrapper of a site may print what it likes, before the id as well."""
    told = ask(*command, environment=environment, given_up=given_up)
    ids = re.findall(r"^\s*(\d{1,10})(?:;\S*)?\s*$", told[-ERROR_B:], re.MULTILINE | re.ASCII)
    if not ids:
        said = units.printable(" ".join(told[:ERROR_B].split()))[:80]
        raise SlurmError(f"{command[0]}: named no job, but said {said!r}; whether one was submitted: squeue --me")
    return str(ids[-1])


def orders(lines: Iterable[str]) -> list[str]:
    """Give scontrol many orders at once; returns its messages for those refused. Raises SlurmError if none can have
    been carried out."""
    done = _run(("scontrol",), stdin="".join(f"{line}\n" for line in lines).encode())
    said = _text(done.stderr[:REFUSED_B])
    refused = [units.printable(" ".join(line.split()))[:300] for line in said.splitlines() if line.strip()]
    if done.returncode < 0 or (done.returncode and not refused):  # one that refuses some says which, and ends so
        raise SlurmError(f"scontrol: ended with {done.returncode}")
    if any("contact slurm controller" in line or "authentication" in line.lower() for line in refused):
        raise SlurmError(f"scontrol: {refused[0][:300]}")
    return refused


def _run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    within_s: float = ASK_S,
    given_up: Callable[[], bool] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    try:
        return bounded_command.answer(
            command, within_s=within_s, most_b=ANSWER_B, stdin=stdin, environment=environment, given_up=given_up
        )
    except FileNotFoundError:
        raise SlurmError(f"{command[0]}: not found; this needs a machine with Slurm's commands") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]}: no answer within {within_s:.0f} s") from None
    except (OSError, OverflowError) as error:
        raise SlurmError(f"{command[0]}: {error}") from None


def _text(said: bytes) -> str:
    return said.decode(errors="replace")


def in_step(environment: Mapping[str, str]) -> bool:
    """Whether this process is a task of a job step; in a batch script the step number is a special value."""
    step = environment.get("SLURM_STEP_ID", "")
    return step.isdigit() and int(step) < 2**31


def promised_nodes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of this job's nodes if there are several and this process represents all of them, else ().

    Raises SlurmError.
    """
    count, listed = environment.get("SLURM_JOB_NUM_NODES", ""), environment.get("SLURM_JOB_NODELIST", "")
    if not count.isdigit() or int(count) < 2 or not listed or in_step(environment):
        return ()
    told = ask("scontrol", "show", "hostnames", listed)
    names = tuple(told.split())
    if len(names) != int(count):
        raise SlurmError(f"scontrol: names {len(names)} nodes of {count}: {units.printable(' '.join(names))[:80]!r}")
    return names


@functools.lru_cache(maxsize=4096)
def nodes_of(listed: str) -> frozenset[str]:
    """The names in a list like 'n[1-3,07-09],gpu2', as printed by squeue; any other form is taken literally."""
    found: set[str] = set()
    for head, ranges in re.findall(r"([^,\[\]]+)(?:\[([\d,-]+)\])?(?=,|$)", listed):
        for part in ranges.split(",") if ranges else ():
            first, _, last = part.partition("-")
            if not first.isdigit() or not (last or first).isdigit():
                return frozenset({listed})
            numbers = range(int(first), min(int(last or first), int(first) + NODES_MOST) + 1)
            found |= {f"{head}{number:0{len(first)}}" for number in numbers}
        if not ranges:
            found.add(head)
    return frozenset(found)


def own_node(environment: Mapping[str, str], nodes: tuple[str, ...], host: str) -> str:
    """Which of the nodes this machine is; '' if it is none of them (salloc on a login node)."""
    names = environment.get("SLURMD_NODENAME", ""), host, host.partition(".")[0]
    return next((name for name in names if name in nodes), "")


def step_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for our srun, without the job's own options, which would request its tasks and CPUs again."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(("SLURM_", "SRUN_", "SBATCH_")) or name in KEPT
    }


def on_node(job: str, node: str) -> tuple[str, ...]:
    """Command prefix that runs a command on one node of a job, alongside what already runs there."""
    return (
        *("srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--cpus-per-task=1"),
        *("--mpi=none", "--kill-on-bad-exit=0", "--input=all", "--chdir=/", "--quiet"),
        "--job-name=carbontui",
    )
