"""What a run's work is, and on which board, for a comparison with other boards, zones and hours; and what the user's
other machines would be to it: asked over ssh, each by its own settings, grid and history."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from carbontui import config, protocol, units
from carbontui.account import compare as comparing
from carbontui.account.accounts import worst
from carbontui.account.compare import BoardSpec, Elsewhere, HostFacts, Stretched, Used, Work, moved
from carbontui.job.files import store
from carbontui.job.life import launch
from carbontui.job.supervisor.core.planning.problem import DEFAULT_RELOAD_S, DEFAULT_UNLOAD_S
from carbontui.reports.story import NoStory, RunStory, build
from carbontui.system import ssh

T = TypeVar("T")
LINK_B_PER_S = 50e6
"""Assumed until a move was measured: half of a gigabit line."""


class NothingToCompare(NoStory):
    """A run without work or watts; the text says which, in one line."""


def work_of(run: RunStory, settings: config.Settings, *, given: bool) -> Work:
    """The whole work where it is known, else what was done; at the user's watts where they are `given`, or where none
    were measured. Raises ValueError, and NothingToCompare."""
    count, pue, tdp_w = max(1, len(run.status.gpus)), run.options.pue, settings.board_w
    seconds, watts, used = _flat(run)
    if seconds <= 0:
        raise NothingToCompare(f"job {run.status.job} has done no work yet: nothing can be compared")
    if tdp_w is not None and (given or watts is None):
        of_boards = count * tdp_w * (settings.utilisation or 1.0) * pue
        of_rest, used = run.host_w * pue, None
    elif not watts:  # nothing metered or forecast: a table of zeros compares nothing
        why = "its watts are not known, so nothing can be compared"
        raise NothingToCompare(f"job {run.status.job}: {why}; give the TDP of a GPU with --board-w")
    else:
        wall, boards_kwh = run.energy_wall_kwh, run.energy_gpu_kwh * pue
        share = min(1.0, boards_kwh / wall) if wall > 0 else 1.0
        of_boards, of_rest = watts * share, watts * (1 - share)
    memory = [gpu.memory_used_b for gpu in run.status.gpus if gpu.memory_used_b]
    grams = run.intensity_mean if settings.intensity is None else settings.intensity
    if grams is None and used is not None and used.gco2_g is not None and used.kwh > 0:
        grams = used.gco2_g / used.kwh
    return Work(seconds, of_boards, of_rest, count, grams, sum(memory) if memory else None, used)


def _flat(run: RunStory) -> tuple[float, float | None, Used | None]:
    """Seconds and watts at the wall of run-now, and what the account says of the same work: an estimate's of the whole
    run, a live job's of its whole work where that is known, else what was used."""
    known = run.status.provenance.get("energy_wall_kwh")
    how = "estimated" if known is None else known.how
    estimate, account, flat = run.status.estimate, run.account, run.run_now
    if run.options.estimate:
        if estimate is None:
            return 0.0, None, None
        if estimate.energy_wall_kwh is None:
            return estimate.work_s, None, None
        of = Used(estimate.work_s, estimate.energy_wall_kwh, estimate.gco2_g, worst(how, "estimated"))
        return of.time_s, of.kwh * units.J_PER_KWH / of.time_s, of
    amounts = account.whole or account.so_far
    if account.whole is not None:
        how = worst(how, "forecast")
    used = Used(amounts.elapsed_s, amounts.energy_wall_kwh, amounts.gco2_g, how)
    if flat is None or amounts.energy_wall_kwh <= 0:
        return run.done_s, None, None
    if not flat.acted and account.whole is None:
        return used.time_s, used.kwh * units.J_PER_KWH / used.time_s, used
    total_s, done_s = run.status.work_total_s, run.status.work_done_s
    left_s = 0.0 if account.whole is None or total_s is None or done_s is None else max(0.0, total_s - done_s)
    seconds = flat.seconds + left_s
    left_w = flat.watts if run.full_wall_w is None else run.full_wall_w
    return seconds, (flat.watts * flat.seconds + left_w * left_s) / seconds if seconds > 0 else None, used


def board_of(run: RunStory, gpu: str | None, every: list[BoardSpec]) -> BoardSpec:
    names = sorted({board.name for board in run.status.gpus})
    if gpu is None and len(names) != 1:
        raise ValueError(f"job {run.status.job} ran on {' and '.join(names) or 'some GPU'}; name the GPU with --gpu")
    here = comparing.known(gpu or names[0], every)
    if here is None:
        raise ValueError(
            f"no published figures for {gpu or names[0]!r}; name a similar GPU with --gpu (--list shows them)"
        )
    return here


class WorkLeft(NamedTuple):
    """What is left of a live job: seconds of work at full speed here, and the work as compared elsewhere."""

    run: RunStory
    work: Work
    left_s: float
    now_s: float


def of_job(job: store.Job, status: protocol.Status) -> WorkLeft:
    """What is left of a job by its last status. Raises NoStory where that, or what it draws, is not known."""
    run = build(job, status=status)
    return rest_of(run, work_of(run, config.load().settings, given=False))


def rest_of(run: RunStory, work: Work) -> WorkLeft:
    """Raises NothingToCompare for a job that is over, or whose work is not known."""
    status = run.status
    if run.over:
        raise NothingToCompare(f"job {status.job} is over ({status.state}): nothing of it is left to move")
    if status.work_total_s is None or status.work_done_s is None:
        raise NothingToCompare(
            f"job {status.job}: how much work is left is not known; tell it with run --steps or --work"
        )
    left_s = max(0.0, status.work_total_s - status.work_done_s)
    return WorkLeft(run, work, left_s, units.from_iso(status.measured_at))


def compared(
    rest: WorkLeft, names: Sequence[str], there: str, *, at_once: bool = False
) -> tuple[list[Stretched], list[str]]:
    """The row of staying, then one per machine that answered, least grams first; and why others did not. `at_once`:
    moved now, not for the best hours by the deadline. Raises ValueError for a name that is no machine's."""
    move, known, silent = cost(rest), [], []
    budget = rest.run.status.budget
    deadline_s = None if at_once or budget is None or budget.deadline is None else units.from_iso(budget.deadline)

    hosts = [ssh.SshHost(ssh.place(name).host, carbontui=there) for name in names]
    for found in asked(hosts, lambda host: on_grid(host, *_speed(host.statuses(), rest))):
        if isinstance(found, str):
            silent.append(found)
        else:
            known.append(moved(found, rest.left_s, move, now_s=rest.now_s, deadline_s=deadline_s))
    return [staying(rest), *sorted(known, key=lambda one: one.row.gco2_g or 0.0)], silent


def asked(hosts: Sequence[ssh.SshHost], question: Callable[[ssh.SshHost], T]) -> list[T | str]:
    """What each of these machines answers, all asked at once; else why it does not."""

    def of(host: ssh.SshHost) -> T | str:
        try:
            with host:
                return question(host)
        except (ssh.SshError, ValueError) as error:
            return str(error)

    with ThreadPoolExecutor(max(1, len(hosts))) as pool:
        return list(pool.map(of, hosts))


def staying(rest: WorkLeft) -> Stretched:
    """What is left of it here, as it is planned."""
    status, ahead = rest.run.status, rest.run.account.ahead
    watts, known = rest.work.boards_w + rest.work.rest_w, status.intensity
    done_s = rest.now_s + rest.left_s if status.finish_expected is None else units.from_iso(status.finish_expected)
    kwh = units.joules_to_kwh(watts * rest.left_s) if ahead is None else ahead.energy_wall_kwh
    grams = (None if known is None else kwh * known.value_g_per_kwh) if ahead is None else ahead.gco2_g
    how = "at the grid's value now" if ahead is None else "as planned"
    row = Elsewhere(status.host, 1.0, done_s - rest.now_s, kwh, grams, how, here=True)
    return Stretched(row, rest.run.options.zone or "", rest.now_s, done_s)


def on_grid(host: ssh.SshHost, speed: float, watts: float, how: str) -> HostFacts:
    """With the grid's forecast as the machine itself has it. Raises SshError, and ValueError where it has none."""
    grid = host.data(["grid", "--json"], dict)
    outlook = grid.get("outlook")
    if not isinstance(outlook, dict):
        raise ValueError(f"{host.name}: no grid data for {grid.get('zone')}")
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
    return by_boards(only_board(statuses), only_board([run.status]), work.boards_w, work.rest_w)


def only_board(statuses: Iterable[protocol.Status]) -> BoardSpec | None:
    """The kind of board that these jobs had; None where it is not known, or several are."""
    every = comparing.boards()
    names = {gpu.name for status in statuses for gpu in status.gpus}
    boards = [board for name in sorted(names) if (board := comparing.known(name, every)) is not None]
    return boards[0] if len(boards) == 1 else None


def by_boards(
    there: BoardSpec | None, here: BoardSpec | None, boards_w: float, rest_w: float
) -> tuple[float, float, str]:
    """Speed against here, watts there and how they are known, of work that draws these watts here."""
    factor = 1.0 if there == here else comparing.speed(there, here) if there and here else None
    if there is None or here is None or factor is None:
        return 1.0, boards_w + rest_w, "as fast as here: it was not measured there"
    return factor, boards_w * there.tdp_w / here.tdp_w + rest_w, f"{there.short}: rule of thumb"


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
    paths = [f"{cwd}/{name}" for name in launch.not_ignored(cwd) or ()]
    return sum(os.lstat(path).st_size for path in paths if os.path.lexists(path))
