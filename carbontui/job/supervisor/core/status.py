"""From the supervisor's state to what people see: Status with its provenance, the series, the notices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from carbontui import protocol, units
from carbontui.grid.types import Outlook
from carbontui.job.supervisor.core.control import Decision
from carbontui.power.messages import Reading, Readings

How = protocol.How

FRESH_S = 5.0
"""A reading of boards older than this is history, not the present."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a Status is made of, gathered by the supervisor once a tick."""

    job: str
    name: str
    host: str
    now_s: float
    decision: Decision
    next_at_s: float | None
    next_level: str | None
    override: protocol.Override | None
    override_gen: int
    budget: protocol.BudgetStatus
    finish_expected_s: float | None
    pids: protocol.Pids
    clients: int
    step: int
    steps_total: int | None
    rate: float | None
    loss: float | None
    epoch: float | None
    readings: Readings
    age_s: float
    devices: tuple[Reading, ...]
    parked_w: dict[str, float]
    energy_gpu_kwh: float
    energy_wall_kwh: float
    gco2_g: float | None
    avoided_g: float | None
    cost: protocol.Cost | None
    outlook: Outlook | None
    exit: protocol.Exit | None
    certificate: protocol.Certificate | None
    notices: tuple[str, ...]
    replay: bool
    simulated: bool
    how_shares: dict[str, float]
    gpu_how_shares: dict[str, float]
    unseen: bool
    """A board of the job cannot be seen any more."""
    full_measured: bool


def status(f: Facts) -> protocol.Status:
    """The Status of this tick."""
    gpus = tuple(_gpu(reading, f.parked_w.get(reading.uuid)) for reading in f.devices)
    fresh = f.age_s < FRESH_S
    boards = [g.power_w for g in gpus if g.power_w is not None] if fresh else []
    # the sum without a board that cannot be read, be it lost or gone, is not what the job draws
    blind = f.unseen or any(reading.power_w is None for reading in f.devices)
    host = f.readings.host
    power: float | None = None
    live = f.decision.state in protocol.LIVE_STATES  # a job that is over draws nothing, whatever its boards do
    if live and not blind and (boards or (not gpus and host.cpu_w is not None)):
        power = sum(boards) + (host.cpu_w or 0.0) + (host.dram_w or 0.0)
    intensity = None
    if f.outlook is not None:
        value = f.outlook.value_at(f.now_s)
        if value is not None:
            intensity = protocol.Intensity(round(value, 2), f.outlook.signal, f.outlook.zone)
    return protocol.Status(
        job=f.job,
        name=f.name,
        host=f.host,
        measured_at=units.iso(f.now_s),
        state=f.decision.state,
        reason=f.decision.reason,
        level=f.decision.level,
        next=protocol.Next(units.iso(f.next_at_s), f.next_level) if f.next_at_s and f.next_level else None,
        override=f.override,
        override_gen=f.override_gen,
        budget=f.budget,
        finish_expected=None if f.finish_expected_s is None else units.iso(f.finish_expected_s),
        pids=f.pids,
        clients=f.clients,
        step=f.step,
        steps_total=f.steps_total,
        rate_steps_per_s=f.rate,
        loss=f.loss,
        epoch=f.epoch,
        gpus=gpus if fresh else tuple(_blank(g) for g in gpus),
        power_w=power,
        energy_gpu_kwh=round(f.energy_gpu_kwh, 9),
        energy_wall_kwh=round(f.energy_wall_kwh, 9),
        gco2_g=None if f.gco2_g is None else round(f.gco2_g, 6),
        avoided_g=None if f.avoided_g is None else round(f.avoided_g, 6),
        cost=f.cost,
        intensity=intensity,
        exit=f.exit,
        certificate=f.certificate,
        notices=f.notices,
        provenance=_provenance(f, gpus, host.how, blind=blind),
    )


def _gpu(reading: Reading, parked_w: float | None) -> protocol.Gpu:
    return protocol.Gpu(
        uuid=reading.uuid,
        name=reading.name,
        power_w=None if reading.power_w is None else round(reading.power_w, 2),
        limit_w=reading.limit_w if reading.clocks_w is None else reading.clocks_w,
        parked_w=None if parked_w is None else round(parked_w, 1),
        memory_used_b=reading.memory_used_b,
        util=reading.util,
        index=reading.index,
    )


def _blank(gpu: protocol.Gpu) -> protocol.Gpu:
    """A board whose driver does not answer: known by name, its watts unknown."""
    return protocol.Gpu(gpu.uuid, gpu.name, None, gpu.limit_w, gpu.parked_w, index=gpu.index)


def _provenance(
    f: Facts, gpus: tuple[protocol.Gpu, ...], host_how: str, *, blind: bool
) -> dict[str, protocol.Provenance]:
    p = protocol.Provenance
    age = None if f.age_s == float("inf") else round(f.age_s, 2)
    board: How = "simulated" if f.simulated else "measured"
    found: dict[str, protocol.Provenance] = {}
    for index, gpu in enumerate(gpus):
        kind = f.devices[index].power_kind or "power"
        found[f"gpus.{index}.power_w"] = p(board, f"{f.readings.backend} {kind}", age)
        if f.devices[index].clocks_w is not None:
            found[f"gpus.{index}.limit_w"] = p("estimated", "watts that a clock lock is steered to")
        if gpu.parked_w is not None:
            found[f"gpus.{index}.parked_w"] = p(board, "mean while paused on this job")
    if gpus:
        found["power_w"] = p(board, f"{f.readings.backend}; CPU and memory {host_how}", age)
    else:
        found["power_w"] = p("measured" if host_how == "measured" else "estimated", f.readings.host.source, age)
    energy = _energy_how(f, bool(gpus), host_how)
    without = "; a board that cannot be read is not in it" if blind else ""
    found["energy_gpu_kwh"] = p(energy, (_shares(f.gpu_how_shares) or "nothing metered yet") + without)
    wall = f"boards, CPU, host constant and PUE: {_shares(f.how_shares) or 'nothing metered yet'}{without}"
    found["energy_wall_kwh"] = p(energy if gpus else "estimated", wall)
    grid: How = "default"
    source = "no grid source"
    if f.outlook is not None:
        source = f.outlook.source
        how_of: dict[str, How] = {
            "forecast": "forecast",
            "default": "default",
            "replay": "replay",
            "estimated": "estimated",
        }
        grid = how_of[f.outlook.how]
        found["intensity"] = p(grid, source, round(max(0.0, f.now_s - f.outlook.made_at_s), 1))
    # grams are no better known than the energy they come from
    realised: How = "replay" if f.replay else "estimated" if grid == "default" else found["energy_wall_kwh"].how
    found["gco2_g"] = p(realised, source)
    basis = "flat out from the start at measured full watts, realised intensity"
    if not f.full_measured:
        basis = "flat out from the start at assumed full watts, realised intensity"
    found["avoided_g"] = p("replay" if f.replay else "estimated", basis)
    if f.finish_expected_s is not None:
        found["finish_expected"] = p("forecast", "the plan in force")
    return found


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.0%} {how}" for how, share in sorted(shares.items(), key=lambda kv: -kv[1]))


def _energy_how(f: Facts, boards: bool, host_how: str) -> How:
    if f.replay:
        return "replay"
    if f.simulated:
        return "simulated"
    if not boards:
        return "measured" if host_how == "measured" else "estimated"
    counter = f.gpu_how_shares.get("counter", 0.0)
    return "measured" if counter > 0.5 else "integrated"


def band(outlook: Outlook) -> protocol.Band:
    """The outlook as charts draw it."""

    def short(values: tuple[float | None, ...]) -> tuple[float | None, ...]:
        return tuple(None if value is None else round(value, 1) for value in values)

    how: Any = {"forecast": "forecast", "default": "default", "replay": "replay", "estimated": "estimated"}[outlook.how]
    return protocol.Band(
        start=units.iso(outlook.start_s),
        step_s=outlook.step_s,
        mean_g=short(outlook.mean),
        lo_g=short(outlook.lo),
        hi_g=short(outlook.hi),
        realised=outlook.realised,
        zone=outlook.zone,
        signal=outlook.signal,
        source=outlook.source,
        how=how,
    )
