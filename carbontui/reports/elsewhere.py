"""What a run's work is, and on which board, for a comparison with other boards, zones and hours."""

from __future__ import annotations

from carbontui import config, units
from carbontui.account import compare as comparing
from carbontui.account.compare import BoardSpec, Used, Work
from carbontui.account.provenance import worst
from carbontui.reports.story import RunStory


class NothingToCompare(LookupError):
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
    elif watts is None:
        why = "its watts are not known, so nothing can be compared"
        raise NothingToCompare(f"job {run.status.job}: {why}; give the TDP of a board with --board-w")
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
        raise ValueError(f"job {run.status.job} ran on {' and '.join(names) or 'some GPU'}; name the board with --gpu")
    here = comparing.known(gpu or names[0], every)
    if here is None:
        raise ValueError(
            f"no published figures for {gpu or names[0]!r}; name a similar board with --gpu (--list shows them)"
        )
    return here
