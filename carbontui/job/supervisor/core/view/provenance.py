"""Where each figure of a Status comes from: how it is known, its source as a statement, and its age."""

from typing import NamedTuple

from carbontui import protocol
from carbontui.account.accounts import of_sum, worst
from carbontui.job.supervisor.core.planning import expected_end, machine
from carbontui.job.supervisor.core.state import boards, membership
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.view import work_estimate
from carbontui.protocol import How, Statement, statement, written


class Source(NamedTuple):
    """A `protocol.Provenance` before its source is in words."""

    how: How
    said: Statement
    age_s: float | None = None
    ahead: str = ""


def unreadable(state: JobState, inputs: Inputs) -> bool:
    """Whether a board of the job cannot be read (lost or gone): a sum without it is not the job's power."""
    unseen = boards.unseen(state.boards, inputs) or (state.boards.named and not inputs.devices)
    unread = membership.unread_nodes(inputs) or any(reading.power_w is None for reading in inputs.devices)
    return bool(unseen or unread)


def sources(state: JobState, inputs: Inputs, status: protocol.Status) -> dict[str, Source]:
    """By field of the Status `status`, like `gpus.0.power_w`."""
    found = _watts(state, inputs, status) | _energy(state, inputs)
    grid: How = "default"
    source = statement("source_no_grid")
    if state.outlook is not None:
        grid, source = state.outlook.how, written(state.outlook.source)
        # typical-day profiles have no age: nothing was fetched
        made = None if grid == "default" else round(max(0.0, inputs.now_s - state.outlook.made_at_s), 1)
        moved = statement("source_moved", grid=state.outlook.source, moved=state.outlook.moved)
        found["intensity"] = Source(grid, moved if state.outlook.moved else source, made, state.outlook.ahead_source)
        if state.outlook.accuracy:
            found["forecast_errors"] = Source("measured", statement("source_accuracy", leads=state.outlook.accuracy))
    # grams are no better known than the energy they come from
    realised = worst(found["energy_wall_kwh"].how, "estimated" if grid == "default" else "measured")
    found["gco2_g"] = Source(realised, source)
    modelled = any(reading.power_kind == "model" for reading in inputs.devices)
    if status.places:
        found["places"] = Source(realised, statement("source_places"))
        found["moves_cost"] = Source(worst(realised, "estimated"), statement("source_moves"))
    watts = "assumed" if machine.full_wall_w(state, inputs) is None else "given" if modelled else "measured"
    yours = state.spec.grid is None and state.spec.intensity_g_per_kwh is not None
    signal = "yours" if yours else "typical" if grid == "default" else "realised"
    found["avoided_g"] = Source(worst(realised, "estimated"), statement("source_avoided", watts=watts, signal=signal))
    if state.progress.guessed and state.progress.guess:
        by_user = state.progress.agreed == state.progress.guess[1]
        guess = statement("source_guess", guess=state.progress.guess[1], agreed=by_user)
        found["steps_total"] = Source("estimated", guess)
    if status.finish_expected is not None:
        found["finish_expected"] = Source("forecast", statement("source_plan"))
    if status.at_end is not None:
        found["at_end"] = Source("forecast", expected_end.source(state, inputs))
    if status.estimate is not None:
        found["estimate"] = Source("estimated", work_estimate.source(state))
    return found


def _watts(state: JobState, inputs: Inputs, status: protocol.Status) -> dict[str, Source]:
    readings, host, given = inputs.readings, inputs.readings.host, state.spec.declared
    age = None if inputs.readings_age_s == float("inf") else round(inputs.readings_age_s, 2)
    board: How = "simulated" if state.spec.simulated is not None else "measured"
    yours = None if given is None else statement("source_yours", tdp_w=given.tdp_w, utilisation=given.utilisation)
    split, backend = statement("source_split"), written(readings.backend)
    found: dict[str, Source] = {}
    shared = declared = False
    for index, (gpu, reading) in enumerate(zip(status.gpus, inputs.devices, strict=True)):
        modelled = yours if reading.power_kind == "model" else None
        how: How = board if modelled is None else "estimated"
        field, kind = f"gpus.{index}", reading.power_kind or "power"
        metered = statement("source_board", backend=readings.backend, kind=kind)
        found[f"{field}.power_w"] = Source(how, modelled or metered, age)
        if reading.clocks_w is not None:
            found[f"{field}.limit_w"] = Source("estimated", statement("source_clock_lock"))
        if reading.share is not None and reading.own_w is not None:
            found[f"{field}.own_w"] = Source("estimated", split, age)
            shared = True
        if gpu.parked_w is not None:
            found[f"{field}.parked_w"] = Source(how, modelled or statement("source_parked"))
        declared = declared or modelled is not None
    if unread := membership.unread_nodes(inputs):
        found["power_w"] = Source(board, statement("source_unread", nodes=unread), age)
    elif status.gpus:
        of = (backend, split) if shared else (yours,) if yours is not None and declared else (backend,)
        summed = statement("source_power", boards=of, host=host.how)
        found["power_w"] = Source("estimated" if shared or declared else board, summed, age)
    else:
        found["power_w"] = Source("measured" if host.how == "measured" else "estimated", written(host.source), age)
    return found


def _energy(state: JobState, inputs: Inputs) -> dict[str, Source]:
    totals, how = state.totals, _energy_how(state, inputs)
    sensed = how in ("measured", "integrated", "estimated") and any(each != "model" for each in totals.gpu_shares)
    gap = unreadable(state, inputs)
    alone = statement("source_energy", shares=_ordered(totals.gpu_shares), sensed=sensed, unreadable=gap)
    wall = statement("source_energy_wall", shares=_ordered(totals.shares), sensed=sensed, unreadable=gap)
    return {"energy_gpu_kwh": Source(how, alone), "energy_wall_kwh": Source(worst(how, of_sum(totals.shares)), wall)}


def _ordered(shares: dict[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(shares.items(), key=lambda kv: -kv[1]))


def _energy_how(state: JobState, inputs: Inputs) -> How:
    if state.clock.replay:
        return "replay"
    if state.spec.simulated is not None:
        return "simulated"
    if not inputs.devices:
        return "measured" if inputs.readings.host.how == "measured" else "estimated"
    return of_sum(state.totals.gpu_shares)
