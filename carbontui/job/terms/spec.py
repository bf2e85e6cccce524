"""The options of `run`: written once to spec.json in the job's directory, read by every supervisor of the job."""

import json
from pathlib import Path

import msgspec

from carbontui import config, units
from carbontui.account.boundary import Kind
from carbontui.job.terms import records
from carbontui.job.terms.clock import Clock, Standstills
from carbontui.power.backends.declared import DeclaredBoards
from carbontui.power.backends.simulated import SimulatedSpec

NUMBER_MOST = 1e15
"""Steps, joules and epoch seconds of any job are far below this; sums above it exceed the calendar."""
SOCKET_MOST, PATH_MOST = 108, 4096
"""Maximum bytes of a path in the kernel."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A job on a clock that runs at `speed` times real speed, from `start_s` (epoch) at wall time `wall_origin_s`."""

    start_s: float
    speed: float
    wall_origin_s: float
    bound: bool = False
    """Its clock stands still while steps are due and none comes: a busy machine slows it down."""


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """The machines of a multi-node job, and how an agent is started on each of the others."""

    own: str
    """This machine's name; '' if it is not one of them (salloc on a login node)."""
    others: tuple[str, ...]
    reach: dict[str, tuple[str, ...]] = {}
    """By machine name: the command prefix that runs ours there."""
    by_shell: bool = False
    """The prefix takes our command as one line for a shell, as ssh does."""
    fault: str = ""
    """Why the others are not known by name."""


class Options(config.Terms, frozen=True, kw_only=True):
    """One job's options, merged from configuration, environment and command line."""

    job: str
    name: str
    dir: str
    argv: tuple[str, ...]
    cwd: str
    log: str
    socket: str
    created_s: float
    """Wall time of `run`; the budget counts from here (on the job's clock)."""
    err: str = ""
    """Where its stderr goes; '': into the log, in the order it is written."""
    reads_once: bool = False
    """It was handed a pipe, which no later start could read again: no plan unloads it."""
    inside: bool = False
    """It is a part of a script or notebook that was started without carbontui: nothing could start it again."""
    by: str = ""
    commit: str = ""
    """Of the repository that its script is in, at its start; ending in '-dirty' where tracked files differ from it."""
    zone: str | None = None
    zone_why: str = ""
    """Why the zone is not known, with the candidates."""
    grid: str | None = None
    budget: str = "1.0x"
    work_s: float | None = None
    steps: int | None = None
    guess: bool = False
    """Plan with a guessed total without asking."""
    ref_rate: float | None = None
    """Reference steps per second of the job's clock, if measured beforehand (demo)."""
    carbon_budget_g: float | None = None
    cost_budget: float | None = None
    energy_budget_kwh: float | None = None
    on_budget: tuple[str, ...] = ("warn", "cap", "ask")
    """Actions, in this order, when one of these three will not be enough: see job/terms/allowance.py."""
    intensity_g_per_kwh: float | None = None
    """The user's own value for all hours, in place of every source."""
    boundary: Kind = "given-back"
    """What its account counts."""
    boundary_why: str = ""
    """The sign by which it was guessed (job/life/launch.py); '': as given."""
    gives_back: bool = False
    """An unload releases what is held."""
    idle_limit_s: float | None = None
    """The longest stillness on boards that are held."""
    host_w: float | None = 0.0
    """Watts of the machine besides GPU, CPU and memory; None: as measured, else by the kind of machine."""
    pue: float = 1.0
    pue_why: str = ""
    """Where it comes from (job/life/launch.py); '': as given."""
    declared: DeclaredBoards | None = None
    """The user's figures for boards whose power cannot be read."""
    max_pause_s: float = 12 * 3600.0
    cap: bool = True
    probe: bool = True
    """Once a cap is wanted, the limit in force may be written back to see whether one can be set."""
    allow_raise: bool = False
    requeue: bool = False
    sigstop: bool = False
    """A program that shows no training step may be paused by SIGSTOP."""
    spool: bool = True
    """The command's environment may be kept on disk, for a restart after the keeper's loss or a reboot."""
    metrics: str | None = None
    """Folder in which metrics are published."""
    offline: bool = False
    slurm_job: str | None = None
    """JobIDRaw of the Slurm job and step it was started in, as sacct shows it."""
    scheduler: str = ""
    """Id of the scheduler's job it was started in, unchanged by a requeue; '' outside one."""
    attempt: int = 0
    """How often the scheduler had restarted that job."""
    resume_args: tuple[str, ...] = ()
    """Extra arguments of the command when it resumes from its checkpoint."""
    ends_s: float | None = None
    """When its scheduler will end it (epoch seconds), as known at its start."""
    fleet_cap_w: float | None = None
    """Watts per GPU at which the cluster's fleet has started it; None: at full."""
    resubmit: bool | None = False
    """A successor continues it where it is unloaded or its scheduler ends it."""
    nodes: Nodes | None = None
    replay: Replay | None = None
    simulated: SimulatedSpec | None = None
    """For demo and tests only."""
    estimate: bool = False
    """Run by `estimate`, to learn about the work: the account excludes it."""


def stop_socket(socket: str | Path) -> str:
    """The keeper's own socket, beside the job's."""
    return f"{str(socket).removesuffix('.sock')}.keeper"


def slurm_job(environment: dict[str, str]) -> str | None:
    """JobIDRaw of the Slurm job (and step, where a step is running) of an environment; None outside Slurm."""
    job = environment.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        return None
    step = environment.get("SLURM_STEP_ID", "")
    # in a batch script the step number is a special value that sacct does not show
    return f"{job}.{step}" if step.isdigit() and int(step) < 2**31 else job


def clock_of(options: Options) -> Clock:
    """The job's clock: live, or the replay given to `run`."""
    replay = options.replay
    if replay is None:
        return Clock()
    stood = Standstills(Path(options.dir) / "clock.json", replay.wall_origin_s) if replay.bound else None
    return Clock(replay.speed, replay.wall_origin_s, replay.start_s, stood)


def save(options: Options) -> None:
    """Write spec.json (0600). Raises OSError."""
    path = Path(options.dir) / "spec.json"
    # in ASCII, by the standard library: a path may contain non-text bytes, which it escapes and msgspec refuses
    path.write_bytes(json.dumps(msgspec.to_builtins(options)).encode())
    path.chmod(0o600)


def load(directory: Path) -> Options:
    """The options of a job. Raises OSError or ValueError if its directory has no readable spec."""
    # not by msgspec: paths may contain escaped non-text bytes
    try:
        found = json.loads(records.read_bytes(directory / "spec.json"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    options = msgspec.convert(found, Options)
    for path, most in ((options.socket, SOCKET_MOST), (options.dir, PATH_MOST)):
        if not 0 < len(path.encode(errors="surrogateescape")) < most:
            raise ValueError(f"{path[:40]!r} is not a path that a job can have")
    if not Path(options.socket).is_absolute():
        raise ValueError(f"{options.socket[:40]!r} is not an absolute path")
    if not (options.job + options.name + (options.zone or "")).isprintable():
        raise ValueError("its id, name or zone cannot be shown")
    numbers = [value for value in msgspec.structs.astuple(options) if isinstance(value, float)]
    if not all(abs(value) <= NUMBER_MOST for value in numbers) or not 0 <= options.created_s <= units.LATEST_S:
        raise ValueError("it holds a number that no job can have")
    return options
