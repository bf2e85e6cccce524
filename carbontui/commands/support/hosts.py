"""What the user's other machines would be to a job: asked over ssh, each by its own settings, grid and history."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from carbontui import __version__, config, protocol, units
from carbontui.account import compare as comparing
from carbontui.account.compare import Elsewhere, Work
from carbontui.account.hosts import HostFacts, Stretched, moved
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, refused
from carbontui.commands.support.remote import host_of
from carbontui.job.files import store
from carbontui.job.life import receiving
from carbontui.job.supervisor.core.planning.problem import DEFAULT_RELOAD_S, DEFAULT_UNLOAD_S
from carbontui.reports import elsewhere, story, tables
from carbontui.reports.story import RunStory
from carbontui.system import ssh

LINK_B_PER_S = 50e6
"""Assumed until a move was measured: half of a gigabit line."""


class WorkLeft(NamedTuple):
    """What is left of a live job: seconds of work at full speed here, and the work as compared elsewhere."""

    run: RunStory
    work: Work
    left_s: float
    now_s: float


def of_job(job: store.Job) -> WorkLeft:
    """What is left of a job now. Raises Failure (3) where that, or what it draws, is not known."""
    with refused("", (story.NoStory, elsewhere.NothingToCompare), code=3):
        run = story.build(job, status=talk.live_status(job), version=__version__)
        return rest_of(run, elsewhere.work_of(run, config.load().settings, given=False))


def rest_of(run: RunStory, work: Work) -> WorkLeft:
    """Raises Failure (3) for a job that is over, or whose work is not known."""
    status = run.status
    if run.over:
        raise Failure(f"job {status.job} is over ({status.state}): nothing of it is left to move", 3)
    if status.work_total_s is None or status.work_done_s is None:
        raise Failure(f"job {status.job}: how much work is left is not known; tell it with run --steps or --work", 3)
    left_s = max(0.0, status.work_total_s - status.work_done_s)
    return WorkLeft(run, work, left_s, units.from_iso(status.measured_at))


def compared(
    rest: WorkLeft, names: Sequence[str], there: str, *, at_once: bool = False
) -> tuple[list[Stretched], list[str]]:
    """The row of staying, then one per machine that answered, least grams first; and why others did not. `at_once`:
    moved now, not for the best hours by the deadline."""
    move, known, silent = cost(rest), [], []
    budget = rest.run.status.budget
    deadline_s = None if at_once or budget is None or budget.deadline is None else units.from_iso(budget.deadline)

    def asked(name: str) -> HostFacts | str:
        try:
            with host_of(name, there) as host:
                return facts(host, rest)
        except (ssh.SshError, ValueError) as error:
            return str(error)

    with ThreadPoolExecutor(max(1, len(names))) as pool:
        for found in pool.map(asked, names):
            if isinstance(found, str):
                silent.append(found)
            else:
                known.append(moved(found, rest.left_s, move, now_s=rest.now_s, deadline_s=deadline_s))
    return [stays(rest), *sorted(known, key=lambda one: one.row.gco2_g or 0.0)], silent


def stays(rest: WorkLeft) -> Stretched:
    """What is left of it here, as it is planned."""
    status, ahead = rest.run.status, rest.run.account.ahead
    watts, known = rest.work.boards_w + rest.work.rest_w, status.intensity
    done_s = rest.now_s + rest.left_s if status.finish_expected is None else units.from_iso(status.finish_expected)
    kwh = units.joules_to_kwh(watts * rest.left_s) if ahead is None else ahead.energy_wall_kwh
    grams = (None if known is None else kwh * known.value_g_per_kwh) if ahead is None else ahead.gco2_g
    how = "at the grid's value now" if ahead is None else "as planned"
    row = Elsewhere(status.host, 1.0, done_s - rest.now_s, kwh, grams, how, here=True)
    return Stretched(row, rest.run.options.zone or "", rest.now_s, done_s)


def facts(host: ssh.SshHost, rest: WorkLeft) -> HostFacts:
    """Asked of the machine itself. Raises SshError, and ValueError for an answer without a grid."""
    grid = host.data(["grid", "--json"], dict)
    outlook = grid.get("outlook")
    if not isinstance(outlook, dict):
        raise ValueError(f"{host.name}: no grid data for {grid.get('zone')}")
    speed, watts, how = _speed(host.statuses(), rest)
    start_s, mean = units.from_iso(str(outlook["start"])), [*outlook["mean"]]
    return HostFacts(host.name, str(grid["zone"]), start_s, float(outlook["step_s"]), mean, speed, watts, how)


def _speed(statuses: Sequence[protocol.Status], rest: WorkLeft) -> tuple[float, float, str]:
    """Speed against here, watts at the wall, and how they are known: as this training was measured there, else by the
    boards seen there, else as here."""
    run, work = rest.run, rest.work
    own, here_w = _pace(run.status), work.boards_w + work.rest_w
    for status in statuses:
        pace = _pace(status)
        if status.name == run.status.name and own and pace:
            per_1000 = status.per_1000_steps
            watts = None if per_1000 is None or not per_1000.kwh else per_1000.kwh * units.J_PER_KWH / per_1000.s
            as_here = ", its watts as here" if watts is None else ""
            return own / pace, here_w if watts is None else watts, f"measured there on job {status.job}{as_here}"
    every = tables.boards()
    names = {gpu.name for status in statuses for gpu in status.gpus}
    boards = [board for name in sorted(names) if (board := comparing.known(name, every)) is not None]
    try:
        here = elsewhere.board_of(run, None, every)
    except ValueError:
        here = None
    if here is not None and len(boards) == 1:
        factor = 1.0 if boards[0] == here else comparing.speed(boards[0], here, "fp16")
        if factor is not None:
            watts = work.boards_w * boards[0].tdp_w / here.tdp_w + work.rest_w
            return factor, watts, f"{boards[0].short}: rule of thumb"
    return 1.0, here_w, "as fast as here: it was not measured there"


def _pace(status: protocol.Status) -> float | None:
    """Seconds per step at full speed; None where it was not measured."""
    if status.per_1000_steps is not None:
        return status.per_1000_steps.s / 1000.0
    return status.work_done_s / status.step if status.work_done_s and status.step else None


def cost(rest: WorkLeft) -> protocol.MovesCost:
    """What one move takes: the mean of those that this job has made, else by what is to be copied; at the watts of
    the work, which is at most what is drawn meanwhile."""
    status, watts = rest.run.status, rest.work.boards_w + rest.work.rest_w
    if (made := status.moves_cost) is not None and (count := len(status.places) - 1) > 0:
        kwh, grams = made.energy_wall_kwh / count, None if made.gco2_g is None else made.gco2_g / count
        return protocol.MovesCost(energy_wall_kwh=kwh, gco2_g=grams, bytes=made.bytes // count, s=made.s / count)
    size_b = copied_b(rest.run.options.cwd)
    took_s = DEFAULT_UNLOAD_S + size_b / LINK_B_PER_S + DEFAULT_RELOAD_S
    kwh = units.joules_to_kwh(watts * took_s)
    grams = None if status.intensity is None else round(kwh * status.intensity.value_g_per_kwh, 6)
    return protocol.MovesCost(energy_wall_kwh=round(kwh, 9), gco2_g=grams, bytes=size_b, s=round(took_s, 1))


def copied_b(cwd: str) -> int:
    """Bytes of the files that git does not ignore; 0 where there is no git."""
    paths = [f"{cwd}/{name}" for name in receiving.not_ignored(cwd) or ()]
    return sum(os.lstat(path).st_size for path in paths if os.path.lexists(path))
