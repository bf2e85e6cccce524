"""From the job's state to what users see: its Status with provenance, and the outlook as charts draw it."""

import itertools
import math

from carbontui import protocol, units
from carbontui.account.estimate import of_steps
from carbontui.grid.types import GridForecast
from carbontui.job.supervisor.core.planning import expected_end, machine
from carbontui.job.supervisor.core.planning.course import CourseAhead, course
from carbontui.job.supervisor.core.rules import allowance_rules
from carbontui.job.supervisor.core.state import forbidden
from carbontui.job.supervisor.core.state.inputs import FRESH_S, Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.core.view import provenance, work_estimate
from carbontui.power.messages import Reading


def status(state: JobState, inputs: Inputs, *, host: str, pids: protocol.Pids) -> protocol.Status:
    """The Status at the time of `inputs`, without what is told in words: notices, provenance, and the texts of the
    reason, of forbidden hours and of boards. `host` and `pids` name the machine and our processes."""
    gpus = tuple(gpu_of(reading, state.measured.parked_w.get(reading.uuid, (None, 0))[0]) for reading in inputs.devices)
    fresh = inputs.readings_age_s < FRESH_S
    leader, totals, work, held = inputs.leader, state.totals, state.progress, state.override
    ahead = course(state, inputs)
    expected = ahead.finish_s
    power_w = _power_w(state, inputs, gpus if fresh else ())
    now = situation_of(state, inputs, ahead, power_w)
    (account, at_end), estimate = expected_end.statement(state, inputs, ahead), work_estimate.estimate(state, inputs)
    used, pace = account.so_far, work_estimate.per_1000_steps(state, inputs)
    return protocol.Status(
        job=state.spec.job,
        name=state.spec.name,
        host=host,
        measured_at=units.iso(inputs.now_s),
        state=state.decision.state,
        reason=protocol.Reason(state.decision.why.code, ""),
        level=state.decision.level.name,
        situation=now,
        next=now.ahead[0] if now.ahead else None,
        override=held.current,
        override_gen=held.gen,
        forbidden=tuple(one.to_wire(inputs.now_s) for one in forbidden.current(state.forbidden, inputs.now_s)),
        budget=_budget(state),
        finish_expected=None if expected is None else units.iso(expected),
        pids=pids,
        clients=len(inputs.ranks),
        step=work.step,
        steps_total=work.steps_total,
        work_done_s=None if work.total_s is None else round(work.done_s, 1),
        work_total_s=None if work.total_s is None else round(work.total_s, 1),
        guess=_guess(state),
        rate_steps_per_s=leader.rate if leader else None,
        loss=state.loss,
        metrics={name: value for name, value in state.last_metrics.items() if math.isfinite(value)},
        epoch=leader.epoch if leader else None,
        doing=leader.doing if leader and state.decision.state in ("running", "throttled") else None,
        gpus=gpus if fresh else tuple(_blank(gpu) for gpu in gpus),
        power_w=power_w,
        nodes=tuple(
            protocol.NodePower(one.node, None if one.power_w is None or power_w is None else round(one.power_w, 2))
            for one in inputs.readings.nodes
        ),
        energy_gpu_kwh=used.energy_gpu_kwh,
        energy_wall_kwh=used.energy_wall_kwh,
        gco2_g=used.gco2_g,
        avoided_g=used.avoided_g,
        cost=totals.cost,
        account=account,
        excluded=totals.excluded,
        coverage=totals.coverage,
        places=totals.places,
        moves_cost=totals.moves_cost,
        whole_machine=expected_end.whole_machine(state, inputs),
        boundary=protocol.BoundaryStatus(
            kind=state.spec.boundary,
            idle_limit_s=state.spec.idle_limit_s,
            host_w=round(machine.host(state, inputs).watts, 1),
            pue=state.spec.pue,
        ),
        at_end=at_end,
        estimate=estimate,
        per_1000_steps=pace,
        per_hour=of_steps(pace, 3.6e6 / pace.s) if pace is not None else None,
        allowances=allowance_rules.on_wire(state),
        grid_event=_grid_event(state),
        intensity=state.outlook.intensity(inputs.now_s) if state.outlook else None,
        forecast_errors=state.outlook.accuracy if state.outlook else (),
        exit=_exit(state, inputs),
        certificate=state.plan.view.certificate if state.plan else None,
    )


def _grid_event(state: JobState) -> protocol.GridEventStatus | None:
    event = None if state.site is None else state.site.event
    if event is None:
        return None
    return protocol.GridEventStatus(event.id, units.iso(event.start_s), units.iso(event.over_s))


def _guess(state: JobState) -> protocol.Guess | None:
    """The guess, while nothing better is known."""
    work = state.progress
    if work.guess is None or not (work.steps_total is None or work.guessed):
        return None
    bounds = work.guess_range
    low, high, at_most = (work.step, None, False) if bounds is None else (bounds.low, bounds.high, bounds.at_most)
    return protocol.Guess(*work.guess, work.guessed, max(low, min(work.step, work.guess[0])), high, at_most)


def _power_w(state: JobState, inputs: Inputs, gpus: tuple[protocol.Gpu, ...]) -> float | None:
    """Watts of boards, CPU and memory; a finished job draws nothing, whatever its boards do."""
    host = inputs.readings.host
    known = [gpu.power_w if gpu.own_w is None else gpu.own_w for gpu in gpus if gpu.power_w is not None]
    unknown = not known and (inputs.devices or host.cpu_w is None)
    if not state.live or unknown or provenance.unreadable(state, inputs):
        return None
    return sum(known) + (host.cpu_w or 0.0) + (host.dram_w or 0.0)


def _budget(state: JobState) -> protocol.BudgetStatus:
    deadline, total = state.budget_deadline_s, state.progress.total_s
    factor = None if deadline is None or not total else (deadline - state.start_s) / total
    shown = None if deadline is None else units.iso(deadline)
    return protocol.BudgetStatus(units.iso(state.start_s), shown, factor, total is not None)


def _exit(state: JobState, inputs: Inputs) -> protocol.Exit | None:
    child = inputs.child
    if child.state != "exited" or child.unloaded:
        return None
    at_s = child.ended_s(state.clock)
    return protocol.Exit(child.code, child.signal, None if at_s is None else units.iso(at_s))


AS_READ = ("uuid", "name", "memory_used_b", "memory_total_b", "users", "util", "index", "temp_c", "sm_mhz")


def gpu_of(reading: Reading, parked_w: float | None) -> protocol.Gpu:
    """A board as viewers see it."""
    return protocol.Gpu(
        **{name: getattr(reading, name) for name in AS_READ},
        power_w=None if reading.power_w is None else round(reading.power_w, 2),
        limit_w=reading.limit_w if reading.clocks_w is None else reading.clocks_w,
        parked_w=None if parked_w is None else round(parked_w, 1),
        own_w=None if reading.share is None or reading.own_w is None else round(reading.own_w, 2),
        node=reading.node or None,
    )


def _blank(gpu: protocol.Gpu) -> protocol.Gpu:
    """A board whose driver does not answer: its name is known, its watts are not."""
    return protocol.Gpu(gpu.uuid, gpu.name, None, gpu.limit_w, gpu.parked_w, index=gpu.index, node=gpu.node)


def _short(values: tuple[float | None, ...], digits: int) -> tuple[float | None, ...]:
    return tuple(None if value is None else round(value, digits) for value in values)


def band(outlook: GridForecast) -> protocol.Band:
    """The outlook as charts draw it."""
    same = ("step_s", "realised", "zone", "signal", "source", "how")
    return protocol.Band(
        **{name: getattr(outlook, name) for name in same},
        start=units.iso(outlook.start_s),
        mean_g=_short(outlook.mean, 1),
        lo_g=_short(outlook.lo, 1),
        hi_g=_short(outlook.hi, 1),
    )


def prices(outlook: GridForecast) -> protocol.PriceSlots | None:
    """The prices of the outlook as charts draw them; None if none are known."""
    if outlook.currency is None or all(value is None for value in outlook.price):
        return None

    return protocol.PriceSlots(
        start=units.iso(outlook.start_s),
        step_s=outlook.step_s,
        mean=_short(outlook.price, 5),
        lo=_short(outlook.price_lo, 5),
        hi=_short(outlook.price_hi, 5),
        currency=outlook.currency,
        source=outlook.price_source,
    )


def situation_of(state: JobState, inputs: Inputs, ahead: CourseAhead, watts: float | None) -> protocol.Situation:
    """`ahead` is the state's course, `watts` its power now."""
    decided = state.decision
    if not state.live:
        ended_s = inputs.child.ended_s(state.clock)
        return protocol.Situation.over(None if ended_s is None else units.iso(ended_s))
    since_s = state.asked.since_s
    return protocol.Situation(
        decided=decided.level.name,
        applied=decided.applied.name,
        refused=None if decided.refused is None else protocol.Refusal(decided.refused, decided.level.cap_w),
        held_by=decided.held_by,
        since=None if since_s is None else units.iso(since_s),
        until=None if decided.until_s is None else units.iso(decided.until_s),
        watts=watts,
        ahead=changes(ahead),
    )


def changes(ahead: CourseAhead) -> tuple[protocol.Next, ...]:
    """The next changes of level on a course; its end is none."""
    pairs = itertools.pairwise(ahead.segments)
    found = (protocol.Next(units.iso(b.start_s), b.level.name) for a, b in pairs if a.level.name != b.level.name)
    return tuple(itertools.islice(found, protocol.MOST_AHEAD))


def boundary(state: JobState, inputs: Inputs) -> tuple[protocol.Statement, protocol.Statement]:
    """Why the boundary is what it is, and what counts."""
    spec, host, made = state.spec, machine.host(state, inputs), machine.embodied(state, inputs)
    idle_w = machine.idle_w(state, inputs)
    counts = protocol.statement(
        "boundary_counts",
        kind=spec.boundary,
        gives_back=spec.gives_back,
        host_w=host.watts,
        how=host.how,
        by=host.by,
        band_w=host.band_w,
        pue=spec.pue,
        pue_why=spec.pue_why,
        boards=bool(inputs.devices),
        idle=(math.fsum(idle_w.values()), idle_w.keys() <= state.measured.idle_w.keys()),
        **({} if spec.embodied is None else {"embodied_g": made.g_per_hour if made else None}),
    )
    return protocol.statement("boundary_why", sign=spec.boundary_why), counts
