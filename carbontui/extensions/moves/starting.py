"""`run --at`: a training starts on the machine whose grid emits least for its work, as if started there by hand.

Each machine's own grid and boards are asked; copy and checks are those of a move, and nothing migrates after.
"""

import functools
import math
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from carbontui import protocol, units
from carbontui.account.compare import Stretched, moved
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, refused
from carbontui.extensions.moves.moving import REACH_S, NotMoved, Transfer
from carbontui.extensions.moves.receiving import StartAsk, Started
from carbontui.job.files import store
from carbontui.job.life import launch
from carbontui.job.terms import budget, spec
from carbontui.reports import elsewhere
from carbontui.system import ssh
from carbontui.text import figures, situation

HERE = "here"
WITHIN_S = 10.0
"""A machine that has not answered by then is left out."""
FIRST_STEP_S = 60.0
"""How long a start elsewhere is followed; one that has ended by then without a step goes on at the next place, once."""
KW = 1000.0
"""Of any board at full speed here, that the others are compared with."""
OF_A_MACHINE = ("zone", "grid_file", "intensity", "hosts", "resubmit", "requeue", "take_input", "try_first", "log_path")
OURS = ("at", "there", "name", "work", "detach", "wait", "quiet")


def at(command: tuple[str, ...], name: str, given: dict[str, Any], chosen: dict[str, Any]) -> str:
    """Where it was started, as HOST:ID; '' where this machine is the one. Raises Failure where none takes it."""
    words, work_s = [*(("--name", name) if name else ()), *_typed()], chosen["work_s"]
    if work_s is None:
        raise Failure("--at needs --work, like 8h: the hours of each machine are compared for it", 2)
    names = units.listed(given["at"])
    with refused("--at: "):
        if any(one != HERE and ssh.place(one).job is not None for one in names):
            raise ValueError("give machines alone, like user@host,here")
    rows, silent = ranked(names, given["there"], work_s, chosen["budget"])
    died = 0
    for row in rows:
        host, when = row.row.name, f"({row.zone}, from {figures.clock(row.from_s, time.time())} on)"
        if host == HERE:
            click.echo(f"carbontui: {'; '.join([*silent, f'starts here {when}'])}", err=True)
            return ""
        with ssh.SshHost(host, carbontui=given["there"]) as there:
            try:
                job = _begun(there, name, command, chosen, [*words, "--work", f"{work_s / row.row.speed:.0f}s"])
            except NotMoved as error:
                silent.append(str(error))
                continue
            click.echo(f"carbontui: {'; '.join([*silent, f'starts on {host} {when}'])}", err=True)
            with refused(f"--at: job {job} was started on {host}, and may train there: ", ssh.SshError, code=1):
                why = _no_step(there, job)
        if not why:
            return f"{host}:{job}"
        silent, died = [f"job {job} ended on {host} before its first step: {why}"], died + 1
        if died > 1:
            break
    raise Failure(f"--at: it starts nowhere: {'; '.join(silent) or 'no grid data'}", 1)


def _typed() -> list[str]:
    """The options of `run` as they were typed. Raises Failure for one that each machine has its own of."""
    context, words = click.get_current_context(), list[str]()
    for option in context.command.params:
        name = str(option.name)
        if not isinstance(option, click.Option) or context.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            continue
        if name in OF_A_MACHINE:
            raise Failure(f"--at: each machine has its own; leave out {option.opts[0]}", 2)
        if name not in OURS:
            words += [option.opts[0], *([] if option.is_flag else [str(context.params[name])])]
    return words


def ranked(names: list[str], there: str, work_s: float, budgeted: str) -> tuple[list[Stretched], list[str]]:
    """The best hours at each of these machines, least grams first; and why others are left out."""
    now_s = time.time()
    deadline_s = budget.parse(budgeted, now_s).deadline_s(now_s, work_s)
    this = elsewhere.only_board([job.status() for job in store.jobs()])

    def best(host: ssh.SshHost) -> Stretched:
        facts = elsewhere.on_grid(host, *elsewhere.by_boards(elsewhere.only_board(host.statuses()), this, KW, 0.0))
        nothing = protocol.MovesCost(energy_wall_kwh=0.0, gco2_g=0.0, bytes=0, s=0.0)
        return moved(facts, work_s, nothing, now_s=now_s, deadline_s=deadline_s)

    kinds = {one: ssh.ThisMachine if one == HERE else ssh.SshHost for one in names}
    answers = elsewhere.asked([kind(one, carbontui=there, within_s=WITHIN_S) for one, kind in kinds.items()], best)
    found = [one for one in answers if isinstance(one, Stretched)]
    least = sorted(found, key=lambda one: math.inf if one.row.gco2_g is None else one.row.gco2_g)
    return least, [one for one in answers if isinstance(one, str)]


class Start(Transfer):
    """A copy of what a job needs that has not begun."""

    def why_not(self) -> str:
        return ""

    def environment(self) -> Mapping[str, str]:
        return {name: value for name, value in os.environ.items() if name not in launch.GRID_KEYS}


def _begun(host: ssh.SshHost, name: str, command: tuple[str, ...], chosen: dict[str, Any], words: list[str]) -> str:
    """Copy what it needs and start it there; the job's id there. Raises NotMoved."""
    home = launch.claim(name, command, numbered=True)
    try:
        spec.save(spec.Options(**home, err="", created_s=time.time(), **chosen))
        job = store.load(Path(home["dir"]))
        assert job is not None
        copy = Start(job, host, None, functools.partial(talk.ask, job))
        copy.check()
        copy.copy_files()
        given = tuple(words), command, (*copy.environment().items(),)
        asked = StartAsk(copy.there.cwd, copy.options.cwd, str(Path.home()), *given)
        return copy.answered("start", asked, Started, REACH_S).job
    finally:
        shutil.rmtree(home["dir"], ignore_errors=True)


def _no_step(host: ssh.SshHost, job: str) -> str:
    """Why a start there has ended without a step; '' if it has made one, waits as planned, or still runs. Raises
    SshError where nothing is heard of it."""
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
