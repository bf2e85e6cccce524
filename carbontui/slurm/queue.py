"""Slurm's queue and nodes, read with its commands; what a job of ours states in its comment."""

from __future__ import annotations

import functools
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from carbontui import units
from carbontui.slurm import commands
from carbontui.system import untrusted

MARK = "carbontui:"
"""Prefix of the comment of a job that carbontui submitted."""
WORDS = ("JobArrayID", "State", "UserName", "Reason", "NodeList", "Name", "Partition")
NUMBERS = ("StartTime", "EndTime", "EligibleTime", "TimeLimit", "PriorityLong", "Comment", "NumNodes", "NumCPUs")
SIZES = ("NumTasks", "SCT", "OverSubscribe", "tres-alloc", "tres-per-job", "tres-per-node")
COLUMNS = (*WORDS, *NUMBERS, *SIZES, "tres-per-task", "tres-per-socket")
"""Of squeue, first the fields of a `QueuedJob` in their order."""
SHARED = re.compile(r"gres[:/](shard|mps)\b")
"""Parts of boards."""
RUNS = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED"})
OUT = ("down", "drain", "fail", "maint", "unknown", "power")
DAY_S = 86400.0
LEVELS_MOST = 8
Watts = Annotated[float, Meta(gt=0, le=1e9)]
"""No cluster draws more."""


class NotedLevel(NamedTuple):
    """A level that a job states: watts of its boards and nodes, and its speed relative to full, with the standard error
    of that; `cap_w` is its limit in watts per GPU (None: at full, or not told)."""

    watts: Watts
    speed: Annotated[float, Meta(gt=0, le=10)]
    cap_w: Watts | None = None
    speed_se: Annotated[float, Meta(ge=0, le=10)] = 0.0

    @property
    def slow(self) -> float:
        """The speed to keep a deadline with: one standard error below the expected."""
        return max(self.speed - self.speed_se, self.speed / 2)


class JobNote(NamedTuple):
    """What `submit` wrote into a job's comment; `fault` says why a comment of ours cannot be used."""

    work_s: float | None = None
    deadline_s: float | None = None
    watts: float | None = None
    """Total of its boards and nodes while it runs."""
    levels: tuple[NotedLevel, ...] = ()
    """Those at which it may start."""
    cap_w: float | None = None
    """Watts per GPU of the level that the fleet has planned for it; None: at full."""
    begin_s: float | None = None
    """The start that we have set last: any other is its owner's."""
    text: str = ""
    """The comment itself."""
    after: str = ""
    """The job that it succeeds: 12, or 12_3."""
    fault: str = ""

    @property
    def movable(self) -> bool:
        """Whether it asked to be started when that is best."""
        return self.work_s is not None and self.deadline_s is not None

    @property
    def begun_at(self) -> NotedLevel | None:
        """The level below full speed that the fleet has planned for it."""
        return next((one for one in self.levels if one.cap_w is not None and one.cap_w == self.cap_w), None)

    @property
    def planned_w(self) -> float | None:
        """What it draws at that level, else at full speed; None: not told."""
        return self.watts if self.begun_at is None else self.begun_at.watts

    @property
    def planned_s(self) -> float | None:
        """How long it takes at that level."""
        slow = 1.0 if self.begun_at is None else self.begun_at.slow
        return None if self.work_s is None else self.work_s / slow


NOT_OURS = JobNote()
"""Of a job that carbontui has not submitted."""


class QueuedJob(NamedTuple):
    """A row of squeue. Times are epoch seconds."""

    id: str
    state: str
    user: str
    reason: str
    node_list: str
    name: str
    partition: str
    """One, or several with commas."""
    start_s: float | None
    """When it started; for a waiting job when it is to start, or is expected to."""
    end_s: float | None
    eligible_s: float | None
    """The earliest start that was set for a waiting job, or when it was submitted; None: not told."""
    limit_s: float | None
    priority: float
    asked: JobNote
    nodes: int
    cpus: int
    gpus: int | None
    """None: of a waiting job that squeue does not tell of."""

    @property
    def runs(self) -> bool:
        return self.state in RUNS

    @property
    def set_s(self) -> float | None:
        """The start that was set for a waiting job, or when it was submitted; None: not told."""
        return self.start_s if self.eligible_s is None and self.reason == "BeginTime" else self.eligible_s

    def takes(self, *, gpus: bool) -> float:
        """How many processors of that kind it has or will have, as far as told."""
        return float((self.gpus or 0) if gpus else self.cpus)


class ClusterSize(NamedTuple):
    """All usable nodes."""

    cpus: int
    gpus: int


def queue(nodes: Iterable[NodeState]) -> list[QueuedJob]:
    """All waiting and running jobs of these nodes, each array task separately. Raises SlurmError."""
    # names and comments are user-supplied: a random separator cannot be forged; it is no part of a field's width
    mark = f"x{secrets.token_hex(8)}"
    told = commands.ask(
        *("squeue", "--noheader", "--array", "--all", "--states=PENDING,RUNNING,COMPLETING,SUSPENDED,CONFIGURING"),
        f"--Format=JobID:0{mark}:,{','.join(f'{column}:0{mark};' for column in COLUMNS)}",
        # a time without a zone could not be read on another machine
        environment={**os.environ, "SLURM_TIME_FORMAT": "%s"},
    )
    return rows(told, mark, nodes)


def rows(text: str, mark: str, nodes: Iterable[NodeState] = ()) -> list[QueuedJob]:
    """Parse squeue's answer: `mark` and ':' begin a row, `mark` and ';' end each of its fields. No name or comment,
    whatever characters it contains, can imitate another job's row. Raises SlurmError for any other answer, which must
    not be taken for an empty queue."""
    found, (_, *parts), stock = [], text.split(f"{mark}:"), {node.name: node for node in nodes}
    if text.strip() and not parts:
        raise _nonsense("squeue", text)
    for row in parts:
        fields = row.split(f"{mark};")
        if len(fields) != len(COLUMNS) + 1:
            raise _nonsense("squeue", row.replace(mark, ""))
        words = [units.printable(word) for word in fields[: len(WORDS)]]
        start, end, eligible, limit, priority, note, *sizes, _ = fields[len(WORDS) :]
        times = _time(start), _time(end), _time(eligible), limit_s(limit), float(_whole(priority))
        gpus = _gpus(tuple(sizes), words[4], words[6], stock)
        found.append(QueuedJob._make((*words, *times, asked(note), _whole(sizes[0]), _whole(sizes[1]), gpus)))
    return found


def _gpus(sizes: tuple[str, ...], names: str, partition: str, stock: Mapping[str, NodeState]) -> int | None:
    """As Slurm tells of them; where it tells too little, a job that runs has at most those of its nodes. None: one
    that waits."""
    known, nodes, whole = _stated_gpus(sizes), max(1, _whole(sizes[0])), sizes[4] == "NO"
    if known is not None:
        return known
    if names:
        its = [stock[name].gpus for name in commands.nodes_of(names) if name in stock]
        return sum(its) + max(0, nodes - len(its)) * max((node.gpus for node in stock.values()), default=0)
    each = {node.gpus for node in stock.values() if not node.partitions.isdisjoint(partition.split(","))}
    return nodes * each.pop() if whole and len(each) == 1 else None


@functools.lru_cache(maxsize=4096)
def _stated_gpus(sizes: tuple[str, ...]) -> int | None:
    """As Slurm counts them, which it does where it has a slurmdbd, else as they were asked for."""
    nodes, cpus, tasks, sockets, shares, counted, *forms = sizes
    if found := re.search(r"\bgres/gpu=(\d{1,9})", counted):
        return int(found[1])
    if shares == "NO" or SHARED.search(" ".join(forms)):
        return None
    of_sockets = min(_whole(nodes) * _whole(sockets), _whole(cpus))  # of each that it has a core of
    many = (1, max(1, _whole(nodes)), _whole(tasks), of_sockets)
    return next((per * of or None for per, of in zip(map(gpus_of, forms), many, strict=True) if per), 0)


class _Noted(Struct):
    """A comment of ours, as far as it is read."""

    work_s: Annotated[float, Meta(gt=0, le=units.LONGEST_S)] | None = None
    watts: Watts | None = None
    levels: tuple[NotedLevel, ...] = ()
    cap: Watts | None = None
    after: str = ""
    deadline: str | None = None
    begin: str | None = None


@functools.lru_cache(maxsize=4096)  # the tasks of an array have one comment
def asked(comment: str) -> JobNote:
    """Parse a comment, which its owner may have edited."""
    if not comment.startswith(MARK):
        return NOT_OURS
    try:
        noted = untrusted.decode(comment[len(MARK) :], _Noted)
        return JobNote(
            work_s=noted.work_s,
            deadline_s=None if noted.deadline is None else units.from_iso(noted.deadline),
            watts=noted.watts,
            begin_s=None if noted.begin is None else units.from_iso(noted.begin),
            text=comment,
            after=noted.after,
            levels=noted.levels[:LEVELS_MOST],
            cap_w=noted.cap,
        )
    except ValueError:
        return JobNote(fault=f"its comment cannot be read: {units.printable(comment)[:80]}")


class NodeState(NamedTuple):
    """A node as sinfo lists it."""

    name: str
    state: str
    cpus: int
    gpus: int
    partitions: frozenset[str] = frozenset()


def nodes() -> list[NodeState]:
    """All nodes of the cluster: one at least. Raises SlurmError."""
    told = commands.ask("sinfo", "--noheader", "--Node", "--format=%N\x1f%T\x1f%c\x1f%G\x1f%R")
    found: dict[str, NodeState] = {}
    for line in told.splitlines():
        fields = [units.printable(field) for field in line.split("\x1f")]
        if len(fields) == 5:
            # a node is listed once per partition
            before = found[fields[0]].partitions if fields[0] in found else frozenset()
            parts = before | {fields[4]}
            found[fields[0]] = NodeState(fields[0], fields[1], _whole(fields[2]), gpus_of(fields[3]), parts)
    if not found:
        raise _nonsense("sinfo", told)
    return list(found.values())


def _nonsense(command: str, text: str) -> commands.SlurmError:
    said = units.printable(" ".join(text[:4096].split()))[:80]
    return commands.SlurmError(f"{command}: {f'its answer cannot be read: {said!r}' if said else 'lists nothing'}")


def size(all_nodes: Iterable[NodeState]) -> ClusterSize:
    """The size of the usable cluster."""
    up = [node for node in all_nodes if not node.state.startswith(OUT)]
    return ClusterSize(sum(node.cpus for node in up), sum(node.gpus for node in up))


@functools.lru_cache(maxsize=1024)
def gpus_of(gres: str) -> int:
    """GPUs named by 'gres:gpu:a100:4', 'gpu:4(S:0-1)', 'gres/gpu=2', ...; 0 for anything else."""
    form = re.compile(r"(?:gres[:/])?gpu(?::[^:=(]*[^\d:=(][^:=(]*)?(?:[:=](\d{1,9}))?(?:\(|$)")
    return sum(int(found[1] or 1) for part in gres.split(",") if (found := form.match(part.strip())))


@functools.lru_cache(maxsize=1024)
def limit_s(text: str) -> float | None:
    """'2-03:00:00', '3:00:00', '30:00', '30' as seconds; None for no limit."""
    found = re.fullmatch(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})", text.strip())
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * DAY_S + hours * 3600.0 + minutes * 60.0 + seconds


def throttled() -> frozenset[str]:
    """The arrays of which only some tasks may run at once (`--array=1-100%5`). Raises SlurmError."""
    told = commands.ask("squeue", "--noheader", "--all", "--states=PENDING", "--format=%F %K")
    return frozenset(row.split()[0] for row in told.splitlines() if "%" in row)


def clock_s() -> float:
    """The time by the controller's clock, by which Slurm starts jobs (epoch seconds). Raises SlurmError."""
    told = commands.ask("scontrol", "show", "config", environment={**os.environ, "SLURM_TIME_FORMAT": "%s"})
    found = re.search(r"as of (\d{9,11})\b", told[:200])
    if found is None:
        raise _nonsense("scontrol", told)
    return float(found[1])


def move(starts: Iterable[tuple[QueuedJob, float, float | None]]) -> list[str]:
    """Set when waiting jobs may start (epoch seconds) and at which cap (watts per GPU; None: at full), noted in their
    comments, through one scontrol; returns its messages for those refused: started or gone meanwhile, or another
    user's. Raises SlurmError."""
    lines = [f"update JobId={job.id} {_start(job, at, cap_w)}" for job, at, cap_w in starts]
    return commands.orders(lines) if lines else []


def _start(job: QueuedJob, at_s: float, cap_w: float | None) -> str:
    """Start and comment, as scontrol reads them from a line, which it splits at spaces outside of quotes."""
    start = f"StartTime={time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(at_s))}"
    if not job.asked.text:
        return start
    noted = json.loads(job.asked.text.removeprefix(MARK)) | {"begin": units.iso(at_s)}
    noted = {name: value for name, value in noted.items() if name != "cap"} | ({} if cap_w is None else {"cap": cap_w})
    told = json.dumps(noted, separators=(",", ":")).replace(" ", "\\u0020").replace("'", "\\u0027")
    return f"{start} Comment={MARK}{told}"


def _whole(text: str) -> int:
    """A count; '2K' and '1-4' as Slurm writes them."""
    found = re.match(r"\s*(\d{1,15})", text)
    return int(found[1]) if found else 0


def _time(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*[0-9]{1,11}\s*", text) else None
