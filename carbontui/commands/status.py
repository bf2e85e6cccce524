"""Verbs that only read: ls, status, log, plan, line; and rm, which deletes finished jobs."""

import contextlib
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import click
import msgspec
from rich.cells import set_cell_size

from carbontui import line as status_bar
from carbontui import protocol, units
from carbontui.commands.support import talk
from carbontui.commands.support.command import Count, Failure, any_jobs
from carbontui.job.files import runlog, store
from carbontui.plan.results import earliest_within
from carbontui.system import streams
from carbontui.text import account as account_words
from carbontui.text import figures, forms, situation, sources
from carbontui.text.plan import certificate, level_ends_s
from carbontui.tui.model import state_text

FOLLOW_S = 0.3
LOG_LINE_MAX = 1 << 20
"""Bytes of output in one JSON object; a longer line is split over several."""


def listed(status: protocol.Status, now_s: float | None = None) -> str:
    """One job on one line, for `ls`, read at `now_s`, by default when it was measured."""
    state = situation.state(status)
    # padded by terminal cells, not characters: a name may hold wide ones
    parts = [f"{status.job}  {set_cell_size(status.name, 20)} {state:<10}"]
    if status.power_w is not None and status.state in protocol.LIVE_STATES:
        parts.append(figures.marked(figures.watts(status.power_w), figures.mark(status, "power_w")))
    if status.state not in protocol.LIVE_STATES and not status.replayed:
        # a replay's clock is not the wall clock
        parts.append(f"{situation.ended_at(status, units.from_iso(status.ended_at) if now_s is None else now_s):>9}")
    if status.step:
        parts.append(f"step {status.step:,}" + (f"/{status.steps_total:,}" if status.steps_total else ""))
    why = forms.after(state, situation.reason(status, now_s))
    parts.append("; ".join(filter(None, (situation.diverged(status), why))))
    return "  ".join(parts)


Rows = Iterator[tuple[str, str]]


def report(status: protocol.Status, means: str = "") -> list[str]:
    """A status as aligned rows for a terminal."""
    now, live = units.from_iso(status.measured_at), status.state in protocol.LIVE_STATES
    rows = [*_progress(status, now, live), *_used(status, means, live), *_terms(status, now, live)]
    return [f"{key:<10} {value}" for key, value in (*rows, *(("note", told) for told in situation.notices(status)))]


def _progress(status: protocol.Status, now: float, live: bool) -> Rows:
    """What it does, how far it is, and what it draws; a finished job draws none, and has neither cap nor override."""
    at = f"{situation.state(status)} {situation.at_level(status, None)}; {situation.reason(status)}"
    yield "state", at if situation.refused(status) else situation.stated(status)
    if status.next:
        yield "next", f"{situation.level(status.next.level)} at {situation.clock(status.next.at, now)}"
    if status.override and live:
        yield "override", situation.override(status, now)
    if status.step:
        most = "at most " if status.guess and status.guess.at_most else ""
        total = f" of {most}{status.steps_total:,}" if status.steps_total else ""
        rate = f", {status.rate_steps_per_s:.3g} steps/s" if status.rate_steps_per_s else ""
        loss = f", {said}" if (said := situation.loss_words(status)) else ""
        yield "step", f"{status.step:,}{total}{_how(status, 'steps_total')}{rate}{loss}"
    elif said := situation.loss(status):
        yield "loss", said
    if status.guess and not status.guess.agreed and live:
        bounds = status.guess.low, status.guess.high
        told = f"{figures.total(status.guess.steps, *bounds, at_most=status.guess.at_most)} from {status.guess.source}"
        yield "guess", f"{told}; plan with it: carbontui learn total --accept {status.job}"
    for index, gpu in enumerate(status.gpus if live else ()):
        cap = f" of {gpu.limit_w:.0f} W" if gpu.limit_w else ""
        parked = f", paused {gpu.parked_w:.0f} W" if gpu.parked_w is not None else ""
        how = "" if gpu.power_w is None else _how(status, f"gpus.{index}.power_w")
        number = index if gpu.index is None else gpu.index
        own = f"; {part}" if (part := situation.own_part(gpu)) else ""
        yield f"gpu {number}", f"{gpu.name}  {figures.watts(gpu.power_w)}{cap}{parked}{own}{how}"
    if not status.gpus and live:
        yield "power", f"{figures.watts(status.power_w)}{_how(status, 'power_w')}"


def _used(status: protocol.Status, means: str, live: bool) -> Rows:
    """The account, and what is expected of it."""
    unmetered, so_far = account_words.unmetered(status), " so far" if live else ""
    covered = f", metered {metered}" if (metered := account_words.metered(status)) else ""
    energy = f"{account_words.drawn(status)}{covered}{_how(status, 'energy_wall_kwh')}"
    yield "energy", figures.NOT_METERED if unmetered else energy
    if status.boundary is not None and status.boundary.counted:
        yield "counted", f"{status.boundary.counted} [--boundary {status.boundary.kind}: {status.boundary.why}]"
    if whole := account_words.whole_machine(status):
        yield "machine", f"{whole} in all, with what it idles and the host"
    yield from (("besides", account_words.excluded(apart)) for apart in status.excluded)
    yield from account_words.of_places(status)
    if status.estimate is not None:
        yield "whole work", f"{account_words.estimate(status.estimate)}{_how(status, 'estimate')}"
    if status.at_end is not None:
        # first, because a shifted job is behind run-now until it ends
        yield "at the end", f"{account_words.at_end(status.at_end)}{_how(status, 'at_end')}"
    if status.gco2_g is not None and not unmetered:
        yield "CO2", f"{figures.grams(status.gco2_g)}{so_far}{_how(status, 'gco2_g')}"
    if said := account_words.avoided(status):
        yield "avoided", said + (so_far if status.run_now_g is not None else "")
        if means and account_words.share(status.avoided_g, status.run_now_g) is not None:
            yield "of this", f"{means} (± half of an 80 % band)"
    if status.cost:
        yield "cost", figures.money(status.cost.value, status.cost.currency)


def _terms(status: protocol.Status, now: float, live: bool) -> Rows:
    """What it is held to: its budgets, the grid, the deadline."""
    yield from ((f"{entry.kind} max", account_words.allowance(entry, now)) for entry in status.allowances)
    if status.intensity and live:
        from carbontui.grid.types import YOURS

        signal = state_text.SIGNALS.get(status.intensity.signal, status.intensity.signal)
        where = "yours" if status.intensity.zone == YOURS else f"in {status.intensity.zone} ({signal})"
        yield "intensity", f"{status.intensity.value_g_per_kwh:.0f} gCO2/kWh {where}{_how(status, 'intensity')}"
        if known := sources.age(status.intensity, now):
            yield "grid known", known
    if status.budget and status.budget.deadline:
        factor = f" ({status.budget.factor:.2f}x)" if status.budget.factor else ""
        yield "deadline", f"{situation.clock(status.budget.deadline, now)}{factor}"
    if status.finish_expected and live:
        yield "finish", situation.clock(status.finish_expected, now)


def _how(status: protocol.Status, field: str) -> str:
    found = status.provenance.get(field)
    if found is None:
        return ""
    ahead = f"; ahead: {found.ahead}" if found.ahead and status.state in protocol.LIVE_STATES else ""
    return f"  [{found.how}: {found.source}{ahead}]"


def warn_stale(*shown: protocol.Status) -> None:
    for text in (*talk.lease_warnings(), *talk.low_limits(shown)):
        click.echo(f"carbontui: {text}", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="A list of statuses.")
@click.option("--all", "every", is_flag=True, help="Finished jobs too.")
def ls(as_json: bool, every: bool) -> None:
    """List jobs."""
    jobs = [job for job in store.jobs() if every or as_json or not job.dead or job.restart_command]
    statuses = [talk.live_status(job) for job in jobs]
    if as_json:
        click.echo(talk.as_json(statuses))
        return
    with figures.zone_named():
        for job, status in zip(jobs, statuses, strict=True):
            told = listed(status, situation.read_s(status, time.time()))
            click.echo(told + (f"  (on {job.host})" if job.foreign else ""))
    if not jobs:
        finished = len(store.jobs())
        click.echo(f"no job is running ({finished} finished; --all lists them)" if finished else "no jobs yet")
    warn_stale(*statuses)


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--json", "as_json", is_flag=True, help="The whole status as JSON.")
def status(job: str | None, as_json: bool) -> None:
    """Show one job, sampled now.

    Without JOB: the running one, else the most recent.
    """
    found = talk.live_or_last(job)
    current = talk.live_status(found)
    split, means = None, ""
    if current.avoided_g is not None:
        from carbontui.reports import figures as reported
        from carbontui.reports import story

        told = story.at_observation(found, current)
        split, means = told and told.split, reported.means(told)
    if as_json:
        numbers = split and reported.split_numbers(split)
        click.echo(talk.as_json({**msgspec.to_builtins(current), "avoided_split": numbers}))
    else:
        with figures.zone_named():
            click.echo(f"{current.job}  {current.name}  on {current.host}")
            for row in report(current, means):
                click.echo(row)
    warn_stale(current)


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("-n", "--lines", type=Count(0), help="Only the last lines.")
@click.option("--json", "as_json", is_flag=True, help="One object per line: {offset: its first byte, text}.")
@click.option("--err", is_flag=True, help="Only its stderr, where that is apart, to stdout.")
def log(job: str | None, follow: bool, lines: int | None, as_json: bool, err: bool) -> None:
    """Print the command's output.

    run.log goes to stdout, and run.err, if stderr was kept separately, to stderr (--json: one of them). Without JOB:
    of the running one, else of the most recent.
    """
    found = talk.live_or_last(job)
    talk.warn_lost(found)
    if err and found.err is None:
        raise Failure(f"job {found.id} has one output: its stderr is in it, in the order it was written", 3)
    paths = [found.err or found.log] if err else [found.log, *(() if as_json or not found.err else (found.err,))]
    with contextlib.ExitStack() as stack:
        files = [_opened(found, path, follow) for path in paths]
        stack.callback(lambda: [file.close() for file in files])
        if lines is not None:
            for file in files:
                file.seek(runlog.last_lines(file, lines))
        offset = files[0].tell()
        outs = (sys.stdout.buffer, sys.stderr.buffer)
        clean = [streams.OutputText().piece if out.isatty() and not as_json else None for out in outs]
        pieces = _pieces(files, paths, found, follow)
        if as_json:
            for line in _objects((piece for _, piece in pieces), offset):
                outs[0].write(line)
                outs[0].flush()
            return
        for number, piece in pieces:
            keep = clean[number]
            outs[number].write(piece if keep is None else keep(piece))
            outs[number].flush()


def _opened(job: store.Job, path: Path, wait: bool) -> BinaryIO:
    """An output file; `wait` waits for it, as a delayed start has written nothing yet. Raises Failure (3) if none."""
    while True:
        try:
            return runlog.written(path, job.alive("child")).open("rb")
        except FileNotFoundError:
            now = talk.live_status(store.load(job.dir) or job)
            if now.state not in protocol.LIVE_STATES:
                raise Failure(f"job {job.id} has written nothing, or {path} was removed", 3) from None
            if not wait:
                raise Failure(f"job {job.id} has written nothing yet: {situation.reason(now)}", 3) from None
        except OSError as error:
            raise Failure(f"{path}: {error.strerror or error}", 3) from None
        time.sleep(FOLLOW_S)


def _pieces(files: list[BinaryIO], paths: Sequence[Path], job: store.Job, follow: bool) -> Iterator[tuple[int, bytes]]:
    """The rest of the files, each piece with its file's number; with `follow`, what is appended until the job ends,
    too, and what its next start writes into a file of its own."""
    while True:
        fresh = store.load(job.dir) if follow else None
        over = fresh is None or not fresh.live
        for number, path in enumerate(paths):
            another = fresh and runlog.another(files[number], path, fresh.alive("child"))
            while piece := runlog.tail(files[number], 65536):
                yield number, piece
            if another:
                files[number].close()
                files[number], over = another, False
        if over:
            return
        time.sleep(FOLLOW_S)


def _objects(pieces: Iterable[bytes], offset: int) -> Iterator[bytes]:
    """A JSON object for each line of the output; a carriage return ends one too (progress bars)."""
    rest = b""
    for piece in pieces:
        # a \r at the end may yet be followed by its \n
        lines = (rest + piece).splitlines(keepends=True)
        rest = lines.pop() if not lines[-1].endswith(b"\n") and len(lines[-1]) < LOG_LINE_MAX else b""
        for line in lines:
            yield _object(line, offset)
            offset += len(line)
    if rest:
        yield _object(rest, offset)


def _object(line: bytes, offset: int) -> bytes:
    text = line.rstrip(b"\r\n").decode("utf-8", "replace")
    return streams.json_for_terminals(msgspec.json.encode({"offset": offset, "text": text}).decode()).encode() + b"\n"


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--json", "as_json", is_flag=True, help="The plan as JSON.")
def plan(job: str | None, as_json: bool) -> None:
    """Show the plan in force."""
    found = talk.find(job)
    snap = talk.snap(found)
    if snap.plan is None:
        raise Failure(f"job {found.id} has no plan: {situation.reason(snap.status)}", 3)
    if as_json:
        start = snap.status.budget and snap.status.budget.start
        most_s = units.from_iso(snap.plan.deadline) - units.from_iso(start) + 1.0 if start else 0.0
        points = snap.frontier.points if snap.frontier else ()
        within = earliest_within([(one.finish_s, one.gco2_g) for one in points if one.finish_s <= most_s])
        click.echo(talk.as_json(msgspec.to_builtins(snap.plan) | {"earliest_within": within}))
        return
    for row in plan_rows(snap.plan, snap.status, units.from_iso(snap.series.now)):
        click.echo(row)


def plan_rows(plan: protocol.PlanView, status: protocol.Status, now: float) -> Iterator[str]:
    """The plan as `plan` prints it: a row per stretch, its totals, and why."""
    ends = [round(end_s) for end_s in level_ends_s(plan)]
    endless = status.finish_expected is None  # what holds it has no end, so what comes after is unknown
    begins = [round(units.from_iso(plan.start)), *ends[:-1]]
    for (name, _), at, end in zip(plan.levels, begins, ends, strict=False):
        lasts = situation.open_end(status) if endless and end == ends[-1] else figures.duration(end - at)
        yield f"{figures.clock(at, now):>10}  {situation.level(name, plan.table, step=status.step):<12} {lasts}"
    if not endless:
        # as the account beside it says: the plan is as old as its slot
        ahead = status.account.ahead if status.account else None
        to_come = figures.grams(plan.gco2_g if ahead is None else ahead.gco2_g)
        yield f"{figures.clock(ends[-1], now):>10}  finished; {to_come} CO2 to come"
    if status.at_end is not None:
        yield f"the whole job: {account_words.at_end(status.at_end)}"
    if plan.certificate:
        yield certificate(plan.certificate)
    yield from filter(None, (situation.why(status, plan, now), plan.curve_note))
    yield f"all times {figures.clock_names(now, units.from_iso(plan.deadline))}"


@click.command()
@click.argument("job", required=False)
@click.option("--json", "as_json", is_flag=True, help="The parts as JSON.")
def line(job: str | None, as_json: bool) -> None:
    """Print one job in a few words, for a status bar.

    Prints nothing while no job runs.

    tmux: set -g status-right '#(carbontui line)'
    """
    live = store.live() if job is None else [talk.find(job)]
    if not live:
        return
    talk.warn_lost(live[0])
    status = talk.live_status(live[0])
    more = f" +{len(live) - 1}" if len(live) > 1 else ""
    words = status_bar.words(msgspec.to_builtins(status)) + more
    data = {"job": status.job, "state": status.state, "line": words, "power_w": status.power_w}
    click.echo(talk.as_json(data) if as_json else words)


@click.command()
@click.argument("jobs", nargs=-1, shell_complete=any_jobs)
@click.option("--all", "every", is_flag=True, help="Every finished job.")
@click.option("--yes", is_flag=True, help="With --all: do not ask.")
def rm(jobs: tuple[str, ...], every: bool, yes: bool) -> None:
    """Forget finished jobs; a live one is refused."""
    if not jobs and not every:
        raise Failure("rm needs a job, or --all for every finished one", 2)
    chosen = [job for job in store.jobs() if job.dead] if every else []
    if chosen and not yes:
        if not sys.stdin.isatty():
            raise Failure(f"rm --all forgets {len(chosen)} jobs and their accounts: add --yes", 2)
        click.confirm(f"Forget {len(chosen)} finished jobs and their accounts?", abort=True)
    for wanted in jobs:
        found = talk.find(wanted)
        if found.foreign:
            raise Failure(f"job {found.id} belongs to {found.host}", 2)
        known = found.life.state
        if known == "alive":
            raise Failure(f"job {found.id} is running; stop it first", 2)
        if known == "unknown":
            unknown = talk.unknown(found, 2)
            raise Failure(f"{unknown.message}; if it does not: rm -r {shlex.quote(str(found.dir))}", 2)
        chosen.append(found)
    if not chosen:
        click.echo("no finished job to forget")
    for found in chosen:
        try:
            shutil.rmtree(found.dir)
        except OSError as error:
            raise Failure(f"{found.dir} cannot be removed ({error.strerror})", 4) from None
        click.echo(f"forgot {found.id} ({found.name})")
