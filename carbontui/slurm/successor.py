"""The Slurm job that continues where this one was unloaded: submitted from within it, started when its hours are clean.

No daemon waits: Slurm holds the successor, and the present job is ended, its script before the next line: what follows
there is for a training that is done. If its node is lost meanwhile the successor still exists, and waits for the end of
this one (`--dependency=afterany`). Where a user cancels this job, at any moment, there is none.
"""

import contextlib
import json
import math
import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from carbontui.slurm import allocation, commands, queue
from carbontui.slurm.allocation import SUBMITS, TRAINS, BatchJob
from carbontui.system import proc

_FORM = "%i|%F|%K|%u|%E|%j"
_TYPES = frozenset({"afterany", "afterok", "afternotok", "aftercorr"})
"""`after` waits for a start alone, which has been."""


class Unloaded(NamedTuple):
    """The job that ends: its name (12, 12_3) and id, the array it is a task of ('': none), its owner and its own name
    (`--job-name`)."""

    name: str
    id: str
    array: str
    user: str
    title: str


def moved(dependency: str, job: Unloaded, new: str, tasks: Sequence[str] = ()) -> str | None:
    """squeue's `dependency` with `new` for the job; None where it does not wait for it, or cannot be put so. `tasks`:
    the others of its array that have not ended well. Its own life ends as cancelled, so that the array as a whole is
    waited for no more, unless for any end."""
    either = "?" in dependency
    told = [part.strip() for part in re.split(r"[,?]", dependency)]
    parts = [re.sub(r"\(\w+\)$", "", part) for part in told if not (either and part.endswith("(failed)"))]
    found, own = [], {job.name, *(() if job.array else (job.id,))}
    for part in parts:
        kind, _, whom = part.partition(":")
        corresponding = "afterok" if kind == "aftercorr" else kind
        if kind in _TYPES and whom in own:
            found.append(f"{corresponding}:{new}")
        elif kind in _TYPES and job.array and whom in (f"{job.array}_*", job.array):
            if kind == "afternotok":  # any one of them is to fail
                if len(parts) > 1 and not either:
                    return None
                either = True
            elif kind != "aftercorr" and either and len(parts) > 1:
                return None  # all of them, or something else
            rest = {"afterany": [whom], "aftercorr": []}.get(kind, tasks)
            found += [f"{kind}:{task}" for task in rest] + [f"{corresponding}:{new}"]
        else:
            found.append(part)
    return None if found == parts else ("?" if either else ",").join(found)


def waiting(job: Unloaded, new: str) -> Iterator[tuple[str, str]]:
    """Each job that waits for this one and not for `new`, and what it would wait for instead; '': Slurm has no words
    for that. Raises SlurmError."""
    whole = f":{job.array}_*"
    ours = re.compile(rf":{re.escape(job.name)}\b(?!_)" + (f"|{re.escape(whole)}" if job.array else ""))
    told = commands.ask("squeue", "-h", "--all", "--states=PENDING", f"--format={_FORM}")
    tasks = _tasks(job) if job.array and whole in told else []
    for name, array, task, user, dependency, title in (r.split("|", 5) for r in told.splitlines() if r.count("|") > 4):
        each = f"{array}_{job.name.partition('_')[2]}" if "aftercorr" in dependency else array
        name = name if task.isdigit() or task == "N/A" else each
        if array == new or re.search(rf":{new}(?!\d)", dependency):
            continue
        if dependency.startswith("singleton") and (user, title) == (job.user, job.title):
            yield name, f"singleton,afterany:{new}"
        elif ours.search(dependency):
            if "aftercorr" in dependency and task.isdigit() and not job.name.endswith(f"_{task}"):
                continue
            yield name, moved(dependency, job, new, tasks) or ""


def _tasks(job: Unloaded) -> list[str]:
    """The other tasks of its array, but those that have ended well. Raises SlurmError."""
    told = commands.ask("squeue", "-h", "--array", "--all", "--states=all", f"--jobs={job.array}", "--format=%i %T")
    return [name for name, state in map(str.split, told.splitlines()) if name != job.name and state != "COMPLETED"]


LOOKS, SETTLE_S = 8, (0.4, 1.0)
"""How often they are looked at, and the pause between two looks, random: another task of the same array may have read
what this one was changing, and write it back."""


def follow(job: Unloaded, new: str) -> list[str]:
    """Have them wait for `new`; the names of those that still wait for the unloaded job alone. Raises SlurmError."""
    settled, asked = True, dict(waiting(job, new))
    for _ in range(LOOKS):
        if settled and not asked:
            return []
        settled = not asked
        if orders := [f"update JobId={name} Dependency={put}" for name, put in asked.items() if put]:
            commands.orders(orders)
        elif asked:
            break
        time.sleep(random.uniform(*SETTLE_S))
        asked = dict(waiting(job, new))
    return list(asked)


CHAIN = "CARBONTUI_CHAIN"
"""Variable in a successor's environment: the id of the first job, this job's number in the chain, the last job."""
SCRIPT = "carbontui-after-{}.sh"
"""The successor's script names the job that it succeeds."""
HETEROGENEOUS = "a heterogeneous job, whose components no one script asks for again"
UNSET = frozenset({"", "(null)", "N/A", "UNLIMITED", "Unknown"})
ALIKE = ("Account", "Deadline", "Licenses", "Network", "Nice", "Partition", "Prefer", "QOS", "Reservation", "Switches")
SIZE = {"NumNodes": "--nodes", "NumTasks": "--ntasks", "TimeLimit": "--time", "TimeMin": "--time-min"}
CPUS = {"CpusPerTres": "--cpus-per-gpu", "MinCPUsNode": "--mincpus"}
TASKS = {"NtasksPerTRES": "--ntasks-per-gpu", "Socks/Node": "--sockets-per-node", "CoreSpec": "--core-spec"}
MEMORY = {"MinMemoryNode": "--mem", "MinMemoryCPU": "--mem-per-cpu", "MemPerTres": "--mem-per-gpu"}
GPUS = {"TresPerNode": "--gres", "TresPerJob": "--gpus", "TresPerTask": "--gpus-per-task"}
BINDING = {"TresPerSocket": "--gpus-per-socket", "TresBind": "--gpu-bind", "TresFreq": "--gpu-freq"}
NODES = {"ReqNodeList": "--nodelist", "ExcNodeList": "--exclude", "Features": "--constraint", "MinTmpDiskNode": "--tmp"}
FILES = {"WorkDir": "--chdir", "StdOut": "--output", "StdErr": "--error", "StdIn": "--input"}
NAMES = {"JobName": "--job-name", "WCKey": "--wckey", "MCS_label": "--mcs-label"}
MAIL = {"MailUser": "--mail-user", "MailType": "--mail-type"}
OPTIONS = {name: f"--{name.lower()}" for name in ALIKE}
OPTIONS |= SIZE | CPUS | TASKS | MEMORY | GPUS | BINDING | NODES | FILES | NAMES | MAIL
"""sbatch options by their names in `scontrol show job`: those given on the command line are not in the script."""
PARTS = {
    "NtasksPerN:B:S:C": ("--ntasks-per-node", "", "--ntasks-per-socket", "--ntasks-per-core"),
    "ReqB:S:C:T": ("", "", "--cores-per-socket", "--threads-per-core"),
    "CPUs/Task": ("",),
}
"""Fields of several values; without an option: compared alone."""
FLAGS = {
    "Requeue": {"0": "--no-requeue", "1": "--requeue"},
    "Contiguous": {"1": "--contiguous"},
    "OverSubscribe": {"NO": "--exclusive", "YES": "--oversubscribe", "USER": "--exclusive=user"},
}
SET = {"SLURM_DISTRIBUTION": "--distribution={}", "SLURM_OVERCOMMIT": "--overcommit"}
SET |= {"SLURM_CPUS_PER_TASK": "--cpus-per-task={}"}
"""What Slurm tells to the job alone; of the last its record has the default, too, which 24.11 tells from one given."""
DISPLACED = {"CpusPerTres": "CPUs/Task", "MemPerTres": "MinMemoryNode"}
"""With the former the latter is refused."""
NOTHING = {"MinCPUsNode": "1", "MinTmpDiskNode": "0", "Nice": "0"}


def asked(shown: Mapping[str, str]) -> dict[str, str]:
    """What a job was given to ask for, by the names of its record: alike while it waits and while it runs."""
    total = ",".join(part for part in shown.get("ReqTRES", "").split(",") if not part.startswith("billing"))
    found = {"ReqTRES": total}
    for name in (*OPTIONS, *PARTS, *FLAGS):
        value = shown.get(name, "").partition("-" if name == "NumNodes" else "\0")[0]
        value = _gpus(name, value) if "Tres" in name and name != "TresPerNode" else value
        negative = name == "Nice" and value.startswith("-")  # an administrator's
        if value not in UNSET and value[0] != "*" and value != NOTHING.get(name) and not negative:
            found[name] = value
    return {name: value for name, value in found.items() if name not in {DISPLACED.get(other) for other in found}}


def _gpus(name: str, value: str) -> str:
    """As options have it what Slurm shows as gres:gpu:2, later as gres/gpu:2, and per task as cpu=4,gres/gpu=2."""
    told = re.sub(r"\b(?:cpu=\d+,?|gres[:/])", "", value).rstrip(",")
    return re.sub(r"\bgpu:", "", told if name == "TresFreq" else told.replace("=", ":"))


class Chain(NamedTuple):
    """A job's position in a chain of successors; the first is number 0, the others come `after` a job."""

    first: str
    number: int
    after: str = ""


def chain(environment: Mapping[str, str]) -> Chain | None:
    """The chain of this environment's Slurm job; None outside one."""
    job = environment.get("SLURM_JOB_ID", "")
    found = re.fullmatch(r"(\d+) (\d+) ?(\S*)", environment.get(CHAIN, ""))
    if not job.isdigit():
        return None
    return Chain(found[1], int(found[2]), found[3]) if found else Chain(job, 0)


def command(
    shown: Mapping[str, str], here: Chain, *, wait_s: float, script: str, arguments: Sequence[str]
) -> list[str]:
    """The sbatch command that submits the same script as this job was, to start in `wait_s` seconds. A user's own
    comment stays."""
    name, wanted = allocation.name_of(shown), asked(shown)
    # all of the environment, in which the chain is, also where the script has --export=NONE: it is the job's own
    options = ["sbatch", "--parsable", f"--dependency=afterany:{name}", "--open-mode=append", "--export=ALL"]
    if wait_s >= 1.0:
        options.append(f"--begin=now+{math.ceil(wait_s)}seconds")
    note = json.dumps({"chain": here.first, "number": here.number + 1, "after": name})
    own = shown.get("Comment", "")
    own = "" if own in UNSET or own.startswith(queue.MARK) else own
    options.append(f"--comment={own or queue.MARK + note}")
    if "_" in name:
        options.append(f"--array={shown['ArrayTaskId']}")
    options += [f"{option}={wanted[field]}" for field, option in OPTIONS.items() if field in wanted]
    for field, parts in PARTS.items():
        values = zip(parts, wanted.get(field, "").split(":"), strict=False)
        options += [f"{option}={value}" for option, value in values if option and value not in ("*", "0")]
    options += [FLAGS[field][value] for field, value in wanted.items() if value in FLAGS.get(field, ())]
    options += [option.format(shown[name]) for name, option in SET.items() if name in shown]
    return [*options, script, *arguments]


class Cancelled(Exception):
    """The job was ended from outside: there is no successor, or no more."""


class Succession(NamedTuple):
    """The successor's id, and the jobs that wait for the unloaded one and could not be moved."""

    job: str
    left: list[str]


def submit(
    environment: Mapping[str, str], batch: BatchJob, *, wait_s: float, ended: Callable[[], bool], progress: bool = True
) -> Succession:
    """The one successor of this batch job, to start in `wait_s` seconds, submitted by the first `run` that is unloaded;
    jobs that wait for this one wait for it. `ended`: whether this process was told to end; `progress`: whether it has
    made a step. Raises SlurmError, or Cancelled."""
    while not batch.has(SUBMITS):
        if ended():
            raise Cancelled
        time.sleep(POLL_S)
    name = allocation.own_name(environment)
    if there := _after(name):
        begin = f"StartTime=now+{max(0, math.ceil(wait_s))}seconds"
        commands.ask("scontrol", "update", f"JobId={there[0]}", begin)
        return Succession(there[0], [])
    if not progress:
        raise commands.SlurmError("it has made no step since its start")
    return _submitted(environment, name, wait_s=wait_s, ended=ended)


def _submitted(environment: Mapping[str, str], name: str, *, wait_s: float, ended: Callable[[], bool]) -> Succession:
    here = chain(environment) or Chain(name, 0)
    shown, present = allocation.record(environment), allocation.observe(environment)
    shown |= {told: environment[told] for told in SET if told in environment}
    shown["Comment"] = present.comment if present else ""
    text = commands.ask("scontrol", "write", "batch_script", name, "-")
    if ended() or shown.get("JobState") != "RUNNING":
        raise Cancelled
    with tempfile.TemporaryDirectory(prefix="carbontui-") as folder:
        script = Path(folder) / SCRIPT.format(name)
        script.write_text(text)
        line = command(shown, here, wait_s=wait_s, script=str(script), arguments=_arguments(shown))
        new = commands.step_environment(environment) | {CHAIN: f"{here.first} {here.number + 1} {name}"}
        new.pop("SLURM_JOB_ID", None)
        job = ""
        try:
            job = commands.submitted(line, environment=new, given_up=ended)
        except commands.SlurmError:  # it may have been submitted, and only its answer is missing
            with contextlib.suppress(commands.SlurmError):
                job = "" if ended() else next(iter(_after(name)), "")
            if not job and not ended():
                raise
    try:
        if _known(environment, ended).get("JobState", "RUNNING") != "RUNNING" or ended():
            raise Cancelled
        wanted, got = asked(shown), asked(_known({"SLURM_JOB_ID": job}, ended) or shown)
        if other := sorted(field for field in wanted.keys() | got.keys() if wanted.get(field) != got.get(field)):
            differs = ", ".join(f"{field} {wanted.get(field)} became {got.get(field)}" for field in other)
            raise commands.SlurmError(f"it would not be the same job: {differs}")
        left = _followed(shown, name, job)
        if ended():
            raise Cancelled
    except (Cancelled, commands.SlurmError):
        withdraw(name, job)
        raise
    return Succession(job, left)


def _followed(shown: Mapping[str, str], name: str, job: str) -> list[str]:
    owner = shown.get("UserId", "").partition("(")[0]
    unloaded = Unloaded(name, shown["JobId"], shown.get("ArrayJobId", ""), owner, shown.get("JobName", ""))
    try:
        return follow(unloaded, job)
    except commands.SlurmError as error:
        return [str(error)]


END_S, AGAIN_S, POLL_S = 300.0, 20.0, 0.1
"""How long Slurm is asked to end the job, how often, and how often it is looked whether it does."""
TRAP_S = 2.0
"""Slurm's TERM comes to all processes of a job within this."""


def until_alone(name: str, batch: BatchJob, made: Succession | None, ended: Callable[[], bool]) -> None:
    """Return once no other `run` of this job trains. Raises Cancelled where it was ended, not by its limit."""
    batch.leave(SUBMITS)
    batch.leave(TRAINS)
    while not ended() and not batch.has(TRAINS):
        time.sleep(POLL_S)
    # whoever else has SUBMITS is ending it
    if batch.has(SUBMITS) and ended() and _known(os.environ).get("Reason") != "TimeLimit":
        if made is not None:
            withdraw(name, made.job)
        raise Cancelled


def fail(name: str, ended: Callable[[], bool]) -> None:
    """Have this job's script end, not well, before its next line. Returns where this process's own code ends it: it has
    replaced the shell, or is what the script's last line alone runs."""
    shell, script = _batch_shell()
    if script and not _at_last_line(shell, Path(script[0])):
        os.kill(shell, signal.SIGTERM)
        time.sleep(TRAP_S)
        end(name, ended)


def _batch_shell() -> tuple[int, list[str]]:
    """Of the batch script: the pid of its shell, its path and arguments; (0, []) where `exec` has replaced it."""
    for one in proc.ancestry(os.getppid()):
        words = proc.arguments(one.pid)
        for place, word in enumerate(words):
            if word.endswith("/slurm_script"):
                return one.pid, words[place:]
    return 0, []


def _at_last_line(shell: int, script: Path) -> bool:
    """Whether a shell has read its script to the end, in which it waits for one `run --resubmit` and nothing besides;
    it reads a line, or a block, when it comes to it."""
    try:
        read = re.search(r"pos:\s*(\d+)", Path(f"/proc/{shell}/fdinfo/255").read_text())
        content = script.read_bytes()
    except OSError:
        return False
    last = content.replace(b"\\\n", b" ").rstrip().rpartition(b"\n")[2]
    alone = b"--resubmit" in last and not re.search(rb"[;&|(){}`]", last)
    return alone and read is not None and not content[int(read[1]) :].strip()


def end(name: str, ended: Callable[[], bool]) -> None:
    """Have Slurm end a job as its time limit does: TERM to all, then KILL. Returns for a trap of its script on TERM,
    which waits for this process, else only where Slurm has not ended it within END_S."""
    due, ask_s = time.monotonic() + END_S, 0.0
    while not ended() and (now := time.monotonic()) < due:
        if now >= ask_s:
            ask_s = now + AGAIN_S
            with contextlib.suppress(commands.SlurmError):
                commands.ask("scancel", name)
        time.sleep(POLL_S)
    ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # by the script, too, which would go on
    time.sleep(max(0.0, due - time.monotonic()) if ignored else TRAP_S)


def _known(environment: Mapping[str, str], given_up: Callable[[], bool] | None = None) -> dict[str, str]:
    """A job's record; {} without an answer."""
    with contextlib.suppress(commands.SlurmError):
        return allocation.record(environment, given_up=given_up)
    return {}


def withdraw_earlier(environment: Mapping[str, str]) -> str:
    """A requeued job has come to its end: what waits to continue it is cancelled; its id, '' where nothing does. Raises
    SlurmError."""
    name, requeued = allocation.own_name(environment), environment.get("SLURM_RESTART_COUNT", "0") != "0"
    if before := next(iter(_after(name) if requeued else ()), ""):
        withdraw(name, before)
    return before


def cancelled(name: str) -> bool:
    """Whether a job that has ended was cancelled, as far as Slurm still knows it."""
    try:
        told = commands.ask("squeue", "--noheader", "--states=all", f"--jobs={name}", "--format=%T")
    except commands.SlurmError as refusal:
        if "nvalid job id" not in str(refusal):
            return False
        told = ""
        with contextlib.suppress(commands.SlurmError):
            told = commands.ask("sacct", "-nXP", "-j", name, "-o", "State")
    return not told.strip() or "CANCELLED" in told


WITHDRAWN_S = 1.0
"""An order that was on its way when it was given up has arrived after this."""


def withdraw(name: str, job: str) -> None:
    """Cancel the successor of `name`: `job`, and whatever else Slurm has as one ('': its id was not answered)."""
    for pause_s in (0.0,) if job else (0.0, WITHDRAWN_S):
        time.sleep(pause_s)
        with contextlib.suppress(commands.SlurmError):
            if found := {job, *_after(name)} - {""}:
                commands.ask("scancel", *sorted(found))


def _after(name: str) -> list[str]:
    """The waiting jobs that were submitted to succeed `name`: by their script, a comment may be the user's own. Raises
    SlurmError."""
    told = commands.ask("squeue", "--noheader", "--me", "--states=PENDING,RUNNING", "--format=%F|%o")
    return re.findall(rf"^(\d+)\|/.*/{SCRIPT.format(name)}(?: |$)", told, re.MULTILINE)


def _arguments(shown: Mapping[str, str]) -> list[str]:
    """The batch script's arguments, as given to the shell that runs it; where `exec` has replaced that, as Slurm shows
    them, between which and within which spaces are alike."""
    _, script = _batch_shell()
    command = shown.get("Command", "")
    return (script or ([] if command in UNSET else command.split()))[1:]
