"""Starting a job: its directory, spec and keeper, detached from the terminal and holding nothing of the caller's."""

import contextlib
import fcntl
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from carbontui import early, paths, units
from carbontui.client import inject
from carbontui.config import Settings
from carbontui.grid import settings
from carbontui.job.files import launch_file, places, store
from carbontui.job.keeper import command as keeping
from carbontui.job.life import descriptors
from carbontui.job.terms import spec as opts
from carbontui.system import bounded_command, isolation, life, proc

IDLE_LIMIT_S = 1800.0
"""The longest stillness under a scheduler: sites cancel jobs whose GPUs idle for one hour (Northeastern) or two
(Princeton, University of Florida)."""
CENTRE_PUE = 1.2
CLOUDS = {
    "Amazon EC2": ("aws", 1.15),
    "Google": ("google", 1.09),
    "Google Compute Engine": ("google", 1.09),
    "Microsoft Corporation Virtual Machine": ("azure", 1.16),
}
"""By maker, or maker and product, as the firmware tells: the provider, and its PUE."""
DMI = Path("/sys/class/dmi/id")


def cloud(root: Path = DMI) -> tuple[str, float] | None:
    """The provider whose machine this is, and its PUE; None: none that is known."""
    try:
        maker, product = ((root / name).read_text().strip() for name in ("sys_vendor", "product_name"))
    except (OSError, ValueError):
        return None
    return CLOUDS.get(maker) or CLOUDS.get(f"{maker} {product}")


def terms(settings: Settings, environment: Mapping[str, str], *, resubmit: bool, dmi: Path = DMI) -> dict[str, Any]:
    """The fields of a job's options that say what its account counts. Raises ValueError naming the setting."""
    provider = cloud(dmi)
    scheduler = "SLURM_JOB_ID" in environment or "KUBERNETES_SERVICE_HOST" in environment
    kind, why = settings.boundary, ""
    if kind is None:
        kind = "held" if scheduler or provider or settings.gpu_price else "always-on"
        why = "slurm" if "SLURM_JOB_ID" in environment else "kubernetes" if scheduler else ""
        why = why or ("cloud" if provider else "rented" if settings.gpu_price else "workstation")
    pue, pue_why = settings.pue, ""
    if pue is None:
        own = kind == "always-on" or not (scheduler or provider)
        pue_why, pue = ("workstation", 1.0) if own else provider or ("centre", CENTRE_PUE)
    limit_s = IDLE_LIMIT_S if scheduler else None
    if settings.idle_limit is not None:
        try:
            limit_s = None if settings.idle_limit == "none" else units.parse_duration(settings.idle_limit)
        except ValueError as error:
            raise ValueError(f"--idle-limit: {error} (or none)") from None
    return {
        "boundary": kind,
        "boundary_why": why,
        "gives_back": resubmit,
        "idle_limit_s": limit_s if kind == "held" else None,
        "host_w": settings.host_w,
        "pue": pue,
        "pue_why": pue_why,
    }


READY_S = 15.0
GIT_S = 1.0
"""A repository too large to be compared within this has no commit told."""
NOT_YET = "no supervisor answers yet: the job goes on without one, and is steered as soon as it answers"
GRID_KEYS = frozenset({*settings.KEY_NAMES, *settings.ALSO_CALLED.values()})
"""API keys for grid data: for our use only, not passed to the training."""
PLAIN_FLAGS = frozenset({"-u", "-O", "-OO", "-B", "-E", "-I", "-s", "-S", "-v", "-q"})
"""Python options that take no value."""


class LaunchError(RuntimeError):
    """The job could not be started; the text says what is wrong and how to repair it. `code`: the exit code for it."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


OF_THE_BOARDS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
NO_INPUT = "CARBONTUI_NO_INPUT"
"""Set for a command that was started on a terminal, whose input it does not get."""
ROOM_B = 16e6
"""Free space needed to start a job: with less, its journal and process records would soon be lost."""


NAME_MAX = 80
FILES_LEAST = 32
"""It has 16 open at rest; viewers, ranks and a source of the grid come on top."""


def why_not(state: Path) -> str:
    """Why a job cannot keep its files in this state directory; '' if it can."""
    try:
        paths.private_dir(state)
        disk = os.statvfs(state)
    except OSError as error:
        return f"{state} cannot be used ({error.strerror or error})"
    if not os.access(state, os.W_OK | os.X_OK, effective_ids=True):
        return f"{state} cannot be used (Permission denied)"
    free_b = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free_b < ROOM_B:  # some file systems do not report it
        return f"{state} has {free_b / 1e6:.0f} MB free, the files of a job need {ROOM_B / 1e6:.0f} MB"
    return ""


def few_files() -> str:
    """Why our processes could not open the files they need; '' if they can."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= FILES_LEAST:
        return ""
    return f"ulimit -n allows {most} open files; a job's supervisor needs {FILES_LEAST}: ulimit -n {FILES_LEAST}"


def claim(name: str, command: tuple[str, ...], *, every_node: bool = False, numbered: bool = False) -> dict[str, Any]:
    """Where a new job lives: id, name and paths of its options. Without a name it is the script's, renumbered 'name-2',
    'name-3' ... where that is taken; so is a given one that is to be `numbered`. Its directory (0700) is claimed by
    this process until the keeper has it, and names the socket at which the job will answer.

    Raises LaunchError where the name is taken, or the state directory cannot be used.
    """
    if why := few_files():
        raise LaunchError(why)
    wanted, numbered, begun = name or job_name(command), numbered or not name, early.begun
    job = begun.job if begun else early.new_id()
    directory = Path(begun.dir) if begun else paths.job_dir(job)
    if why := why_not(paths.state_dir()):
        raise LaunchError(f"{why}; set CARBONTUI_HOME")
    try:
        paths.jobs_dir().mkdir(mode=0o700, exist_ok=True)
        with one_at_a_time(paths.jobs_dir(), forgiving=True):
            for lock in paths.jobs_dir().glob(f"*/{life.TRAINING_LOCK}"):  # of starts that were killed before this
                if not (life.is_locked(lock) or any((lock.parent / name).exists() for name in ("job.json", life.LOCK))):
                    shutil.rmtree(lock.parent, ignore_errors=True)
            taken = {live.name: live.id for live in store.jobs() if live.live and not live.foreign}
            if wanted in taken and not numbered:
                raise LaunchError(f"job {wanted!r} is running ({taken[wanted]}); choose another --name")
            names = (wanted if n == 1 else f"{wanted}-{n}" for n in itertools.count(1))
            home = at_home(job, directory, next(one for one in names if one not in taken), every_node=every_node)
            directory.mkdir(mode=0o700, exist_ok=begun is not None)
            keeper = begun.keeper if begun else os.getpid()
            claimed = {
                **home,
                **life.here()._asdict(),
                "started": time.time(),
                "argv": (),
                "state": "waiting",
                "door": opts.stop_socket(home["socket"]),
                "pids": {"keeper": [keeper, proc.start_time(keeper)]},
            }
            paths.write_whole(directory / "job.json", json.dumps(claimed).encode())
            if begun:
                os.close(begun.lock)
    except OSError as error:
        where = paths.state_dir()
        raise LaunchError(f"{where} cannot be used ({error.strerror or error}); set CARBONTUI_HOME") from error
    return home


def job_name(argv: tuple[str, ...]) -> str:
    """The script's file name, else the command's."""
    script = next((part for part in argv[1:] if part.endswith(".py")), argv[0])
    return "".join(c if c.isprintable() else "?" for c in Path(script).name)[:NAME_MAX]


def checked_name(name: str) -> str:
    """The name, unchanged. Raises LaunchError unless it is printable and short."""
    if name.startswith("-"):
        raise LaunchError(f"--name: {name!r} is an option, not a name; give the name first, like --name mine {name}")
    if len(name) > NAME_MAX or not name.isprintable():
        raise LaunchError(f"--name: at most {NAME_MAX} printable characters")
    return name


def at_home(job: str, directory: Path, name: str, *, every_node: bool = False) -> dict[str, Any]:
    """Id, name and paths of a job's options; its socket where every node of it has such a folder."""
    socket = early.begun.socket if early.begun else str(paths.socket_path(job, paths.socket_dir(every_node=every_node)))
    return {"job": job, "name": name, "dir": str(directory), "log": str(directory / "run.log"), "socket": socket}


@contextlib.contextmanager
def one_at_a_time(folder: Path, *, forgiving: bool = False) -> Iterator[None]:
    """Serialise processes that prepare or receive a job at the same time, so that each sees what those before it did;
    a `forgiving` one goes on without where the file system has no locks."""
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with contextlib.suppress(*((OSError,) if forgiving else ())):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def executable(argv: tuple[str, ...]) -> None:
    """Refuse a command that does not exist, before anything is started; exit codes are a shell's: 127, 126."""
    if shutil.which(argv[0]) is not None:
        # a start may wait for hours: a mistyped `python trian.py` is reported now
        words = argv[1:] if Path(argv[0]).name.startswith("python") else ()
        script = next((word for word in words if word not in PLAIN_FLAGS), "")
        if script.endswith(".py") and not script.startswith("-") and not Path(script).exists():
            raise LaunchError(f"{script}: no such file")
        return
    if os.sep in argv[0] and Path(argv[0]).is_dir():
        raise LaunchError(f"{argv[0]}: is a folder", 126)
    if Path(argv[0]).is_file():
        how = f"python {argv[0]}" if argv[0].endswith(".py") else f"chmod +x {argv[0]}"
        raise LaunchError(f"{argv[0]}: is not executable; write {how}", 126)
    raise LaunchError(f"{argv[0]}: no such command", 127)


def commit(argv: tuple[str, ...], cwd: str) -> str:
    """The commit of the repository that the script is in, as `Options.commit`; '' outside one."""
    script = next((word for word in argv if word.endswith(".py")), "")
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    command = ["git", "--no-optional-locks", "-C", str(Path(cwd, script).parent if script else cwd), *describe]
    with contextlib.suppress(OSError, OverflowError, subprocess.TimeoutExpired):
        done = bounded_command.answer(command, within_s=GIT_S, most_b=4096)
        return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""
    return ""


def git(cwd: str, *words: str) -> list[str] | None:
    """The names that git says, each ended by a zero byte; None where there is no repository, or no git."""
    try:
        done = subprocess.run(["git", "-C", cwd, *words], capture_output=True, check=False)
    except OSError:
        return None
    return [*filter(None, os.fsdecode(done.stdout).split("\0"))] if done.returncode == 0 else None


def not_ignored(cwd: str) -> list[str] | None:
    """The files below `cwd` that git does not ignore; None without a repository."""
    return git(cwd, "ls-files", "-z", "--cached", "--others", "--exclude-standard")


def waits(options: opts.Options) -> bool:
    """Whether the start may wait for the plan."""
    return options.work_s is not None and options.budget.strip().lower() not in ("1x", "1.0x")


def start(
    options: opts.Options,
    *,
    hold: bool | None = None,
    again: Mapping[str, Any] | None = None,
    try_first: bool = False,
    handed: descriptors.Handed = descriptors.NOTHING,
) -> bool:
    """Start the keeper of a prepared job; whether the job answers already. The environment of its command is the
    caller's.

    `hold`: the command waits for the plan before it starts. `again`: a job that continues, and from where.
    `try_first`: it runs at once until enough is known of it, then waits for its start. `handed`: the descriptors of
    this process that it gets.
    """
    try:
        paths.private_dir(Path(options.socket).parent)
    except OSError as error:
        raise LaunchError(f"the job could not be controlled: no place for its socket: {error}") from error
    opts.save(options)
    environment = {name: value for name, value in os.environ.items() if name not in GRID_KEYS | {NO_INPUT}}
    if handed.terminal:
        environment[NO_INPUT] = "1"
    if sys.stdout.isatty():
        environment = inject.as_on_a_terminal(environment, *shutil.get_terminal_size((120, 24)))
    spec = keeper_spec(options, environment)
    # a job that may wait starts when the plan says so; without a supervisor the keeper starts it after a minute
    spec |= {"input": handed.spec(None), "hold": waits(options) if hold is None else hold, "try": try_first}
    spec |= {"surroundings": isolation.launch_env()}
    if again is not None:
        spec["again"] = dict(again)
        (Path(options.dir) / "exit.json").unlink(missing_ok=True)
    if options.spool:
        launch_file.save(Path(options.dir), spec)
    if not handed.stdin:
        return run_keeper(spec, handed.others)
    stdin = early.begun.stdin if early.begun else os.dup(0)
    try:
        return run_keeper({**spec, "input": handed.spec(stdin)}, (stdin, *handed.others))
    finally:
        os.close(stdin)


@contextlib.contextmanager
def undone(directory: Path) -> Iterator[None]:
    """If the launch inside fails, remove the job, unless its keeper runs."""
    try:
        yield
    except BaseException:
        if not _kept(directory):
            if early.begun:
                keeping.undo(early.begun.child, str(directory))
            shutil.rmtree(directory, ignore_errors=True)
        raise


def _kept(directory: Path) -> bool:
    """Whether a keeper has taken the job over from this process."""
    job = store.load(directory)
    return job is not None and job.alive("keeper") not in (None, os.getpid())


def keeper_spec(options: opts.Options, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a keeper needs to know of its job; `environment` is that of the command."""
    told = ("job", "name", "socket", "log", "err", "argv", "cwd", "scheduler")
    public = {name: getattr(options, name) for name in told}  # the fields of job.json besides the pids
    public |= {"door": opts.stop_socket(options.socket), "started": options.created_s}
    return {
        **public,
        **{name: getattr(options, name) for name in ("requeue", "resume_args", "estimate")},
        "job_dir": options.dir,
        "input": descriptors.NOTHING.spec(None),
        "public": public,
        "environment": environment,
    }


def run_keeper(spec: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> bool:
    """Start a keeper with its spec, detached, and wait until it has the job; whether that answers within READY_S, or is
    over by then. Raises LaunchError."""
    keeper, directory = early.begun or spawn_keeper(spec, descriptors), Path(spec["job_dir"])
    if early.begun:
        tell_keeper(os.fdopen(early.begun.spec, "wb"), spec)
    # where the job has moved on there is no supervisor
    path = spec["socket" if places.read(directory).holder else "door"]
    due = time.monotonic() + READY_S
    while not (life.answers(path) or (directory / "exit.json").exists()):
        if keeper.poll() is not None and not (life.is_locked(directory / life.LOCK) or life.owned(directory)):
            tail = (directory / "carbontui.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise LaunchError(f"the monitor process ended at once: {' '.join(tail)}")
        if time.monotonic() >= due and _kept(directory):
            return False
        time.sleep(0.02)
    return True


def spawn_keeper(spec: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """Start a keeper with its spec, detached, with these descriptors under the same numbers."""
    directory, theirs = Path(spec["job_dir"]), spec.get("environment") or {}
    # another shell may restart it: the boards are those that its command sees
    ours = {name: value for name, value in isolation.environment(os.environ).items() if name not in OF_THE_BOARDS}
    ours |= {name: theirs[name] for name in OF_THE_BOARDS if name in theirs}
    with (directory / "carbontui.log").open("ab") as log:
        os.fchmod(log.fileno(), 0o600)  # whatever the umask
        try:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "carbontui.job.keeper", spec["job"], *paths.apart()],
                cwd=directory,
                env=ours,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=descriptors,
            )
        except BlockingIOError:
            raise LaunchError(isolation.TOO_FEW) from None
    assert keeper.stdin is not None
    tell_keeper(keeper.stdin, spec)
    return keeper


def tell_keeper(pipe: IO[bytes], spec: Mapping[str, Any]) -> None:
    """Write its spec for a keeper that waits for it at the other end."""
    with contextlib.suppress(BrokenPipeError), pipe:  # one that exits at once is reported later
        # in ASCII: a path or an argument may contain bytes that are not text, which Python escapes and msgspec refuses
        pipe.write(json.dumps(spec).encode())
