"""The receipt of a grid event: what was asked, what the boards of all jobs drew, by the rows of their journals."""

import contextlib
import hashlib
import itertools
import json
import math
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from carbontui import units
from carbontui.account.boundary import IDLE
from carbontui.account.elapsed import as_booked
from carbontui.extensions.site.events import GridEvent
from carbontui.job.files import journal, store
from carbontui.job.terms import spec
from carbontui.reports.figures import DEVICE_WORDS
from carbontui.text import figures

MINUTE_S = 60.0
KNOWN = 0.9
"""Headroom of a span's board seconds that must have been metered for its watts to be known."""
REACHED = 1.02
"""Reached: the watts are no more than this multiple of what remains."""
SPLIT = "split"
"""How the job's part of a shared board is booked."""
BEFORE_S = 900.0
"""The speed before an event is that of these seconds."""


class JoulesRow(NamedTuple):
    t0: float
    t1: float
    device: str
    joules: float
    how: str
    state: str


@dataclass(frozen=True)
class JobRows:
    """A job's journal over a span: its boards' rows, its steps, and when it held its boards."""

    job: str
    name: str
    energy: tuple[JoulesRow, ...]
    steps: tuple[tuple[float, int], ...]
    present: tuple[tuple[float, float], ...]

    @property
    def boards(self) -> int:
        return len({row.device for row in self.energy})

    def joules(self, begin_s: float, end_s: float) -> float:
        return math.fsum(
            row.joules * (min(row.t1, end_s) - max(row.t0, begin_s)) / (row.t1 - row.t0)
            for row in self.energy
            if row.t0 < end_s and row.t1 > begin_s
        )

    def metered_s(self, begin_s: float, end_s: float) -> float:
        return math.fsum(max(0.0, min(row.t1, end_s) - max(row.t0, begin_s)) for row in self.energy)

    def present_s(self, begin_s: float, end_s: float) -> float:
        return math.fsum(max(0.0, min(b, end_s) - max(a, begin_s)) for a, b in self.present)


def rows_of(jobs: Iterable[store.Job], begin_s: float, end_s: float, unread: list[str] | None = None) -> list[JobRows]:
    """What the journals of this machine's jobs have of a span; of simulated, declared and replayed boards nothing.
    Jobs whose journals were written since it began and cannot be read are added to `unread`."""
    found = []
    for job in sorted(jobs, key=lambda one: one.id):
        if job.foreign or job.started_s >= end_s:
            continue
        try:
            options = spec.load(job.dir)
            if options.simulated or options.declared or options.replay:
                continue
            with journal.read(job.dir / "journal.db") as db:
                read = _read(db, job, begin_s, end_s)
        except (OSError, ValueError, TypeError, sqlite3.DatabaseError):
            with contextlib.suppress(OSError):
                if unread is not None and (job.dir / "journal.db").stat().st_mtime >= begin_s:
                    unread.append(job.id)
            continue
        if read.energy:
            found.append(read)
    return counted_once(found)


def counted_once(jobs: Sequence[JobRows]) -> list[JobRows]:
    """A board that several jobs have booked whole at the same time, because its processes could not be told apart,
    counts with the first of them."""
    taken: dict[str, list[tuple[float, float]]] = {}
    found = []
    for job in jobs:
        rows = [row if row.how == SPLIT else _less(row, taken.get(row.device, ())) for row in job.energy]
        for row in rows:
            if row.how != SPLIT:
                taken.setdefault(row.device, []).append((row.t0, row.t1))
        taken = {device: sorted(spans) for device, spans in taken.items()}
        found.append(replace(job, energy=tuple(rows)))
    return found


def _less(row: JoulesRow, taken: Sequence[tuple[float, float]]) -> JoulesRow:
    near = taken[max(0, bisect_left(taken, (row.t0, 0.0)) - 1) :]
    both = itertools.takewhile(lambda span: span[0] < row.t1, near)
    shared_s = math.fsum(max(0.0, min(row.t1, end) - max(row.t0, begin)) for begin, end in both)
    return row._replace(joules=row.joules * max(0.0, 1.0 - shared_s / (row.t1 - row.t0)))


def _read(db: sqlite3.Connection, job: store.Job, begin_s: float, end_s: float) -> JobRows:
    energy = db.execute(
        f"select t0, t1, device, joules, how, state from energy where {journal.ENERGY_SOUND}"
        " and t0 < ? and t1 > ? and t1 > t0 order by rowid",
        (end_s, begin_s),
    )
    steps = db.execute("select at, step from steps where at between ? and ? order by rowid", (begin_s, end_s))
    boards = tuple(
        JoulesRow(*row) for row in energy if row[2].partition("@")[0] not in DEVICE_WORDS and row[2][:5] != f"{IDLE}@"
    )
    return JobRows(job.id, job.name, boards, tuple((row[0], row[1]) for row in steps), tuple(_present(db, end_s)))


def _present(db: sqlite3.Connection, end_s: float) -> Iterator[tuple[float, float]]:
    since: float | None = None
    for at, text in db.execute("select at, data from event where kind = 'state' and at < ? order by rowid", (end_s,)):
        state = str(json.loads(text).get("state"))
        holds = state in ("running", "throttled", "pausing", "paused")
        if since is not None and not holds:
            yield since, at
        since = None if not holds else at if since is None else since
    if since is not None:
        yield since, end_s


def mean_w(jobs: Sequence[JobRows], begin_s: float, end_s: float) -> float | None:
    """Mean watts of all jobs' boards; None where too little of one was metered."""
    for job in jobs:
        if job.metered_s(begin_s, end_s) < KNOWN * job.boards * job.present_s(begin_s, end_s):
            return None
    return math.fsum(job.joules(begin_s, end_s) for job in jobs) / (end_s - begin_s)


def receipt(event: GridEvent, jobs: Sequence[store.Job], now_s: float) -> dict[str, Any]:
    """Of an event that has begun, up to now: as `site --receipt --json` prints it."""
    end_s = min(event.end_s, now_s)
    unread: list[str] = []
    found = rows_of(jobs, event.start_s - BEFORE_S, end_s, unread)
    unread += sorted(set(event.jobs) - {job.job for job in found} - set(unread))
    found = [job for job in found if any(row.t1 > event.start_s for row in job.energy)]
    base, most = event.baseline_w, event.most_w
    minutes: list[dict[str, Any]] = []
    at = event.start_s
    while at < end_s:
        until = min(at + MINUTE_S, end_s)
        drawn = mean_w(found, at, until)
        short = None if drawn is None or base is None or unread else round(base - drawn, 1)
        minutes.append({"start": units.iso(at), "duration_s": round(until - at, 3), "w": short})
        at = until
    known = [(one["w"], one["duration_s"]) for one in minutes if one["w"] is not None]
    return {
        "id": event.id,
        "state": event.state(now_s),
        "start": units.iso(event.start_s),
        "end": units.iso(event.end_s),
        "baseline_w": base,
        "baseline_method": event.baseline_method or None,
        "asked_w": event.asked_w,
        "delivered_wh": round(math.fsum(w * s for w, s in known) / 3600.0, 3) if known else None,
        "unmetered_s": round(math.fsum(m["duration_s"] for m in minutes if m["w"] is None), 3),
        "delivered": minutes,
        "unread": unread,
        "reached_s": None if unread else _reached_s(found, event, most, end_s),
        "steps_lost": sum(_lost(job, event.start_s) for job in found),
        "jobs": [_cost(job, event, end_s) for job in found],
        "sha256": _hash(found),
    }


def _reached_s(jobs: Sequence[JobRows], event: GridEvent, most_w: float | None, end_s: float) -> float | None:
    """From the start to the end of the first second in which no more was drawn than remains; None: never."""
    second = 0
    while most_w is not None and event.start_s + second + 1 <= end_s:
        begin_s = event.start_s + second
        drawn = mean_w(jobs, begin_s, begin_s + 1.0)
        if drawn is not None and drawn <= REACHED * most_w:
            return second + 1.0
        second += 1
    return None


def _lost(job: JobRows, since_s: float) -> int:
    """Steps that were made again since then."""
    lost, best = 0, 0
    for at_s, step in job.steps:
        lost += max(0, best - step) if at_s >= since_s else 0
        best = step
    return lost


def _cost(job: JobRows, event: GridEvent, end_s: float) -> dict[str, Any]:
    """`delay_s`: how much sooner the same steps would have been made at the speed before; null where not known."""
    inside = [row for row in job.energy if row.t1 > event.start_s and row.t0 < end_s]

    def spent(state: str) -> float:
        booked = as_booked(state, "event")
        seconds = (min(row.t1, end_s) - max(row.t0, event.start_s) for row in inside if row.state == booked)
        return round(math.fsum(seconds) / max(1, job.boards), 3)

    before = [one for one in job.steps if one[0] <= event.start_s]
    during = [one for one in job.steps if one[0] >= event.start_s]
    done = during[-1][1] - during[0][1] if during else 0
    delay_s = None
    if len(before) > 1 and during and before[-1][0] - before[0][0] >= 5.0 and before[-1][1] > before[0][1]:
        rate = (before[-1][1] - before[0][1]) / (before[-1][0] - before[0][0])
        delay_s = round(max(0.0, during[-1][0] - during[0][0] - done / rate), 3)
    return {
        "job": job.job,
        "name": job.name,
        "energy_wh": round(job.joules(event.start_s, end_s) / 3600.0, 3),
        "capped_s": spent("throttled"),
        "held_s": spent("paused"),
        "steps": done,
        "steps_lost": _lost(job, event.start_s),
        "delay_s": delay_s,
    }


def _hash(jobs: Sequence[JobRows]) -> str:
    """Of each job's rows in the order of the journal, a line of JSON each: its id, then the columns."""
    rows = ([job.job, *row] for job in jobs for row in (*job.energy, *job.steps))
    return hashlib.sha256("".join(f"{json.dumps(row)}\n" for row in rows).encode()).hexdigest()


def event(
    asked: GridEvent, can_shed_w: float | None, expected_w: float, tight: Sequence[str], now_s: float
) -> list[str]:
    """What is asked and what of it can be had; `tight`: jobs whose deadlines leave no more."""
    watts = asked.asked_w
    if watts is None and asked.target_w is not None:
        watts = max(0.0, expected_w - asked.target_w)
    span = f"{figures.named_clock(asked.start_s, now_s)} to {figures.named_clock(asked.end_s, now_s)}"
    state = {"pending": "to come", "active": "in force"}.get(asked.state(now_s), "ending")
    what = [] if asked.target_w is None else [f"{figures.watts(asked.target_w)} at most by all GPUs"]
    if not what or can_shed_w is not None:
        what.append(f"{figures.watts(watts)} fewer")
    lines = [f"grid event {asked.id}, {state}: {', '.join(what)}, {span}"]
    if can_shed_w is None:
        lines.append("  no job here has said yet what it can leave")
    elif watts is not None and can_shed_w < watts - 1.0:
        who = f": {', '.join(map(units.printable, tight))} would miss a deadline" if tight else ""
        who = who or ": GPUs at rest or at their lowest limit draw the rest"
        lines.append(f"  only {figures.watts(can_shed_w)} of it can be shed{who}")
    else:
        lines.append(f"  all of it can be shed, of {figures.watts(can_shed_w)} at most")
    return lines


def receipt_lines(facts: Mapping[str, Any]) -> list[str]:
    base, asked = facts["baseline_w"], facts["asked_w"]
    lines = [f"grid event {facts['id']}, {facts['state']}: {facts['start']} to {facts['end']}"]
    if base is None or asked is None:
        return [*lines, "  no job was there to ask"]
    lines.append(f"  asked      {figures.watts(asked)} fewer than {figures.watts(base)} ({facts['baseline_method']})")
    known_s = sum(one["duration_s"] for one in facts["delivered"] if one["w"] is not None)
    if known_s and facts["delivered_wh"] is not None:
        mean = figures.watts(facts["delivered_wh"] * 3600.0 / known_s)
        lines.append(f"  delivered  {mean} on average, {figures.kwh(facts['delivered_wh'] / 1000.0)} in all")
    if facts["unmetered_s"]:
        lines.append(f"  not known  {figures.duration(facts['unmetered_s'])}, nobody metered all GPUs")
    if facts["unread"]:
        lines.append(f"  not known  the journals of {', '.join(facts['unread'])} cannot be read")
        return lines
    reached = facts["reached_s"]
    when = "never" if reached is None else f"{reached:.0f} s after its start"
    lines += [f"  reached    {when}", f"  steps lost {facts['steps_lost']}"]
    for job in facts["jobs"]:
        late = "not known" if job["delay_s"] is None else figures.duration(job["delay_s"])
        spent = f"capped {figures.duration(job['capped_s'])}, held {figures.duration(job['held_s'])}"
        lines.append(f"  {job['job']}  {units.printable(job['name']):<24} {spent}, delay {late}")
    return [*lines, f"  sha256     {facts['sha256']}"]
