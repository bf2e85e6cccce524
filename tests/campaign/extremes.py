"""Every persisted field at values nobody means: a supervisor starts with them, soon and in its right mind.

Fields of the journal's kept state, of its rows, and of the files in the job's directory; a job that has done everything
is laid over what the journal of a short one holds, so that no field is empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from carbontui import line, protocol
from carbontui.job.files import history, launch_file, store
from carbontui.job.files.journal import Journal, read
from carbontui.job.keeper import resume
from carbontui.job.keeper.messages import ChildFacts
from carbontui.job.life import restart
from carbontui.job.supervisor.loop import Supervisor
from carbontui.job.terms import spec
from carbontui.reports import formats, story
from carbontui.system import proc

DEEP = "[" * 100_000 + "]" * 100_000
LEVELS = "[" * 500 + "]" * 500
"""What JSON still reads, and whoever walks it may not."""
RAW = {"@deep": DEEP, "@levels": LEVELS}
"""What stands for text that no Python value is written as."""
VALUES = [
    0,
    -1,
    1e300,
    1e308,
    -1e308,
    1e15,
    2**62,
    10**400,
    float("nan"),
    float("inf"),
    True,
    None,
    "",
    "x",
    "x" * 1_000_000,
    "\ud800\x1b[2J\u202e",
    "9999-12-31T23:59:59Z",
    [],
    {},
    *RAW,
]
RICH: dict[str, Any] = {
    "progress": {
        "steps_total": 100_000,
        "told_total": 100_000,
        "earlier": 5,
        "before": 7,
        "past": ["vm 1 1", "vm 2 2"],
        "guess": [100_000, "tqdm"],
        "capped": {"steps": 30.0, "time_s": 10.0, "wall_s": 10.0},
    },
    "learned": {
        "full_w": {"GPU-a": [300.0, 9], "GPU-b": [310.0, 9]},
        "parked_w": {"GPU-a": [80.0, 9]},
        "idle_w": {"GPU-a": [50.0, 9]},
        **{key: [3.0, 2] for key in ("rest_parked_w", "pause_s", "resume_s", "unload_s", "unload_j", "reload_j")},
    },
    "boards": {"named": ["GPU-a"], "own": ["GPU-a"], "left": {"watts": 300.0, "boards": ["GPU-a"]}},
    "control": {"duty": 0.5, "limit_w": 300.0, "not_before_s": 1.9e9, "still_since_s": 1.9e9},
    "overrides": {
        "current": {"mode": "cap", "value_w": 300.0, "until": "2030-01-01T00:00:00Z", "by": "a"},
        "until_s": 1.9e9,
    },
    "forbidden": [{"start_s": 1.9e9, "end_s": 1.9e9 + 3600, "daily": True, "by": "a@tty"}],
    "allowances": {"given": [["carbon", 500.0], ["energy", 2.0]], "cap_w": 300.0, "asked_s": 1.9e9, "spent": "carbon"},
    "unloading": {
        "by": "a",
        "facts": {"held": True},
        "held": True,
        "save_s": 1.0,
        "save_j": 9.0,
        "saved_b": 9,
        "loss": 1.0,
    },
    "tried": {"text": "20 steps in 3 s", "ended_s": 1.9e9},
    "books": {
        "ledger": {
            "by_how": {"counter": 30.0},
            "gpu_by_how": {"counter": 30.0},
            "by_board": {"GPU-a": 30.0},
            "open": {"GPU-a": [1.9e9, 1.9e9 + 5, 30.0, "counter", "running"]},
        },
        "meter": {"epochs": {"GPU-a": 1}},
    },
}
"""Laid over the kept state of a short job."""
START_S = 3.0
TABLES = ("event", "energy", "steps", "grid", "energy_10min")
FILES = ("job.json", "spec.json", "snapshot.json", "resume.json")
REFUSED = (sqlite3.Error, OverflowError, UnicodeEncodeError)
"""What SQLite says of values that it does not take."""
GIVE_UP_S = 10
"""A start that takes longer is interrupted: it counts, and the campaign goes on."""


@dataclass
class Found:
    """What a campaign of extremes has counted."""

    starts: int = 0
    refused: int = 0
    """Files of the start itself that say in one line why there is none."""
    slowest_s: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every field of a JSON value, itself included."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index in sorted({0, len(value) - 1} if value else ()):  # entries are alike
            yield from places(value[index], (*path, index))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with one field replaced."""
    if not path:
        return new
    made = copy.copy(value)
    made[path[0]] = put(value[path[0]], path[1:], new)
    return made


def kept(directory: Path) -> dict[str, Any]:
    """What the journal of a job holds for a successor."""
    book = Journal(directory / "journal.db")
    with read(directory / "journal.db") as db:
        keys = [row[0] for row in db.execute("select key from state")]
    found = {key: book.recall(key) for key in keys}
    book.close()
    return found


def laid_over(value: Any, more: Any) -> Any:
    """`value` with the fields of `more` in place of its own, mappings field by field."""
    if not (isinstance(value, dict) and isinstance(more, dict)):
        return more
    return value | {key: laid_over(value.get(key), inner) for key, inner in more.items()}


def text(value: Any) -> str:
    """JSON, with the text that RAW stands for."""
    made = json.dumps(value)
    for mark, raw in RAW.items():
        made = made.replace(json.dumps(mark), raw)
    return made


Case = tuple[str, Callable[[Path], None]]
"""A name, and what does it to a job's directory."""


def in_state(good: dict[str, Any]) -> Iterator[Case]:
    """Every field of what a supervisor keeps for its successor."""
    for key, value in good.items():
        for path in places(value):
            for new in VALUES:
                changed = good | {key: put(value, path, new)}
                yield _named(key, path, new), lambda folder, changed=changed: write_state(folder, changed)


def write_state(folder: Path, state: dict[str, Any]) -> None:
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as db, db:
        db.executemany("insert or replace into state values (?,?)", ((k, text(v)) for k, v in state.items()))


def in_rows(folder: Path) -> Iterator[Case]:
    """Every column of the journal's rows, in one row of each table; what SQLite refuses is no case."""
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as db:
        columns = {t: [row[1] for row in db.execute(f"pragma table_info({t})")] for t in TABLES}
    for table, names in columns.items():
        for name in names:
            for new in (*VALUES, b"\xff\x00"):
                if not isinstance(new, list | dict):
                    yield (
                        f"{table}.{name} = {_short(new)}",
                        lambda folder, table=table, name=name, new=new: write_row(folder, table, name, new),
                    )


def write_row(folder: Path, table: str, column: str, new: Any) -> None:
    value = RAW.get(new, new) if isinstance(new, str) else new
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as db, db, contextlib.suppress(*REFUSED):
        last = f"(select max({column}) from {table})"
        db.execute(f"update {table} set {column} = ? where {column} = {last}", (value,))


def in_files(folder: Path) -> Iterator[Case]:
    """Every field of the files in a job's directory."""
    for name in FILES:
        good = json.loads((folder / name).read_text())
        for path in places(good):
            for new in VALUES:
                data = text(put(good, path, new)).encode(errors="surrogatepass")
                yield _named(name, path, new), lambda folder, name=name, data=data: write_file(folder, name, data)
        whole = (folder / name).read_bytes()
        for what, data in (("cut", whole[: len(whole) // 2]), ("no text", whole.replace(b'"', b'"\xff', 4))):
            yield f"{name}: {what}", lambda folder, name=name, data=data: write_file(folder, name, data)


def write_file(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)


def _named(where: str, path: tuple[Any, ...], new: Any) -> str:
    return f"{where}{list(path)} = {_short(new)}"


def _short(new: Any) -> str:
    return f"{new!r:.40}" if not isinstance(new, int) or abs(new) < 10**40 else "10**400"


async def start(one: Supervisor) -> None:
    """Taken over, and three ticks made while a training reports steps."""
    # this very process stands for a training that runs, without a keeper
    one.keeper.facts = ChildFacts("running", pid=os.getpid(), start_time=proc.start_time(os.getpid()))
    one.take_over(one.keeping.read()[1])
    await one.tick()
    await one.server.keep_open()
    _, rank = await asyncio.open_unix_connection(str(one.server.path))
    said = {"v": 1, "version": "0", "role": "rank", "pid": os.getpid(), "start_time": 1, "host": "here", "rank": 0}
    rank.write(json.dumps({"t": "hello", "world": 1, **said}).encode() + b"\n")
    for made in (10, 20):
        rank.write(json.dumps(_steps(made)).encode() + b"\n")
        while not any(peer.obs and peer.obs.step == made for peer in one.server.ranks):
            await asyncio.sleep(0.001)
        await one.tick()
    rank.close()


def _steps(made: int) -> dict[str, Any]:
    return {"t": "obs", "step": made, "state": "running", "want_gen": 0, "rate": 10.0, "total": 10**6, "loss": 1.0}


async def stop(one: Supervisor) -> None:
    one.worker.drop()
    await one.keeping.close(one.read_inputs())
    one.disk.close()
    await one.server.close()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # of streams whose readers are cancelled
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def _give_up(*_: object) -> None:
    raise TimeoutError(f"not done after {GIVE_UP_S} s")


def every_case(directory: Path) -> list[Case]:
    """All of them; the directory is that of a job that is over."""
    good = laid_over(json.loads(json.dumps(kept(directory))), RICH)
    write_state(directory, good)
    (directory / "resume.json").write_text(json.dumps({"step": 12, "not_before": "2030-01-01T00:00:00Z"}))
    return [*in_state(good), *in_rows(directory), *in_files(directory)]


def run(directory: Path, found: Found, seed: int, every: int = 1) -> None:
    """Each case (of `every` seeds in a row each its share), followed by a start and by a look from outside."""
    signal.signal(signal.SIGALRM, _give_up)
    cases = every_case(directory)
    pristine = {path: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    for name, damage in cases[seed % every :: every]:
        for path in [*directory.iterdir()]:
            if path.is_file() and path not in pristine:
                path.unlink()
        for path, data in pristine.items():
            path.write_bytes(data)
        damage(directory)
        signal.alarm(GIVE_UP_S)
        try:
            asyncio.run(_one(directory, name, found))
            signal.alarm(GIVE_UP_S)
            polled(directory)
        except Exception as error:
            found.faults[name] = f"{type(error).__name__}: {error!s:.200}"
        finally:
            signal.alarm(0)


async def _one(directory: Path, name: str, found: Found) -> None:
    begun = time.monotonic()
    try:
        spec.load(directory)
    except ValueError:
        found.refused += 1  # in one line, and the training goes on; nothing is written to it after `run`
        return
    one = Supervisor(spec.load(directory), None)
    try:
        await start(one)
        protocol.encode(one.snapshots.describe(one.door.state, one.read_inputs()))
    finally:
        await stop(one)
    took = time.monotonic() - begun
    found.starts += 1
    found.slowest_s = max(found.slowest_s, took)
    if took > START_S:
        found.faults[name] = f"took {took:.1f} s"
    standing = [fault.parts for fault in one.faults.notices if fault.parts["part"] in ("status", "deciding")]
    if standing:
        found.faults[name] = "; ".join(f"{parts['part']}: {parts['text']}" for parts in standing)


def polled(directory: Path) -> None:
    """What verbs, the keeper and the screen read of the job's files: each says what it cannot read."""
    restart.unloaded(directory)
    resume.not_before(str(directory / "resume.json"))
    launch_file.load(directory)
    job = store.load(directory)
    if job is None:
        return
    status = job.status()
    protocol.encode(protocol.StatusAnswer(1, status))
    line.words(json.loads(msgspec.json.encode(status)))
    with contextlib.suppress(history.HistoryError):
        job.whole_run(120)
    with contextlib.suppress(history.HistoryError):
        history.events(directory / "journal.db", 0.0, 100, plans=True)
    with contextlib.suppress(story.NoStory):
        told = story.build(job, status=status)
        formats.numbers(told)
        formats.html(told)
