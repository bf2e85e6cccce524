"""Limits and environments that are against us: the training has its own way and its own exit code in each."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from house import House, Job

STEPS = 150
AT_ONCE = 2
BROKEN = "raise RuntimeError('not for carbontui')\n"
MODULES = ("click", "httpx", "msgspec", "numpy", "rich", "json", "socket", "asyncio")


def limited(**limits: int) -> Callable[[], None]:
    """What a shell's ulimit sets, soft alone where a hard one could not be lifted again."""

    def set_them() -> None:
        for name, most in limits.items():
            kind = getattr(resource, f"RLIMIT_{name}")
            resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))

    return set_them


def hard(**limits: int) -> Callable[[], None]:
    def set_them() -> None:
        for name, most in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))

    return set_them


LIMITS: dict[str, Callable[[], None]] = {
    "12 descriptors": limited(NOFILE=12),
    "hard: 40 descriptors": hard(NOFILE=40),
    "files of 100 kB": limited(FSIZE=100_000),
    "hard: files of 1 MB": hard(FSIZE=1_000_000),
    "400 MB of address space": limited(AS=400 << 20),
    "hard: 700 MB of address space": hard(AS=700 << 20),
    "a stack of 512 kB": limited(STACK=512 << 10),
    "60 s of CPU": limited(CPU=60),
    "no core, no locked memory": hard(CORE=0, MEMLOCK=0),
    "umask 777": lambda: os.umask(0o777) and None,
    "umask 0": lambda: os.umask(0) and None,
    "nice 19": lambda: os.nice(19) and None,
}
ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "LANG=C": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "a locale that is not there": {"LC_ALL": "xx_YY.koi8-r"},
    "TZ of nowhere": {"TZ": "Nowhere/At_All"},
    "TZ 25 hours away": {"TZ": "XXX-24:59:59"},
    "no HOME": {"HOME": None},
    "HOME of nobody": {"HOME": "/nonexistent"},
    "no PATH": {"PATH": None},
    "TMPDIR of nowhere": {"TMPDIR": "/nonexistent"},
    "PYTHONOPTIMIZE": {"PYTHONOPTIMIZE": "2"},
    "PYTHONWARNINGS=error": {"PYTHONWARNINGS": "error"},
    "PYTHONSAFEPATH": {"PYTHONSAFEPATH": "1"},
    "PYTHONDEVMODE": {"PYTHONDEVMODE": "1"},
    "PYTHONIOENCODING": {"PYTHONIOENCODING": "ascii:strict"},
    "TERM of nothing": {"TERM": "", "COLUMNS": "x", "LINES": "-1"},
    "proxies of nowhere": {"HTTPS_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "socks9://x"},
    "SSL_CERT_FILE of nowhere": {"SSL_CERT_FILE": "/nonexistent"},
    "CARBONTUI_JOB of another": {"CARBONTUI_JOB": "zzzzzz"},
    "odd bytes": {"ODD": os.fsdecode(b"\xff\xfe"), "BASH_FUNC_x%%": "() { :; }"},
    "a variable of 100 kB": {"LARGE": "x" * 100_000},
    "RANK of nonsense": {"RANK": "minus one", "WORLD_SIZE": "1e9"},
}


@dataclass
class Found:
    """What the surroundings have done."""

    tried: int = 0
    faults: list[str] = field(default_factory=list)


def run(found: Found, every: int = 1) -> None:
    """A short job under each of them (every n-th)."""
    cases: list[tuple[str, Callable[[], None] | None, dict[str, str | None]]] = [
        *((name, limit, {}) for name, limit in LIMITS.items()),
        *((name, None, variables) for name, variables in ENVIRONMENTS.items()),
        ("broken modules on PYTHONPATH and in the folder", None, {"PYTHONPATH": "modules"}),
    ]
    with ThreadPoolExecutor(AT_ONCE) as some:
        for name, why in some.map(lambda case: (case[0], _one(*case)), cases[::every]):
            found.tried += 1
            if why:
                found.faults.append(f"{name}: {why}")


def _one(name: str, limit: Callable[[], None] | None, variables: dict[str, str | None]) -> str:
    root, runtime = Path(tempfile.mkdtemp(prefix="ctc-")), Path(tempfile.mkdtemp(prefix="ct-"))
    house = House(root, runtime)
    for variable, value in variables.items():
        if value is None:
            house.env.pop(variable, None)
        else:
            house.env[variable] = value
    if "PYTHONPATH" in variables:
        modules = root / "modules"
        modules.mkdir()
        for module in MODULES:
            for folder in (modules, root):
                (folder / f"{module}.py").write_text(BROKEN)
        house.env["PYTHONPATH"] = str(modules)
        for module in ("json", "socket", "asyncio"):  # the training's own client needs these
            (modules / f"{module}.py").unlink()
            (root / f"{module}.py").unlink()
    marks = root / "t.steps"
    command = [sys.executable, house.script, STEPS, 0.01, 7, marks]
    try:
        done = house.cli("run", "--detach", "--name", "t", "--", *command, preexec_fn=limit)
        if done.returncode:
            return f"run: exit {done.returncode}: {done.stderr.strip()[-200:]}"
        job = Job(house, done.stdout.strip(), marks)
        record = job.until_exit(60)
        job.until_over(40)
        status = job.status()
        seen = (record["code"], job.steps(), status["step"], status["state"])
        return "" if seen == (7, STEPS, STEPS, "failed") else f"(exit, steps, told, state) = {seen}"
    except AssertionError as error:
        return str(error)
    finally:
        house.end()
        for folder in (root, runtime):
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)
