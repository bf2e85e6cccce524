"""`run` begins a plain command before the rest of carbontui is loaded, which takes longer than a command's own start.

Only where nothing can be refused, asked or waited for: everything else is left to the command line. Three processes:

- this one forks, copies the command's first output, then loads the command line, which finds here what is `begun`
- the fork starts the command, then becomes its keeper, which waits for the job's spec
- a keeper whose spec never comes, since this process has ended, ends the command

Until the command has begun nothing is imported but what an interpreter has loaded anyway, and small modules in C.
"""

import _signal  # type: ignore[import-not-found]  # no enum
import os
import stat
import sys
import time

from carbontui.client import inject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
FLAGS = {"--quiet", "-q", "--guess", "--no-cap", "--no-probe", "--no-spool"}
"""Options of `run` that change nothing of the start; so do --zone, --steps, and a --budget without --work."""
PLACES = {"CARBONTUI_HOME", "CARBONTUI_LEASE_DIR", "CARBONTUI_OFFLINE"}
SETTINGS = {"CARBONTUI_ZONE": "--zone", "CARBONTUI_BUDGET": "--budget"}
"""Variables, and the options they stand for; others of ours are of a job around this one, or are to be checked."""
OF_OTHERS = ("SLURM_", "SKYPILOT_", "ELECTRICITYMAPS_", "WATTTIME_", "ENTSOE_", "EIA_")
"""What variables begin with that name a scheduler's job, or may be a key that the command does not get."""
FORWARDED = (2, 3, 10, 12, 15)
"""Signals for the command (job/keeper/signals.py): they wait until the command line hands them on."""
IGNORED = (13, 25)
"""Signals that Python ignores, and the command is not to, unless whoever started us did."""
BLOCKED = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
"""Those that whoever started us has blocked."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
FIRST_OUTPUT_S = 0.1
POLL_S = 0.002
FACTOR_MAX = 10
FILES_LEAST = 1024
ROOM_B = 1 << 26
RUNTIME_MAX = 66
"""Bytes of a path below which a socket's fits (carbontui.paths)."""


def new_id() -> str:
    """Six characters that are easy to read out and to type."""
    return "".join(ALPHABET[one % len(ALPHABET)] for one in os.urandom(6))


def socket_name(state_dir: str, job: str) -> str:
    """Of a job's socket, in a folder that several state directories share."""
    import zlib

    return f"{job}-{zlib.crc32(os.fsencode(state_dir)):08x}.sock"


class Begun:
    """A command under way; its keeper waits for what it needs to know of the job."""

    def __init__(self, job: str, directory: str, socket: str) -> None:
        self.job, self.dir, self.socket = job, directory, socket
        self.at_s = time.time()
        self.log, self.err = f"{directory}/run.log", ""
        self.stdin, self.once = os.dup(0), is_unread(0)
        """Its standard input, under this number here and in the keeper; whether that is a pipe, to be read once."""
        self.keeper, self.child, self.spec, self.lock = -1, 0, -1, -1
        """The pids of keeper and command (0: it has not begun), where the keeper reads the job's spec, and the lock
        that the command holds: we hold it, too, as the command may have ended before the job has its record."""
        self.copied = [0, 0]
        """Bytes of its output and its errors that are copied to ours: lines, as one of our own may come next."""

    def poll(self) -> "int | None":
        """The keeper's exit code; None while it lives."""
        pid, status = os.waitpid(self.keeper, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def copy(self) -> bool:
        """Copy the first lines it has written to our own output, if that takes them at once: the keeper is not to
        wait for a reader. Whether there were any. Raises OSError."""
        import select

        for at, path in enumerate(filter(None, (self.log, self.err))):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            lines = os.pread(file, select.PIPE_BUF, 0).rpartition(b"\n")
            os.close(file)
            if lines[1] and select.select((), (at + 1,), (), 0)[1]:
                self.copied[at] = os.write(at + 1, lines[0] + b"\n")
        return any(self.copied)


begun: "Begun | None" = None
"""The command of this process, if it is under way already."""


def cwd() -> str:
    """The current folder; "" if it has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return ""


def own_path() -> list[str]:
    """Where Python's own modules are found, and no others of their names."""
    theirs = {os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(":") if entry}  # noqa: PTH100
    theirs.add(cwd())
    return [entry for entry in sys.path if entry and os.path.abspath(entry) not in theirs]  # noqa: PTH100


def quickly(words: list[str], ours: "Callable[[], tuple[list[str], dict[str, str]]]") -> None:
    """Begin the command of `run` with these arguments, if nothing stands against it; `ours`: further arguments of its
    keeper, and its environment."""
    global begun
    try:
        if (command := plain(words)) is None or (begun := _begin(command, ours)) is None:
            return
        end = time.monotonic() + FIRST_OUTPUT_S
        while not begun.copy() and time.monotonic() < end:
            time.sleep(POLL_S)
    except (OSError, ValueError):
        pass  # the command line says what is wrong, or what a reader that is gone means for the command


def plain(words: list[str]) -> "list[str] | None":
    """The command, if all that is set for it is known and right; None if anything is to be checked, or asked."""
    given, rest = [*settings().items()], list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name not in FLAGS or equals:
            given.append((name, value if equals or not rest else rest.pop(0)))
    ours = {name: value for name, value in os.environ.items() if name.startswith("CARBONTUI_")}
    given += [(SETTINGS[name], ours[name]) for name in SETTINGS if ours.get(name)]
    known = ours.keys() <= PLACES | SETTINGS.keys() and not any(name.startswith(OF_OTHERS) for name in os.environ)
    right = all(name in RIGHT and RIGHT[name](value) for name, value in given)
    return rest if known and right and rest and not any("/fd/" in word for word in rest) else None


def settings() -> dict[str, str]:
    """What config.toml sets, as options: nothing, or a zone, or something to be checked."""
    try:
        with open(f"{home('CONFIG', '~/.config')}/config.toml", encoding="utf-8") as file:  # noqa: PTH123
            said = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    except FileNotFoundError:
        said = []
    zone = said[0].removeprefix('zone = "').removesuffix('"') if len(said) == 1 else ""
    return {"--zone": zone} if said == [f'zone = "{zone}"'] else {"": ""} if said else {}


def home(kind: str, usual: str) -> str:
    """Our folder for such files: as carbontui.paths has it."""
    if home := os.environ.get("CARBONTUI_HOME"):
        return os.path.realpath(os.path.expanduser(home))  # noqa: PTH111
    return os.path.expanduser(os.environ.get(f"XDG_{kind}_HOME", "").strip() or usual) + "/carbontui"  # noqa: PTH111


def is_zone(text: str) -> bool:
    table = f"{os.path.dirname(os.path.abspath(__file__))}/data/timezone-to-zone.csv"  # noqa: PTH100, PTH120
    with open(table, encoding="utf-8") as file:  # noqa: PTH123
        return text.isupper() and any(row.split(",")[2:3] == [text] for row in file)


def is_factor(text: str) -> bool:
    whole, point, part = text[:-1].partition(".")
    decimal = text.isascii() and text[-1:] == "x" and whole.isdigit() and part.isdigit() == bool(point)
    return decimal and 1 <= int(whole) < FACTOR_MAX


def is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 10**9


RIGHT = {"--zone": is_zone, "--budget": is_factor, "--steps": is_count}


def _begin(argv: list[str], ours: "Callable[[], tuple[list[str], dict[str, str]]]") -> "Begun | None":
    """Begin the command; None, or OSError, where it is to be started as any other: nothing is left behind then."""
    import resource

    few = 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < FILES_LEAST
    read, *_ = [stat.S_ISREG(os.fstat(fd).st_mode) for fd in (0, 1, 2)]  # each is open
    program, state = _program(argv), home("STATE", "~/.local/state")
    if few or read or not program or any(map(os.isatty, (0, 1, 2))) or not (cwd() and os.path.isabs(state)):  # noqa: PTH117
        return None
    mask = os.umask(0o077)
    try:
        sockets = socket_dir()
        os.makedirs(f"{state}/jobs", exist_ok=True)  # noqa: PTH103
        disk = os.statvfs(state)
        if not (_is_private(state) and _is_private(sockets)) or disk.f_bavail * disk.f_frsize < ROOM_B:
            return None
        job = new_id()
        one = Begun(job, f"{state}/jobs/{job}", f"{sockets}/{socket_name(state, job)}")
        os.mkdir(one.dir)  # noqa: PTH102
        _signal.pthread_sigmask(_signal.SIG_BLOCK, FORWARDED)
        try:
            _fork(one, program, argv, ours, mask)
        finally:
            if not one.child:
                os.close(one.stdin)
                inject.remove(one.dir)
                _signal.pthread_sigmask(_signal.SIG_SETMASK, BLOCKED)
    finally:
        os.umask(mask)
    return one if one.child else None


def ignored() -> list[int]:
    """The signals that whoever started us ignores. Of two that is not known, since Python ignores them itself: those
    are as in the shell that we are a child of, if it is one."""
    try:
        with open(f"/proc/{os.getppid()}/status", encoding="latin-1") as file:  # noqa: PTH123
            parent = dict(line.split(":", 1) for line in file)
    except OSError:
        parent = {"Name": ""}
    theirs = int(parent["SigIgn"], 16) if parent["Name"].strip() in SHELLS else 0
    known = {one for one in _signal.valid_signals() - {*IGNORED} if _signal.getsignal(one) == _signal.SIG_IGN}
    return sorted(known | {one for one in IGNORED if theirs >> one - 1 & 1})


def _fork(
    one: Begun, program: str, argv: list[str], ours: "Callable[[], tuple[list[str], dict[str, str]]]", mask: int
) -> None:
    """Start the command in a fork, which then becomes its keeper."""
    import fcntl

    one.lock = os.open(f"{one.dir}/.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(one.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # never seen without its holder: that would be what a killed start leaves
    os.rename(f"{one.dir}/.lock", f"{one.dir}/training.lock")  # noqa: PTH104
    inject.link(one.dir)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    output = errors = os.open(one.log, flags, 0o600)
    if not os.path.samestat(os.fstat(1), os.fstat(2)):
        one.err = f"{one.dir}/run.err"
        errors = os.open(one.err, flags, 0o600)
    log = os.open(f"{one.dir}/carbontui.log", flags, 0o600)
    hook, marker = f"{one.dir}/hook", f"{one.dir}/resume.json"
    theirs = inject.environment(
        os.environ, hook_dir=hook, socket=one.socket, job=one.job, marker=marker, log=one.log, err=one.err
    )
    ignoring = ignored()
    (reads, one.spec), (told, tells) = os.pipe(), os.pipe()
    one.keeper = os.fork()
    if one.keeper == 0:
        child = 0
        try:
            _signal.signal(17, _signal.SIG_DFL)  # else it is not told how the command ends
            child = os.fork()
            os.setsid()
            if child == 0:
                os.write(tells, b"%d " % os.getpid())
                os.umask(mask)
                os.set_inheritable(one.lock, True)
                os.dup2(output, 1)
                os.dup2(errors, 2)
                for number in {17, *IGNORED}:
                    _signal.signal(number, _signal.SIG_IGN if number in ignoring else _signal.SIG_DFL)
                _signal.pthread_sigmask(_signal.SIG_SETMASK, BLOCKED)
                os.execve(program, argv, theirs)
            os.close(tells)
            time.sleep(FIRST_OUTPUT_S)  # the command's own start comes first
            os.chdir(one.dir)
            for fd, number in ((reads, 0), (log, 1), (log, 2)):
                os.dup2(fd, number)
            os.set_inheritable(one.stdin, True)
            more, environment = ours()
            keeper = [sys.executable, "-m", "carbontui.job.keeper", one.job, *more, "--begun", str(child)]
            os.execve(sys.executable, keeper, environment)
        finally:
            os.kill(child, 9) if child else os.write(tells, b"not started")
            os._exit(1)
    for fd in (reads, tells, log, *{output, errors}):
        os.close(fd)
    with os.fdopen(told) as end:
        pid, _, fault = end.read().partition(" ")  # to its exec, which closes it
    one.child = 0 if fault else int(pid or 0)
    if not one.child:
        os.kill(one.keeper, 9)
        os.waitpid(one.keeper, 0)
        os.close(one.spec)


def is_unread(fd: int) -> bool:
    """Whether it is a pipe or socket with something to be read, or somebody who may still write."""
    import fcntl
    import select
    import termios

    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ended = dict(poll.poll(0)).get(fd, 0) & select.POLLHUP
    return not ended or any(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))


def _program(argv: list[str]) -> str:
    """The command's file; "" if it cannot be started, or its script is not there."""
    if any(word.endswith(".py") and not os.path.exists(word) for word in argv[1:]):  # noqa: PTH110
        return ""
    folders = [""] if "/" in argv[0] else os.environ.get("PATH", os.defpath).split(":")
    files = (os.path.join(folder, argv[0]) for folder in folders)  # noqa: PTH118
    return next((file for file in files if os.path.isfile(file) and os.access(file, os.X_OK)), "")  # noqa: PTH113


def socket_dir() -> str:
    """As carbontui.paths chooses it where nothing is in the way."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = os.path.isdir(runtime) and os.access(runtime, os.W_OK) and len(os.fsencode(runtime)) <= RUNTIME_MAX  # noqa: PTH112
    folder = f"{runtime}/carbontui" if usable else f"/tmp/carbontui-{os.getuid()}"
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    return folder


def _is_private(path: str) -> bool:
    there = os.lstat(path)
    return there.st_mode & 0o170077 == 0o040000 and there.st_uid == os.getuid()
