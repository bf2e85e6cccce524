"""All paths: state, config, cache, sockets, limit leases.

``CARBONTUI_HOME`` moves state, config and cache together (tests and demos use it); sockets and limit leases
never follow it, because they belong to the machine: a socket path must be short, and two state directories must
agree on who holds a GPU's limit.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import platformdirs

from carbontui import early

SOCKET_PATH_MAX = 100  # bytes; the kernel's limit is 108 with the final NUL


def _home() -> Path | None:
    value = os.environ.get("CARBONTUI_HOME")
    return known(lambda: str(Path(value).expanduser().resolve())) if value else None


def known(place: Callable[[], str], *, wanted: str = "HOME or CARBONTUI_HOME") -> Path:
    """The place as a path. Raises FileNotFoundError, naming what is `wanted`, if the user has no home directory: a
    container may run as an unknown uid."""
    try:
        found = Path(place())
    except RuntimeError:
        found = Path("~")
    if found.parts[:1] == ("~",):
        raise FileNotFoundError(errno.ENOENT, f"no home directory is known here: set {wanted}")
    return found


def state_dir() -> Path:
    return _home() or known(lambda: platformdirs.user_state_dir("carbontui"))


def config_file() -> Path:
    return (_home() or known(lambda: platformdirs.user_config_dir("carbontui"))) / "config.toml"


def cache_dir() -> Path:
    home = _home()
    return home / "cache" if home else known(lambda: platformdirs.user_cache_dir("carbontui"))


def jobs_dir() -> Path:
    return state_dir() / "jobs"


def job_dir(job_id: str) -> Path:
    return jobs_dir() / job_id


def write_whole(path: Path, data: bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Replace a file by one with these permissions: a reader sees the old or the new one, also after a power failure
    if `durable`. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    # others who may write in that folder must not redirect us to another file
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600), "wb") as file:  # noqa: PTH123 - of a descriptor
            os.fchmod(file.fileno(), mode)
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_dir(path.parent)


def sync_dir(path: Path) -> None:
    """Make what was renamed or removed in this directory last. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_dir(path: Path) -> Path:
    """Make `path` (0700) and verify that it is ours: no symlink, our uid, closed to others.

    Raises PermissionError, naming the repair, if it is not.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode) or not stat.S_ISDIR(info.st_mode):
        raise PermissionError(f"{path} is not a plain directory; remove it")
    if info.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to uid {info.st_uid}, not to you; remove it or set XDG_RUNTIME_DIR")
    if info.st_mode & stat.S_ISVTX and info.st_mode & 0o022:
        raise PermissionError(f"{path} is shared by everybody, as /tmp is; name a folder of its own below it")
    if stat.S_IMODE(info.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def socket_dir(*, every_node: bool = False) -> Path:
    """The first that is ours and short enough; in /tmp, other users may have made it before us. If all are, that one.

    `every_node`: one that every machine of a cluster has locally, which leaves those in /tmp and /var/tmp.
    """
    return next((each for each in _socket_dirs(every_node) if _ours(each)), _shared())


def _shared() -> Path:
    return Path("/tmp") / f"carbontui-{os.getuid()}"


def _socket_dirs(every_node: bool) -> list[Path]:
    """$XDG_RUNTIME_DIR/carbontui, /tmp/carbontui-<uid>, sockets/ in the state directory, /var/tmp/carbontui-<uid>/run:
    those short enough."""
    shared = _shared()
    candidates = [shared, state_dir() / "sockets", Path("/var/tmp") / f"carbontui-{os.getuid()}" / "run"]
    if every_node:
        candidates.pop(1)
    runtime = None if every_node else os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        candidates.insert(0, Path(runtime) / "carbontui")
    return [each for each in candidates if len(os.fsencode(each)) <= SOCKET_PATH_MAX - 24]


def _ours(path: Path) -> bool:
    """Whether `path` is a plain directory of ours, or can be created as one."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return _can_be_made_in(path.parent)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def _can_be_made_in(path: Path) -> bool:
    if path.exists() or path.parent == path:
        return os.access(path, os.W_OK | os.X_OK)
    return _can_be_made_in(path.parent)


def _short_hash(data: bytes) -> str:
    import hashlib  # with it OpenSSL: a tenth of what a screen loads, which makes no new name

    return hashlib.sha256(data).hexdigest()[:12]


def socket_path(job_id: str, directory: Path | None = None) -> Path:
    """The job's socket, named by id and state directory; at most 100 bytes."""
    return (directory or socket_dir()) / early.socket_name(os.fspath(state_dir()), job_id)


def found_socket(job_id: str) -> Path:
    """The job's socket in whichever folder it is, for a job whose record of it is lost."""
    candidates = [socket_path(job_id, directory) for directory in _socket_dirs(every_node=False)]
    return next((path for path in candidates if path.exists()), candidates[0])


def limit_lease_dir() -> Path:
    """Power-limit leases, one file per GPU UUID: on local disk, shared by all jobs of this user on the machine."""
    root = Path("/var/lib/carbontui") if os.geteuid() == 0 else Path("/var/tmp") / f"carbontui-{os.getuid()}"
    override = os.environ.get("CARBONTUI_LEASE_DIR")
    return Path(override) if override else root / "leases"


def apart() -> list[str]:
    """Arguments by which those who look at the process table tell jobs with a lease folder of their own apart."""
    folder = os.environ.get("CARBONTUI_LEASE_DIR")
    return ["--apart", _short_hash(os.fsencode(folder))] if folder else []


def shipped(name: str) -> Path:
    """A file of examples/ or docs/, from the installed package or from the source tree around it.

    Raises FileNotFoundError if neither has it.
    """
    package = Path(__file__).resolve().parent
    for folder in (package, package.parent):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"this installation holds no {name}")
