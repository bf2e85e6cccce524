"""Separates our own processes from the training: environment, limits and umask. Standard library only.

Settings for the training (PYTHONPATH by `module load`, ulimits, a locale, PYTHONWARNINGS=error) must not break keeper,
supervisor, worker or agent; and our settings for those must not reach the training.
"""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from types import TracebackType
from typing import Any

from carbontui import early

ROOT = os.path.abspath(__file__).rsplit(os.sep, 3)[0]  # noqa: PTH100 - the keeper has no pathlib
"""The folder that this carbontui was imported from; not resolved, since an upgrade may swap what a link points to."""
OF_THE_INSTALLATION = frozenset(
    {"PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONPLATLIBDIR", "PYTHONDONTWRITEBYTECODE"}
    | {"PYTHONPYCACHEPREFIX"}
)
"""Python variables that locate the interpreter and its packages, valid for us as well as for the user."""
NEEDED = (
    *("click", "httpx", "jinja2", "markupsafe", "msgspec", "numpy", "platformdirs", "pynvml", "rich", "stamina"),
    "textual",
)
"""What carbontui imports; `pip install --target` may have put it into another folder than carbontui."""
AMDSMI = "CARBONTUI_AMDSMI"
"""The folder of the user's PYTHONPATH that has amdsmi, where it is nowhere else: searched for it alone, and last."""
FIRST_TO_GO = 1000
"""oom_score_adj of all our processes except the keeper: out of memory, they die before a training of any size."""
TOO_FEW = "no more processes or threads may be started here; raise `ulimit -u`, or the container's limit of pids"
DESCRIPTORS = 4096
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""For processes with numpy, whose pools of threads would compete with the training for cores."""
LIMITS = tuple(name for name in dir(resource) if name.startswith("RLIMIT_"))


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of our own processes: `base` without what would change how their Python behaves."""
    ours = {name: value for name, value in base.items() if not name.startswith("PYTHON") or name in OF_THE_INSTALLATION}
    if found := _ours(base.get("PYTHONPATH", "")):
        ours["PYTHONPATH"] = os.pathsep.join(found)
    if apart := _apart("amdsmi", base.get("PYTHONPATH", "")):
        ours[AMDSMI] = apart
    # paths and names may be bytes of any encoding, regardless of the locale; the working directory is not searched
    return ours | {"PYTHONUTF8": "1", "PYTHONSAFEPATH": "1"}


def forget_pythonpath() -> None:
    """From now on import nothing from the working directory in this process, and from the user's PYTHONPATH only what
    carbontui needs and has nowhere else."""
    given = os.environ.get("PYTHONPATH", "")
    theirs = {*_entries(given), early.cwd()}.difference((ROOT, *_ours(given)))
    sys.path[:] = [entry for entry in sys.path if entry and os.path.abspath(entry) not in theirs]  # noqa: PTH100


def _ours(path: str) -> list[str]:
    """The folders of a PYTHONPATH that this carbontui was imported from, or has what it needs from alone."""
    entries = _entries(path)
    others = [entry for entry in sys.path if (entry and os.path.abspath(entry) not in entries) or entry == ROOT]  # noqa: PTH100
    missing = [name for name in NEEDED if entries and PathFinder.find_spec(name, others) is None]
    return [entry for entry in entries if entry == ROOT or any(PathFinder.find_spec(name, [entry]) for name in missing)]


def _apart(name: str, path: str) -> str:
    """The first folder of this PYTHONPATH with a package that is nowhere else; '' without one."""
    entries = _entries(path)
    if not entries or PathFinder.find_spec(name, [entry for entry in sys.path if entry not in entries]) is not None:
        return ""
    return next((entry for entry in entries if PathFinder.find_spec(name, [entry]) is not None), "")


def _entries(path: str) -> list[str]:
    return [os.path.abspath(entry) for entry in path.split(os.pathsep) if entry]  # noqa: PTH100


def launch_env() -> dict[str, Any]:
    """What a child of this process would inherit besides its environment: umask, limits, oom_score_adj, and of signals
    what this process was started with. JSON-able."""
    mask = os.umask(0o077)
    os.umask(mask)
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS}
    signals = {"ignored": early.ignored(), "blocked": [*early.BLOCKED]}
    return {"umask": mask, "limits": limits, "oom_score_adj": _oom_score_adj(), **signals}


def give(data: Mapping[str, Any]) -> None:
    """Apply what `launch_env` recorded, as far as permitted; between fork and exec of the training."""
    with contextlib.suppress(Exception):
        os.umask(int(data["umask"]))
    for name, (soft, hard) in data.get("limits", {}).items():
        with contextlib.suppress(Exception):
            resource.setrlimit(getattr(resource, name), (soft, hard))
    keep_oom_score(data)
    with contextlib.suppress(Exception):
        for number in data["ignored"]:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, data["blocked"])


def relax() -> None:
    """Raise this process's own limits as far as permitted: the training's are not meant for us. No core files."""
    os.umask(0o077)
    for name in LIMITS:
        kind = getattr(resource, name)
        with contextlib.suppress(ValueError, OSError):
            soft, hard = resource.getrlimit(kind)
            if name == "RLIMIT_CORE":
                soft = 0
            elif name == "RLIMIT_NOFILE":
                least = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
                soft = soft if soft == resource.RLIM_INFINITY else max(soft, least)
            elif name != "RLIMIT_STACK":  # it sets the stack size of threads
                soft = hard
            resource.setrlimit(kind, (soft, hard))


def first_to_go() -> None:
    """Make this process (and all it starts) the OOM killer's first victim."""
    with contextlib.suppress(OSError):
        _set_oom_score_adj(FIRST_TO_GO)


def tell_what_lacks(who: str) -> None:
    """From now on an end of this process for want of threads or memory is one line of its log."""

    def report_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        lacks = "out of memory" if kind is MemoryError else TOO_FEW if "start new thread" in str(error) else ""
        if lacks:
            os.write(2, f"{who}: {lacks}\n".encode())
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = report_error


def keep_oom_score(data: Mapping[str, Any]) -> None:
    """Restore the user's own oom_score_adj: for the keeper, also one started by a supervisor."""
    with contextlib.suppress(Exception):
        _set_oom_score_adj(int(data["oom_score_adj"]))


def _oom_score_adj() -> int:
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj") as file:  # noqa: PTH123
        return int(file.read())
    return 0


def _set_oom_score_adj(value: int) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write(str(value))
