"""Jobs that wait for one that was unloaded: they wait for its successor instead, which ends the work."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
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


def moved(dependency: str, job: Unloaded, new: str) -> str | None:
    """squeue's `dependency` with `new` for the job; None where it does not wait for it, or cannot be put so."""
    either = "?" in dependency
    told = [part.strip() for part in re.split(r"[,?]", dependency)]
    parts = [re.sub(r"\(\w+\)$", "", part) for part in told if not (either and part.endswith("(failed)"))]
    found, own, more = [], {job.name, *(() if job.array else (job.id,))}, []
    for part in parts:
        kind, _, whom = part.partition(":")
        corresponding = "afterok" if kind == "aftercorr" else kind
        if kind in _TYPES and whom in own:
            found.append(f"{corresponding}:{new}")
            continue
        found.append(part)
        if kind in _TYPES and job.array and whom in (f"{job.array}_*", job.array):
            more.append(f"{corresponding}:{new}")  # the array's other tasks are waited for as before
    if more:  # of an array and the successors of its tasks all are to end well, or any one to fail
        any_of = [one.startswith("afternotok:") for one in more]
        if len(set(any_of)) > 1 or (len(found) > 1 and either != any_of[0]):
            return None
        either = any_of[0]
    changed = [*found, *more]
    return None if changed == parts else ("?" if either else ",").join(changed)


def waiting(job: Unloaded, new: str) -> Iterator[tuple[str, str]]:
    """Each job that waits for this one and not for `new`, and what it would wait for instead; '': Slurm has no words
    for that. Raises SlurmError."""
    ours = re.compile(rf":{re.escape(job.name)}\b(?!_)" + (rf"|:{job.array}_\*" if job.array else ""))
    told = commands.ask("squeue", "-h", "--all", "--states=PENDING", f"--format={_FORM}")
    for name, array, task, user, dependency, title in (r.split("|", 5) for r in told.splitlines() if r.count("|") > 4):
        whole = f"{array}_{job.name.partition('_')[2]}" if "aftercorr" in dependency else array
        name = name if task.isdigit() or task == "N/A" else whole
        if array == new or re.search(rf":{new}(?!\d)", dependency):
            continue
        if dependency.startswith("singleton") and (user, title) == (job.user, job.title):
            yield name, f"singleton,afterany:{new}"
        elif ours.search(dependency):
            if "aftercorr" in dependency and task.isdigit() and not job.name.endswith(f"_{task}"):
                continue
            yield name, moved(dependency, job, new) or ""


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
