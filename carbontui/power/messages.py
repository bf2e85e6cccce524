"""Messages between supervisor and agent: JSON lines over a socket pair, level-triggered.

The supervisor repeats one `DesiredPower` (everything it wants) every two seconds as a heartbeat; the agent sends a
`Report` (everything it knows) with every sample and a `Done` once per wish generation. Nothing is ever replayed.
"""

from typing import Literal

import msgspec
from msgspec import Struct

LINE_MAX = 1024 * 1024
BEAT_S = 2.0
DEAD_MAN_S = 30.0
"""Without a wish for this long the agent restores every limit and waits."""
HUNG_S = 5.0
"""Without a report for this long the agent is killed and replaced."""

IDLE_OF_LIMIT = 0.15
"""Watts of a board without running kernels as a share of its highest limit, until observed: with contexts H100 118 of
700 W, A100 64 of 300 W (nvidia-smi outputs; arXiv 2605.23918); without, of 29 models (gpus.csv), 0.14 in the median."""
SILENT_NODE_S = 5.0
"""A machine not heard for this long is reported as silent."""

Support = Literal["yes", "no_permission", "not_supported", "no_effect", "unknown", "lost"]
PowerKind = Literal["avg1s", "instant", "unspecified", "module", "model"]
Method = Literal["counter", "integrated", "late", "gap", "model", "unmetered"]
How = Literal["measured", "estimated", "simulated"]
Code = Literal[
    "applied",  # the limit was written and read back
    "kept",  # it was already in force, or there was none to restore
    "given_back",  # the original limit is in force again
    "no_permission",
    "not_supported",
    "no_effect",  # accepted by the driver, ignored by the board
    "out_of_range",
    "foreign",  # a process that is not ours uses this GPU
    "held",  # another carbontui job holds this GPU's limit
    "outside",  # another program changed the limit: adopted, not overwritten
    "lost",
    "error",
]


class Capability(Struct, frozen=True, omit_defaults=True):
    """Whether something can be done on a device; `why` and `fix` are shown verbatim."""

    support: Support
    why: str = ""
    fix: str = ""


class Sample(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One look at one device, for the meter. A field that could not be read is None, its NVML code in `errors`.

    `uuid` is the board's UUID, or "cpu" and "dram" for the host. `energy_uj` is a free-running counter. `power_w` means
    what `kind` says. `max_w` bounds what is believable.
    """

    uuid: str
    mono_s: float
    wall_s: float
    how: How = "measured"
    energy_uj: int | None = None
    power_w: float | None = None
    kind: PowerKind | None = None
    max_w: float | None = None
    share: float | None = None
    """The job's share of what was drawn since the last sample; None: all of it, as far as is known."""
    lost: bool = False
    errors: tuple[tuple[str, int], ...] = ()


class Reading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The latest reading of one GPU. A field that is None has its reason in `why[field]`."""

    uuid: str
    name: str
    index: int = 0
    simulated: bool = False
    watched: bool = True
    power_w: float | None = None
    power_kind: PowerKind | None = None
    limit_w: float | None = None
    enforced_w: float | None = None
    """The limit that is really held, if it is lower: by the platform, and not by anybody's setting."""
    limit_found_w: float | None = None
    """The original limit before carbontui wrote anything, or one set since by another program: the reference, and what
    is restored."""
    limit_top_w: float | None = None
    """The highest limit set without an explicit request to raise it: the limit at the start, or less if another program
    has lowered it."""
    limit_min_w: float | None = None
    limit_max_w: float | None = None
    limit_default_w: float | None = None
    clocks_w: float | None = None
    """Watts that a clock lock of ours is steered to, where the power limit does not work."""
    proving: bool = False
    """A cap of ours is in force whose effect has not been seen yet."""
    memory_used_b: int | None = None
    memory_total_b: int | None = None
    util: float | None = None
    temp_c: float | None = None
    sm_mhz: float | None = None
    reasons: int | None = None
    """NVML clock-event reasons: 0x4 power cap, 0x20 and 0x40 thermal, 0x8 hardware slowdown, 0x80 power brake."""
    pids: tuple[int, ...] | None = None
    """Compute processes on a watched board, listed every ten seconds; None if the driver does not report them."""
    foreign_pids: tuple[int, ...] = ()
    foreign_user: str = ""
    """A description of the first of them, as text."""
    users: str = ""
    """Its compute processes and their owners, as text: 'python (ada)'."""
    share: float | None = None
    """The job's share of its watts if others use it too; None: they cannot be split, or it is not shared."""

    @property
    def own_w(self) -> float | None:
        """Watts drawn for the job."""
        return self.power_w if self.share is None or self.power_w is None else self.power_w * self.share

    maker: str = "nvidia"
    address: str = ""
    """What the maker's tool calls it, if not by its UUID."""
    mig: bool = False
    lost: bool = False
    caps: dict[str, Capability] = {}
    why: dict[str, str] = {}
    node: str = ""
    """Its machine, for a multi-node job."""

    @property
    def label(self) -> str:
        """'GPU 0', or 'n2 GPU 0' for a multi-node job."""
        return f"{self.node} GPU {self.index}".strip()


Scope = Literal["gpu", "slice", "module", "package", "node", "chassis"]
Verdict = Literal["believed", "doubted", "refused"]


class MeterVerdict(Struct, frozen=True):
    """A source of watts or joules, what it speaks of, and whether it is believed; `why` not. `ratio`: of its figure to
    another's over the same seconds, or of what its parts drew to its own."""

    what: str
    scope: Scope
    verdict: Verdict
    why: str = ""
    ratio: float | None = None


class HostReading(Struct, frozen=True, omit_defaults=True):
    """The job's share of CPU packages and memory. `how` is measured (RAPL) or estimated; `source` states the rule."""

    cpu_w: float | None = None
    dram_w: float | None = None
    how: How = "estimated"
    source: str = ""
    caps: dict[str, Capability] = {}
    jobs: int = 0
    """How many jobs share this machine; 0: not counted yet."""
    idle_w: float | None = None
    """What of these CPU and memory watts would be drawn without the job's work."""
    beside_w: float | None = None
    """The job's part of what the machine draws besides boards, CPU and memory, where its supply is metered."""
    beside_by: str = ""
    """The meter of the supply, and by which rule its watts are split."""
    witnesses: tuple[MeterVerdict, ...] = ()


class NodeWatts(Struct, frozen=True):
    """Watts of the job on one of its machines; null while that is silent."""

    node: str
    power_w: float | None


class Readings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All devices at `mono_s` (time.monotonic) and `wall_s` (epoch)."""

    mono_s: float = 0.0
    wall_s: float = 0.0
    backend: str = "none"
    driver: str = ""
    devices: tuple[Reading, ...] = ()
    absent: tuple[tuple[int, str], ...] = ()
    """Boards the driver counts but does not expose: number, and why."""
    by_process: bool = False
    """The watched boards are those with a process of the job on them; no others are the job's."""
    host: HostReading = HostReading()
    nodes: tuple[NodeWatts, ...] = ()
    """Of a job on several machines."""
    notices: tuple[str, ...] = ()

    def age_s(self, now_mono_s: float) -> float:
        """Seconds since these were read; infinite before the first."""
        return now_mono_s - self.mono_s if self.mono_s else float("inf")


class Node(Struct, frozen=True):
    """Another machine of the same job: `quiet_s` since its last message, or since it was first requested."""

    name: str
    host: str
    """The host name its processes use; '' before it was heard."""
    quiet_s: float
    unread_s: float
    """Seconds since its boards were read; infinite before."""


class Outcome(Struct, frozen=True, omit_defaults=True):
    """The outcome of a limit request on one GPU; `fix` is an exact command, if one helps.

    `watts` is the limit in force now, or what a clock lock is steered to.
    """

    uuid: str
    ok: bool
    code: Code
    watts: float | None = None
    text: str = ""
    fix: str = ""


class DesiredPower(Struct, tag_field="t", tag="wish", frozen=True, kw_only=True, omit_defaults=True):
    """supervisor -> agent, at every change and every BEAT_S: everything wanted now."""

    gen: int = 0
    limit_w: float | None = None
    """Watts per GPU; None restores the original limit."""
    allow_raise: bool = False
    left: tuple[str, ...] = ()
    """Boards whose limit another program has changed since this request: left alone, by successors too."""
    watch: tuple[str, ...] | None = None
    """UUIDs (or prefixes, MIG forms) of the child's GPUs; None: all visible ones."""
    own_pids: tuple[int, ...] = ()
    """Processes of the child; every other compute process on a watched GPU is foreign."""
    known: tuple[str, ...] = ()
    """Boards on which a predecessor has seen a process of the child, which may have ended since."""
    activity: float | None = None
    """Activity that a simulated GPU follows: None no process, 0 parked, 1 training."""
    duty: float = 1.0
    fast: bool = False
    """Sample at 10 Hz (while calibrating)."""
    probe: bool = True
    """Whether a limit can be set may be found out by writing back the one in force."""


class Poke(Struct, tag_field="t", tag="poke", frozen=True):
    """supervisor -> agent: sample and report now."""


class Bye(Struct, tag_field="t", tag="bye", frozen=True):
    """supervisor -> agent: restore every limit, report it, exit."""


class Report(Struct, tag_field="t", tag="report", frozen=True):
    """agent -> supervisor: the latest readings, and every sample since the last report."""

    readings: Readings
    samples: tuple[Sample, ...] = ()


class Done(Struct, tag_field="t", tag="done", frozen=True, omit_defaults=True):
    """agent -> supervisor: the result of the wish of this generation, one outcome per watched GPU.

    Not `asked`: unsolicited changes of limits (changed outside, without effect, left by a dead agent).
    """

    gen: int
    outcomes: tuple[Outcome, ...] = ()
    asked: bool = True


class Gone(Struct, tag_field="t", tag="gone", frozen=True):
    """agent -> supervisor: the outcome of restoring every limit; the agent exits."""

    outcomes: tuple[Outcome, ...] = ()


class AgentLine(Struct, tag_field="t", tag="say", frozen=True):
    """agent -> supervisor: a line for carbontui.log."""

    text: str


ToAgent = DesiredPower | Poke | Bye
ToSupervisor = Report | Done | Gone | AgentLine

_encoder = msgspec.json.Encoder()


def encode(message: Struct) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"
