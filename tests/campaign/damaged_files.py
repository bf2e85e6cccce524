"""Every looking verb on a job's folder of which one file is damaged: it works, or says in one line which file it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]
from house import House

FILES = ("job.json", "spec.json", "journal.db", "snapshot.json", "exit.json", "run.log", "carbontui.log")
"""Of a job that is over."""
VERBS = (
    *(("ls", "--all"), ("status", "JOB"), ("status", "JOB", "--json"), ("log", "JOB"), ("log", "JOB", "--json")),
    *(("report", "JOB"), ("report", "JOB", "--json"), ("explain", "JOB"), ("history",)),
    *(("compare",), ("plan", "JOB"), ("line",), ("site",), ("doctor",)),
)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": _truncated,
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(os.urandom(4096)),
    "wrong types": lambda path: path.write_text(
        '{"id": 7, "name": [], "host": {}, "pids": "x", "code": "y", "v": null}'
    ),
    "huge": lambda path: os.truncate(path, 1 << (24 if path.suffix == ".log" else 31)),  # a log is printed as it is
    "a directory": _directory,
    "unreadable": lambda path: path.chmod(0),
    "missing": lambda path: path.unlink(),
}


@dataclass
class Found:
    """Runs by outcome; `wrong` are those that end badly without a line that names the file."""

    runs: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def _said(house: House, job: str, verb: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return house.cli(*(job if word == "JOB" else word for word in verb), timeout=120, errors="replace")


def run(house: House, job: str, damages: Iterable[str], files: Iterable[str], found: Found) -> None:
    """`job` is over; its folder is put back after each damage."""
    folder = house.home / "jobs" / job
    sound = {verb: _said(house, job, verb).returncode for verb in VERBS}  # `plan` refuses a job that is over
    kept = Path(tempfile.mkdtemp(dir=house.root)) / "kept"
    shutil.copytree(folder, kept, symlinks=True)
    for name in files:
        for damage in damages:
            DAMAGES[damage](folder / name)
            for verb in VERBS:
                said = _said(house, job, verb)
                found.runs += 1
                lines = said.stderr.strip().splitlines()
                if "Traceback" in said.stderr + said.stdout:
                    found.wrong.append(f"{name} {damage}: {' '.join(verb)}: {lines[-1]}")
                elif said.returncode and said.returncode != sound[verb]:
                    found.refused += 1
                    if not any(name in line for line in lines) or len(lines) > 3:
                        found.wrong.append(f"{name} {damage}: {' '.join(verb)}: exit {said.returncode}: {lines}")
            shutil.rmtree(folder)
            shutil.copytree(kept, folder, symlinks=True)


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)
    house, found = House(Path(tempfile.mkdtemp(prefix="damaged-")), None), Found()
    try:
        job = house.start("--intensity", "300", steps=50)
        job.until_over()
        some = [name for name in sys.argv[1:] if name in DAMAGES] or DAMAGES
        run(house, job.id, some, [name for name in sys.argv[1:] if name in FILES] or FILES, found)
    finally:
        house.end()
    print(f"{found.runs} runs, {found.refused} refused, {len(found.wrong)} wrong")
    print(*found.wrong, sep="\n")


if __name__ == "__main__":
    main()
