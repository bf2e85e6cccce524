"""One frozen picture of the job, folded from snaps and deltas; drawn by the widgets, narrated by plain output."""

from __future__ import annotations

import math

from msgspec import UNSET, Struct, structs

from carbontui import protocol, units


class ViewState(Struct, frozen=True):
    """Everything a screen shows. `seq` is the last message folded in."""

    seq: int
    status: protocol.Status
    series: protocol.ChartSeries
    plan: protocol.PlanView | None
    frontier: protocol.Frontier | None
    zoomed: bool = False
    """Whether charts show the work alone, not the time to the deadline."""

    @property
    def now_s(self) -> float:
        """The job's clock, epoch seconds; a replay runs faster than real time."""
        return units.from_iso(self.series.now)

    @property
    def start_s(self) -> float:
        """The budget's start, epoch seconds; now where there is no budget."""
        budget = self.status.budget
        return units.from_iso(budget.start) if budget else self.now_s

    @property
    def over(self) -> bool:
        return self.status.state not in protocol.LIVE_STATES


def fold(view_state: ViewState | None, message: protocol.Snap | protocol.Delta) -> ViewState | None:
    """The next picture; None when a delta is missing, so that `view` must be sent again."""
    if isinstance(message, protocol.Snap):
        return ViewState(message.seq, message.status, message.series, message.plan, message.frontier)
    if view_state is None or message.seq != view_state.seq + 1:
        return None
    series = view_state.series
    if message.series is not UNSET:
        series = message.series
    elif message.series_tail is not UNSET:
        series = _append(series, message.series_tail)
    status = view_state.status if message.status is UNSET else message.status
    if message.series is UNSET and message.series_tail is UNSET and message.status is not UNSET:
        # the status carries the same clock; a chart's now must not stand still between columns
        series = structs.replace(series, now=status.measured_at)
    return structs.replace(
        view_state,
        seq=message.seq,
        status=status,
        series=series,
        plan=view_state.plan if message.plan is UNSET else message.plan,
        frontier=view_state.frontier if message.frontier is UNSET else message.frontier,
    )


def _append(series: protocol.ChartSeries, tail: protocol.SeriesTail) -> protocol.ChartSeries:
    watts = series.watts
    if watts is None:
        return structs.replace(series, now=tail.now)
    gpus = {uuid: columns[: tail.from_] for uuid, columns in watts.gpus_w.items()}
    for uuid, columns in tail.gpus_w.items():
        gpus[uuid] = gpus.get(uuid, ()) + columns
    joined = structs.replace(watts, total_w=watts.total_w[: tail.from_] + tail.total_w, gpus_w=gpus)
    return structs.replace(series, now=tail.now, watts=joined)


class PastLevels(Struct, frozen=True):
    """Past levels: one kind (or None) per bucket of equal time."""

    start_s: float
    step_s: float
    kinds: tuple[protocol.LevelKind | None, ...]

    @classmethod
    def of(cls, answer: protocol.HistoryAnswer) -> PastLevels:
        return cls(units.from_iso(answer.watts.start), answer.watts.step_s, answer.kind)

    def at(self, at_s: float) -> protocol.LevelKind | None:
        """The kind of level then; a column that straddles the start of the record takes its first one."""
        index = max(0, math.floor((at_s - self.start_s) / self.step_s))
        return self.kinds[index] if index < len(self.kinds) else None


class Choice(Struct, frozen=True):
    """A budget being considered, in the form `budget` takes: a frontier point or typed text, and the supervisor's
    preview once it has arrived. What is shown comes from one of the two, never from a mix."""

    budget: str
    index: int | None = None
    point: protocol.FrontierPoint | None = None
    deadline_s: float | None = None
    """What `budget` says where the slider made it."""
    previewed: protocol.Previewed | None = None
    error: str = ""

    def finish_s(self, start_s: float) -> float | None:
        """Epoch seconds at which the work would be done; `start_s` is the budget's start."""
        if self.previewed is not None and self.previewed.finish is not None:
            return units.from_iso(self.previewed.finish)
        return None if self.point is None else start_s + self.point.finish_s

    def due_s(self) -> float | None:
        """The deadline it means, epoch seconds; of a typed one, as the supervisor read it."""
        if self.deadline_s is None and self.previewed is not None and self.previewed.plan is not None:
            return units.from_iso(self.previewed.plan.deadline)
        return self.deadline_s

    def gco2_g(self) -> float | None:
        """Of the whole job."""
        return self.previewed.gco2_g if self.previewed is not None else self.point.gco2_g if self.point else None

    def cost(self) -> float | None:
        return self.previewed.cost if self.previewed is not None else self.point.cost if self.point else None

    def plan(self, view_state: ViewState) -> protocol.PlanView | None:
        """The plan a chart draws for it; None while unknown."""
        if self.previewed is not None:
            return self.previewed.plan
        if self.point is None or self.deadline_s is None or view_state.plan is None:
            return None
        finish, due = units.iso(view_state.start_s + self.point.finish_s), units.iso(self.deadline_s)
        return structs.replace(view_state.plan, levels=self.point.levels, finish=finish, deadline=due)


def offline(status: protocol.Status, run: protocol.HistoryAnswer | None = None) -> ViewState:
    """The picture of a finished job, from its last status and its journal."""
    series = protocol.ChartSeries(now=status.measured_at)
    if run is not None:
        series = structs.replace(series, watts=run.watts, intensity=_realised(status, run))
    return ViewState(0, status, series, None, None)


def _realised(status: protocol.Status, run: protocol.HistoryAnswer) -> protocol.Band | None:
    values, known = run.intensity_g, status.intensity
    if known is None or not any(value is not None for value in values):
        return None
    source = status.provenance.get("intensity", protocol.Provenance("integrated", ""))
    return protocol.Band(
        run.watts.start, run.watts.step_s, values, values, values, len(values),
        known.zone, known.signal, source.source, source.how,
    )  # fmt: skip
