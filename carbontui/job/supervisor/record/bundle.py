"""A job's records as one file for a bug report: without the command's output, its environment and keys.

Only words that this package itself uses stay. Each other one, each path and each URL is a token: the same for the same
value, and in the same order, so that decisions on them stay what they were.
"""

import contextlib
import json
import platform
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from carbontui.client import version
from carbontui.job.files import journal, store
from carbontui.job.supervisor.record import events_ring
from carbontui.job.terms import spec
from carbontui.job.terms.records import read_json

RECORDS = ("job.json", "spec.json", "snapshot.json", "exit.json", "places.json")
LOGS = ("orders.log", "carbontui.log")
LOG_MOST_B = 1_000_000
ROWS = 2000
"""The newest of each table of the journal."""
THEIRS = {"argv", "resume_args", "cwd", "dir", "log", "err", "socket", "door"}
"""Keys whose values are tokens as a whole."""
UNIT = re.compile(
    r"""\w[\w+.-]*://[^\s"'<>]+"""  # a URL
    r"""|(?<![\w)])~?/[^\s"'<>,;]*\w"""  # a path
    r"""|[\w.@%+-][\w.@%+/\\:~-]*\w|\w"""
)
TIME = re.compile(r"\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d)?)?")
NUMBER = re.compile(r"[\d_]+[A-Za-z]{0,3}")
WORD = re.compile(r"[^\W_]+")


class Tokens:
    """Every value is noted first, then replaced: the tokens' order is that of the values."""

    def __init__(self, names: set[str]) -> None:
        """`names`: of users and machines, never kept."""
        root = Path(__file__).parents[3]
        files = [*root.rglob("*.py"), *root.rglob("*.csv")]
        used = {word.lower() for file in files for word in WORD.findall(file.read_text(encoding="utf-8"))}
        self._private = {word.lower() for name in names for word in WORD.findall(name)}
        self._used = used - self._private
        self._noted: set[str] = set()
        self._tokens: dict[str, str] = {}
        self.note = cache(self._note)
        self.replace = cache(self._replaced)

    def _kept(self, unit: str) -> bool:
        if unit[0] in "~/" or "://" in unit:
            return False
        words = [word.lower() for word in WORD.findall(unit) if not NUMBER.fullmatch(word)]
        kept = all(word in self._used or (len(word) < 3 and word not in self._private) for word in words)
        return kept or bool(TIME.fullmatch(unit))

    def _note(self, text: str, whole: bool = False) -> str:
        self._noted |= {text} if whole else {unit for unit in UNIT.findall(text) if not self._kept(unit)}
        return text

    def _replaced(self, text: str, whole: bool = False) -> str:
        if not self._tokens:
            self._tokens = {unit: f"x{number:05}" for number, unit in enumerate(sorted(self._noted))}
        return self._tokens[text] if whole else UNIT.sub(self._token, text)

    def _token(self, unit: re.Match[str]) -> str:
        return unit[0] if self._kept(unit[0]) else self._tokens[unit[0]]


def walked(value: Any, change: Callable[[str, bool], str], whole: bool = False) -> Any:
    """The value with every text in it changed."""
    if isinstance(value, str):
        return change(value, whole)
    if isinstance(value, dict):
        return {walked(key, change): walked(inner, change, whole or key in THEIRS) for key, inner in value.items()}
    return [walked(inner, change, whole) for inner in value] if isinstance(value, list) else value


def records(job: store.Job) -> Iterator[tuple[str, Any]]:
    """Each record by its name in the bundle: values, or text."""
    yield "versions.json", {"carbontui": version.full(), "python": platform.python_version()}
    for name in RECORDS:
        if (record := read_json(job.dir / name)) is not None:
            yield name, record
    for name in LOGS:
        with contextlib.suppress(OSError):
            lines = (job.dir / name).read_bytes()[-LOG_MOST_B:].decode(errors="replace").splitlines()
            yield name, [_parsed(line) for line in lines]
    with contextlib.suppress(OSError, sqlite3.Error), journal.read(job.dir / "journal.db") as db:
        for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
            rows = db.execute(f"select * from {table} order by 1 desc limit {ROWS}").fetchall()
            yield f"journal/{table}.json", [[_parsed(one) for one in row] for row in rows]


def _parsed(text: Any) -> Any:
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        return json.loads(text) if text[:1] in "[{" else text
    return text


def write(job: store.Job, path: Path) -> None:
    """Raises OSError."""
    names = {job.owner, job.host}
    with contextlib.suppress(OSError, ValueError):
        names.add(spec.load(job.dir).by.partition("@")[0])
    tokens, found = Tokens(names), list(records(job))
    segments = sorted((job.dir / events_ring.FOLDER).glob("*.z"))
    for value in (*(one for _, one in found), *(one for each in segments for one in events_ring.read(each))):
        walked(value, tokens.note)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, value in found:
            bundle.writestr(name, json.dumps(walked(value, tokens.replace), indent=1))
        for each in segments:
            frames = (events_ring.pack(walked(one, tokens.replace)) for one in events_ring.read(each))
            bundle.writestr(f"{events_ring.FOLDER}/{each.stem}", b"".join(map(events_ring.framed, frames)))
