"""Every persisted field at values nobody means: a supervisor starts with them, soon and in its right mind."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carbontui import proc, protocol
from carbontui.job import spec
from carbontui.job.journal import Journal
from carbontui.job.keeper.messages import ChildFacts
from carbontui.job.supervisor.loop import Supervisor

VALUES = [
    0,
    -1,
    1e308,
    -1e308,
    1e15,
    2**62,
    float("nan"),
    float("inf"),
    True,
    None,
    "",
    "x",
    "9999-12-31T23:59:59Z",
    [],
    {},
]
START_S = 3.0
GIVE_UP_S = 10
"""A start that takes longer is interrupted: it counts, and the campaign goes on."""


@dataclass
class Found:
    """What a campaign of extremes has counted."""

    starts: int = 0
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
    keys = [row[0] for row in book._select("select key from state")]
    found = {key: book.recall(key) for key in keys}
    book.close()
    return found


async def start(directory: Path, state: dict[str, Any]) -> Supervisor:
    """A supervisor on a journal that holds `state`: taken over, and three ticks made while a training reports steps."""
    book = Journal(directory / "journal.db")
    for key, value in state.items():
        book.keep(key, value)
    book.commit()
    book.close()
    one = Supervisor(spec.load(directory), None)
    # this very process stands for a training that runs, without a keeper
    one.keeper.facts = ChildFacts("running", pid=os.getpid(), start_time=proc.start_time(os.getpid()))
    one.restore()
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
    return one


def _steps(made: int) -> dict[str, Any]:
    return {"t": "obs", "step": made, "state": "running", "want_gen": 0, "rate": 10.0, "total": 10**6, "loss": 1.0}


async def stop(one: Supervisor) -> None:
    one.worker.drop()
    one.history.close()
    one.journal.close()
    await one.server.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def _give_up(*_: object) -> None:
    raise TimeoutError(f"not done after {GIVE_UP_S} s")


def run(directory: Path, found: Found, every: int = 1) -> None:
    """Each field of each kept value (every n-th of them), at each of the extremes, followed by a start."""
    signal.signal(signal.SIGALRM, _give_up)
    good = json.loads(json.dumps(kept(directory)))
    cases = [(key, path, new) for key, value in good.items() for path in places(value) for new in VALUES]
    for key, path, new in cases[::every]:
        signal.alarm(GIVE_UP_S)
        asyncio.run(_one(directory, good, key, path, new, found))
        signal.alarm(0)


async def _one(directory: Path, good: dict[str, Any], key: str, path: tuple[Any, ...], new: Any, found: Found) -> None:
    begun = time.monotonic()
    name = f"{key}{list(path)} = {new!r}"
    try:
        one = await start(directory, good | {key: put(good[key], path, new)})
        protocol.encode(one.snapshots.describe(one.cell.state, one.look()))
    except Exception as error:
        found.faults[name] = f"{type(error).__name__}: {error}"
        return
    took = time.monotonic() - begun
    found.starts += 1
    found.slowest_s = max(found.slowest_s, took)
    if took > START_S:
        found.faults[name] = f"took {took:.1f} s"
    standing = [line for line in one.faults.notices if "the status" in line or "deciding" in line]
    if standing:
        found.faults[name] = "; ".join(standing)
    await stop(one)
