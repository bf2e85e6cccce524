"""`move`: a running job goes on on another machine; `receive` is what `move` runs there, over ssh, for no one else."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from carbontui import paths, protocol, units
from carbontui.account.hosts import Stretched, better, moved
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, any_jobs, host_of, refused, there_option
from carbontui.commands.support.run_values import here, settings_for
from carbontui.job.files import launch_file, places, store
from carbontui.job.life import launch, receiving
from carbontui.job.life.moving import NotMoved, Transfer
from carbontui.job.terms import border, records, spec
from carbontui.job.terms.budget import parse, parse_until
from carbontui.reports import elsewhere
from carbontui.reports.story import NoStory
from carbontui.system import bounded_command, ssh
from carbontui.text import figures, situation

KW = 1000.0
"""Of any board at full speed here: that they are compared with."""
NO_MOVE = protocol.MovesCost(energy_wall_kwh=0.0, gco2_g=0.0, bytes=0, s=0.0)
T = TypeVar("T")


@click.command()
@click.argument("words", nargs=-1, metavar="[JOB] USER@HOST", shell_complete=any_jobs)
@there_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only check, and say what would be copied.")
@click.option("--when-cleaner", is_flag=True, help="Wait until that machine's grid is cleaner for the work left.")
@click.option("--by", help="With --when-cleaner: until when to wait, like 18:00; then it stays.")
@click.option("--for-good", is_flag=True, help="Never take it back, even if that machine dies.")
def move(
    words: tuple[str, ...],
    there: str,
    yes: bool,
    dry_run: bool,
    when_cleaner: bool,
    by: str | None,
    for_good: bool,
) -> None:
    """Have a job go on on another machine: carbontui move JOB user@host

    Unloads it at a step, copies the working directory (but what git ignores) and its checkpoint by rsync over ssh, and
    starts it there as the same job. Until that machine has it, any failure leaves it here; if that machine dies, it
    goes on here again.
    """
    if not 1 <= len(words) <= 2:
        raise Failure("move [JOB] user@host: one job and one machine", 2)
    with refused():
        lease_s = None if for_good else places.asked_lease_s()
    job, place = talk.find(words[0] if len(words) == 2 else None), words[-1]
    with refused():
        if ssh.place(place).job is not None:
            raise ValueError(f"{place!r} names a job; give the machine alone, like user@host")
    by_s = math.inf
    if by is not None:
        with refused("--by: "):
            at_s = parse_until(by, time.time())
            if isinstance(at_s, str) or at_s <= time.time() or not when_cleaner:
                raise ValueError(f"{by!r}: a time to come, with --when-cleaner")
            by_s = at_s
    asked = functools.partial(talk.ask, job)
    with (
        refused("", NotMoved, code=1),
        host_of(place, there) as host,
        Transfer(job, host, lease_s, asked) as transfer,
    ):
        transfer.check()
        click.echo(transfer.said())
        if when_cleaner:
            await_cleaner(transfer, there, by_s, read_only=dry_run)
        if dry_run:
            return
        if not yes and sys.stdin.isatty():
            back = "and never comes back by itself" if for_good else "and comes back if that machine dies"
            click.confirm(f"Move {job.name} ({job.id}) to {host.name}? It is unloaded at a step, {back}", abort=True)
        transfer.prepare()
        transfer.unload()
        transfer.copy_all()
        transfer.hand_over()
        status = transfer.until_trains()
    click.echo(f"job {job.id} is {status.state} on {place}, step {status.step}: carbontui attach {place}:{job.id}")


POLL_S = 300.0
"""Between two looks at both forecasts."""
WORTH = 0.01
"""It moves only to save at least this share of the CO2 that is left."""


def await_cleaner(transfer: Transfer, there: str, by_s: float, *, read_only: bool) -> None:
    """Wait for the hour from which the work left emits less there. Raises Failure when there is none until `by_s`, or
    the job ends."""
    job, host = transfer.job, transfer.host.name
    while True:
        with refused("", NoStory, code=3):
            rest = elsewhere.of_job(job, talk.live_status(job))
        best = better(elsewhere.compared(rest, [host], there)[0], WORTH)
        now_s = time.time()
        when = "never" if best is None else "now" if best.from_s <= now_s else f"{figures.clock(best.from_s, now_s)} on"
        click.echo(f"cleaner there for the work left, with the move's cost: {when}")
        if read_only or (best is not None and best.from_s <= now_s):
            return
        time.sleep(max(0.0, min(by_s, now_s + POLL_S, math.inf if best is None else best.from_s) - now_s))
        if time.time() >= by_s:
            raise Failure(f"job {job.id} stays: {host} has not been cleaner for its work", 1)


HERE = "here"
ANSWERS_S = 10.0
FIRST_STEP_S = 60.0
"""How long a start elsewhere is followed; one that has ended by then without a step goes on at the next place, once."""


class Start(Transfer):
    """A copy of what a job needs that has not begun."""

    def why_not(self) -> str:
        return ""


def ranked(names: Sequence[str], there: str, work_s: float, deadline_s: float) -> tuple[list[Stretched], list[str]]:
    """The best hours at each of these machines (`here` is this one), each by its own grid and boards, least grams
    first; and why others are left out."""

    def asked(name: str) -> tuple[dict[str, Any], list[protocol.Status]] | str:
        due = time.monotonic() + ANSWERS_S

        def answer(words: list[str], kind: type[T]) -> T:
            left_s = max(0.1, due - time.monotonic())
            if name != HERE:
                return msgspec.json.decode(host.answer(words, within_s=left_s), type=kind)
            line = [sys.executable, "-m", "carbontui.cli", *words]
            return msgspec.json.decode(
                bounded_command.answer(line, within_s=left_s, most_b=ssh.ANSWER_B).stdout, type=kind
            )

        try:
            with ssh.SshHost(name, carbontui=there) as host:
                return answer(["grid", "--json"], dict[str, Any]), answer(
                    ["ls", "--json", "--all"], list[protocol.Status]
                )
        except (ssh.SshError, ValueError, RecursionError, OverflowError, subprocess.TimeoutExpired) as error:
            return str(error) if isinstance(error, ssh.SshError) else f"{name}: {error}"

    every = list(dict.fromkeys([HERE, *names]))
    with ThreadPoolExecutor(len(every)) as pool:
        answers = dict(zip(every, pool.map(asked, every), strict=True))
    known = {name: one for name, one in answers.items() if not isinstance(one, str)}
    boards = {name: elsewhere.only_board(statuses) for name, (_, statuses) in known.items()}
    found, silent = [], [one for one in answers.values() if isinstance(one, str)]
    for name in names:
        with contextlib.suppress(KeyError):
            try:
                facts = elsewhere.on_grid(
                    name, known[name][0], *elsewhere.by_board(boards[name], boards.get(HERE), KW, 0.0)
                )
                found.append(moved(facts, work_s, NO_MOVE, now_s=time.time(), deadline_s=deadline_s))
            except (TypeError, ValueError) as error:
                silent.append(str(error))
    return sorted(found, key=lambda one: math.inf if one.row.gco2_g is None else one.row.gco2_g), silent


def start_at(
    names: list[str], there: str, work_s: float, budget: str, claim: Callable[[], spec.Options], words: list[str]
) -> str:
    """Start the training on the machine where its work emits least, as if it were started there by hand; where it is
    then, as HOST:ID, or '' where this machine is the one. Raises Failure where none takes it."""
    now_s = time.time()
    deadline_s = parse(budget, now_s).deadline_s(now_s, work_s)
    assert deadline_s is not None
    rows, silent = ranked(names, there, work_s, deadline_s)
    failed = False
    for row in rows:
        host_name, said = row.row.name, f"{row.zone}, from {figures.clock(row.from_s, now_s)} on"
        if host_name == HERE:
            click.echo(f"carbontui: {'; '.join([*silent, f'starts here ({said})'])}", err=True)
            return ""
        try:
            with host_of(host_name, there) as host:
                job = _started_at(host, claim(), [*words, "--work", f"{work_s / row.row.speed:.0f}s"])
                click.echo(f"carbontui: {'; '.join([*silent, f'starts on {host_name} ({said})'])}", err=True)
                silent = []
                if not (why := _no_step(host, job)):
                    return f"{host_name}:{job}"
        except (NotMoved, ssh.SshError) as error:
            silent.append(str(error))
            continue
        silent.append(f"job {job} ended on {host_name} before its first step: {why}")
        if failed:
            break
        failed = True
    raise Failure(f"--at: it starts nowhere: {'; '.join(silent) or 'no grid data'}", 1)


def _started_at(host: ssh.SshHost, options: spec.Options, words: list[str]) -> str:
    """Copy what it needs and start it there; the job's id there. Raises NotMoved."""
    folder = Path(options.dir)
    try:
        spec.save(options)
        environment = {name: value for name, value in os.environ.items() if name not in launch.GRID_KEYS}
        paths.write_whole(folder / launch_file.FILE, json.dumps(launch.keeper_spec(options, environment)).encode())
        job = store.load(folder)
        assert job is not None
        with Start(job, host, None, functools.partial(talk.ask, job)) as transfer:
            transfer.check()
            transfer.copy_files()
            return transfer.begin(environment, words)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _no_step(host: ssh.SshHost, job: str) -> str:
    """Why a start there has ended without a step; '' if it has made one, waits as planned, or still runs. Raises
    SshError where nothing is heard of it: it may train."""
    due = time.monotonic() + FIRST_STEP_S
    while time.monotonic() < due:
        for status in host.statuses(job):
            if status.step or status.state == "done" or (status.state != "starting" and status.next is not None):
                return ""
            if status.state not in protocol.LIVE_STATES:
                lines = host.answer(["log", "-n", "3", job]).splitlines()
                return units.printable(" / ".join([situation.reason(status), *lines]))
        time.sleep(0.5)
    return ""


@click.command(hidden=True)
@click.argument("step", type=click.Choice(["check", "stage", "start", "hold"]))
@click.argument("job")
def receive(step: str, job: str) -> None:
    """The other end of `move`: JSON lines on stdin and stdout."""
    if step == "hold":
        receiving.converse(job, _receive, _say)
        return
    with refused("", (receiving.NotTaken, OSError), code=1):
        loaded = settings_for()
        own = {**here(loaded, None), "price_zone": loaded.settings.price_zone}
        if step == "check":
            _say(receiving.check(job, _receive(border.CheckAsk), own["zone"] or "", own["zone_why"]))
        elif step == "start":
            _say(border.Started(receiving.start(job, _receive(border.StartAsk))))
        else:
            receiving.stage(job, _receive(border.StageAsk), own)
            _say(border.Staged(ready=True))


def _receive(kind: type[T]) -> T:
    with refused("what was sent cannot be read: ", code=1):
        return records.decode(sys.stdin.buffer.readline(records.MOST_B + 1), kind)


def _say(message: NamedTuple) -> None:
    sys.stdout.buffer.write(json.dumps(message._asdict()).encode() + b"\n")
    sys.stdout.buffer.flush()
