"""Jobs that wait for one that was unloaded: they wait for its successor instead, which ends the work."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from carbontui.slurm import commands

_FORM = "%i|%F|%K|%u|%E|%j"
_TYPES = frozenset({"afterany", "afterok", "afternotok", "aftercorr"})
"""`after` waits for a start alone, which has been."""


class Unloaded(NamedTuple):
    """The job that ends: its name (12, 12_3) and id, the array it is a task of ('': none), its owner and its own name
    (`--job-name`)."""

    name: str
    id: str
    array: str
    user: str
    title: str


def moved(dependency: str, job: Unloaded, new: str, tasks: Sequence[str] = ()) -> str | None:
    """squeue's `dependency` with `new` for the job; None where it does not wait for it, or cannot be put so. `tasks`:
    the others of its array that have not ended well. Its own life ends as cancelled, so that the array as a whole is
    waited for no more, unless for any end."""
    either = "?" in dependency
    told = [part.strip() for part in re.split(r"[,?]", dependency)]
    parts = [re.sub(r"\(\w+\)$", "", part) for part in told if not (either and part.endswith("(failed)"))]
    found, own = [], {job.name, *(() if job.array else (job.id,))}
    for part in parts:
        kind, _, whom = part.partition(":")
        corresponding = "afterok" if kind == "aftercorr" else kind
        if kind in _TYPES and whom in own:
            found.append(f"{corresponding}:{new}")
        elif kind in _TYPES and job.array and whom in (f"{job.array}_*", job.array):
            if kind == "afternotok":  # any one of them is to fail
                if len(parts) > 1 and not either:
                    return None
                either = True
            elif kind != "aftercorr" and either and len(parts) > 1:
                return None  # all of them, or something else
            rest = {"afterany": [whom], "aftercorr": []}.get(kind, tasks)
            found += [f"{kind}:{task}" for task in rest] + [f"{corresponding}:{new}"]
        else:
            found.append(part)
    return None if found == parts else ("?" if either else ",").join(found)


def waiting(job: Unloaded, new: str) -> Iterator[tuple[str, str]]:
    """Each job that waits for this one and not for `new`, and what it would wait for instead; '': Slurm has no words
    for that. Raises SlurmError."""
    whole = f":{job.array}_*"
    ours = re.compile(rf":{re.escape(job.name)}\b(?!_)" + (f"|{re.escape(whole)}" if job.array else ""))
    told = commands.ask("squeue", "-h", "--all", "--states=PENDING", f"--format={_FORM}")
    tasks = _tasks(job) if job.array and whole in told else []
    for name, array, task, user, dependency, title in (r.split("|", 5) for r in told.splitlines() if r.count("|") > 4):
        each = f"{array}_{job.name.partition('_')[2]}" if "aftercorr" in dependency else array
        name = name if task.isdigit() or task == "N/A" else each
        if array == new or re.search(rf":{new}(?!\d)", dependency):
            continue
        if dependency.startswith("singleton") and (user, title) == (job.user, job.title):
            yield name, f"singleton,afterany:{new}"
        elif ours.search(dependency):
            if "aftercorr" in dependency and task.isdigit() and not job.name.endswith(f"_{task}"):
                continue
            yield name, moved(dependency, job, new, tasks) or ""


def _tasks(job: Unloaded) -> list[str]:
    """The other tasks of its array, but those that have ended well. Raises SlurmError."""
    told = commands.ask("squeue", "-h", "--array", "--all", "--states=all", f"--jobs={job.array}", "--format=%i %T")
    return [name for name, state in map(str.split, told.splitlines()) if name != job.name and state != "COMPLETED"]


LOOKS, SETTLE_S = 8, (0.4, 1.0)
"""How often they are looked at, and the pause between two looks, random: another task of the same array may have read
what this one was changing, and write it back."""


def follow(job: Unloaded, new: str) -> list[str]:
    """Have them wait for `new`; the names of those that still wait for the unloaded job alone. Raises SlurmError."""
    settled, asked = True, dict(waiting(job, new))
    for _ in range(LOOKS):
        if settled and not asked:
            return []
        settled = not asked
        if orders := [f"update JobId={name} Dependency={put}" for name, put in asked.items() if put]:
            commands.orders(orders)
        elif asked:
            break
        time.sleep(random.uniform(*SETTLE_S))
        asked = dict(waiting(job, new))
    return list(asked)
