"""The accounts of one job: metered joules into ledger, watt history and journal; grams, money and avoided from them."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from carbontui import protocol, units
from carbontui.account import accounts
from carbontui.account.accounts import Revision, RunNow, revision
from carbontui.account.boundary import IDLE, place_of
from carbontui.account.elapsed import EXCLUDED, GAP_S, Gap, TimeSpent
from carbontui.grid.types import GridForecast, Row
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.record.chart_history import WattHistory
from carbontui.job.supervisor.record.energy_ledger import EnergyLedger, FirstCounts
from carbontui.job.supervisor.record.place_totals import PlaceTotals
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options
from carbontui.power.messages import Sample
from carbontui.power.metering.meter import Increment, Meter


class CarriedOver(NamedTuple):
    """Sums of the rows of a lost journal, or of the places before this one; None: unknown. `energy_cost` is without
    rent."""

    gco2_g: float | None = 0.0
    energy_cost: float | None = 0.0
    run_now_g: float | None = 0.0
    """Of the places before this one."""


class BookedRow(NamedTuple):
    """An intensity row of the journal without its start: seconds, gCO2/kWh, kind and source."""

    dur_s: float
    value: float
    kind: str
    source: str


HOST = "host"
"""The device name of the host constant in the journal's energy rows."""
PRICE = "price"
REVISED_MOST_S = 60 * 86400.0
"""No grid value is revised later than this; also bounds the request after a clock was set by years."""
ESTIMATED = frozenset({"cpu", "dram", HOST, IDLE})
CLOCK_S = 30.0
"""A wall clock that is off by more than this, beside the monotonic one, has been set (or the machine slept)."""
AWAY: tuple[Gap, ...] = ("queue", "move")
"""Gaps in which the job had no machine."""
SPLIT = "split"
"""`how` of joules that are the job's part of a metered total: others use the board or the CPUs too."""


def is_board(device: str) -> bool:
    """Whether `device` is a board, not a part of a host or what idles ('idle@GPU-a'). Those of other machines carry
    their name, like 'cpu@n2'."""
    return device.partition("@")[0] not in ESTIMATED


@dataclass
class Accounting:
    """The running account of one job. Everything that must survive a respawn goes through `keep` and `restore`."""

    options: Options
    clock: Clock
    journal: Journal
    boot_id: str
    meter: Meter = field(default_factory=Meter)
    ledger: EnergyLedger = field(default_factory=EnergyLedger)
    watts: WattHistory = field(init=False)
    elapsed: TimeSpent = field(init=False)
    first_counts: FirstCounts = field(init=False)
    intensity: accounts.Bins = field(default_factory=accounts.Bins)
    price: accounts.Bins = field(default_factory=accounts.Bins)
    held_s: float = 0.0
    """Job seconds during which GPUs were held, for rent."""
    carried_over: CarriedOver = field(default_factory=CarriedOver)
    revision: Revision | None = None
    """The newest revision that this process has booked."""
    idle_w: Mapping[str, float] = field(default_factory=dict)
    """The job's part of what each device, boards and "cpu", draws without work, as of now."""
    idle_doubts: Mapping[str, float] = field(default_factory=dict)
    """By which share those of boards may be wrong."""
    place_totals: PlaceTotals = field(default_factory=PlaceTotals)
    booked: dict[float, BookedRow] = field(default_factory=dict)
    """The intensity rows of the journal, by start."""
    _share: dict[str, float | None] = field(default_factory=dict)
    """The job's share of each device, as of the last sample."""
    first_gap: Gap | None = "no_supervisor"
    """What a long time before the first look of this process was."""
    _idle_owed_j: float = 0.0
    """What CPU and memory have idled and is still to be subtracted."""
    _carbon: accounts.Running = field(default_factory=accounts.Running)
    _money: accounts.Running = field(default_factory=accounts.Running)
    _run_now: accounts.FromStart = field(default_factory=lambda: accounts.FromStart(0.0))
    _run_now_past: accounts.FromStart = field(default_factory=lambda: accounts.FromStart(0.0))

    def __post_init__(self) -> None:
        start = self.clock.at_wall(self.options.created_s)
        self.watts = WattHistory(start, 60.0 if not self.clock.replay else 900.0)
        self.elapsed = TimeSpent(start)
        self.ledger.pue = self.options.pue
        self.ledger.boundary, self.ledger.gives_back = self.options.boundary, self.options.gives_back
        self.first_counts = FirstCounts(Path(self.options.dir), self.options.created_s)

    def keep(self) -> None:
        """Write what a successor cannot read from the rows into the journal, in one transaction with them."""
        facts = {"ledger": self.ledger.to_dict(), "meter": self.meter.to_dict(self.boot_id), "held_s": self.held_s}
        facts |= {"attempt": self.options.attempt, "lived": asdict(self.elapsed)}
        *before, run_now_g = self.carried_over  # two: what version 0.1 reads
        facts |= {"before": before, "run_now_before_g": run_now_g}
        facts |= self.place_totals.to_kept()
        self.journal.keep("books", facts)

    def carry(self, gco2_g: float | None, cost: float | None, gpus: int) -> None:
        """The journal's rows are lost: continue from their sums. `cost` includes rent."""
        energy_cost = None if cost is None else cost - self._rent(gpus)
        self.carried_over = self.carried_over._replace(gco2_g=gco2_g, energy_cost=energy_cost)
        self.ledger.forget()

    def begin_from(self, gpu_kwh: float, wall_kwh: float) -> None:
        """Start from the last reported energy, if nothing else is left of it."""
        ledger = self.ledger
        ledger.gpu_j = gpu_kwh * units.J_PER_KWH
        ledger.rest_j = wall_kwh * units.J_PER_KWH / ledger.pue - ledger.gpu_j
        ledger.by_how["snapshot"] = ledger.gpu_j + max(0.0, ledger.rest_j)
        ledger.gpu_by_how["snapshot"] = ledger.gpu_j

    # --- joules ---

    def meter_samples(self, samples: Iterable[Sample], state: str, watched: frozenset[str]) -> None:
        """Convert samples of the agent to joules, without boards that the job does not use. What CPU and memory drew
        until the job's share was known is split by it afterwards."""
        for sample in samples:
            known = sample.share is not None or sample.uuid not in self.meter.devices
            if sample.uuid in watched or (known and not is_board(sample.uuid)):
                self._share[sample.uuid] = sample.share
                if sample.uuid not in self.meter.devices and is_board(sample.uuid):
                    for first in self.first_counts.before(sample):
                        self._book(self.meter.add(first, unread=True), state)
                self._book(self.meter.add(sample), state)

    def take_back(self, device: str, rows: list[tuple[float, float, str, str]] | None) -> float:
        """Subtract the rows that the journal has given back, of a board that turned out not to be the job's or of what
        it idles; the joules. Before the training has named its boards all visible ones are counted."""
        if rows is None:
            return 0.0
        for t0, joules, how, state in rows:
            self.ledger.take_back(device, t0, joules, how, state)
            self.elapsed.drew(-joules, state, gpu=is_board(device))
        self.watts.forget(device)
        self.meter.drop([device])
        return sum(joules for _, joules, *_ in rows)

    @property
    def metered_boards(self) -> frozenset[str]:
        """Boards that have been watched or counted for this job."""
        return frozenset(device for device in self.meter.devices if is_board(device))

    def carry_on(self, watched: frozenset[str], ended_wall_s: float | None) -> None:
        """The job is over: count devices not read for a while (a hanging driver) up to its end, as a gap. Without any
        `watched` one (no agent of ours has looked yet) all that have been metered."""
        hosts = {name for name, share in self._share.items() if share is not None and not is_board(name)}
        end_s = min(wall_s := time.time(), math.inf if ended_wall_s is None else ended_wall_s)
        devices = (watched or self.metered_boards) | hosts
        self._book(self.meter.carry_on(devices, time.monotonic() - (wall_s - end_s), end_s), "running")

    def _book(self, increments: Iterable[Increment], state: str) -> None:
        wall = time.time()
        for got in increments:
            # a replay's second lasts `speed` seconds of the job: watts x replayed seconds
            t0, t1 = self.clock.at_wall(got.t0_s), self.clock.at_wall(got.t1_s)
            share = self._share.get(got.uuid)
            speed = (t1 - t0) / (got.t1_s - got.t0_s) if got.t1_s > got.t0_s else self.clock.speed_at(got.t1_s)
            joules = got.joules * speed * (1.0 if share is None else share)
            how = got.method if share is None or got.method == "model" else SPLIT
            since_s = self.place_totals.since_s  # two machines' clocks differ
            t0, t1 = max(t0, since_s), max(t1, since_s)
            self.add(got.uuid, t0, t1, joules, how, state, wall, gpu=is_board(got.uuid))
            self.elapsed.drew(joules, state, gpu=is_board(got.uuid))
            self.watts.add(got.uuid, t0, t1, joules)
            if self.ledger.counted(state) == "above_idle" and (idle_j := self._idle_j(got.uuid, t1 - t0, joules)):
                self.add(f"{IDLE}@{got.uuid}", t0, t1, -idle_j, "model", state, wall, gpu=False)
                self.elapsed.drew(-idle_j, state, gpu=False)
                if state not in EXCLUDED:
                    self.ledger.idle_doubt_j += idle_j * self.idle_doubts.get(got.uuid, 0.0)

    def _idle_j(self, device: str, seconds: float, joules: float) -> float:
        """What of a device's joules is nobody's. Idle watts of CPU and memory are of another moment than their joules:
        what would make a total of theirs fall is subtracted later."""
        idle_j = self.idle_w.get(device, 0.0) * seconds
        if is_board(device):
            return idle_j
        self._idle_owed_j += idle_j
        idle_j = min(max(0.0, joules), self._idle_owed_j)
        self._idle_owed_j -= idle_j
        return idle_j

    def add(
        self, device: str, t0: float, t1: float, joules: float, how: str, state: str, wall_s: float, *, gpu: bool
    ) -> None:
        """Book joules, also to the cost of the move that is under way."""
        self.ledger.add(device, t0, t1, joules, how, state, wall_s, gpu=gpu)
        if state not in EXCLUDED and self.ledger.counted(state) != "nothing":
            self.place_totals.drew(t0, t1, joules)

    def pass_time(
        self,
        now_s: float,
        dt_s: float,
        state: str,
        *,
        steps: int = 0,
        work_s: float = 0.0,
        paused: bool = False,
        unread: bool = False,
        host_w: float = 0.0,
        host_how: str = "model",
    ) -> None:
        """Book the time up to now, which was spent in `state`, and the job's part of the host's watts. `dt_s` passed
        since the last look by the monotonic clock; `steps`, `work_s` and `paused` as in `TimeSpent.advance`;
        `unread`: the boards do not answer."""
        long_s = GAP_S * self.clock.speed
        known, gap = self.elapsed, None
        if self.first_gap is not None:
            # in the queue, and on the way to this machine, the boards are others', and nothing runs
            gap, paused = (self.first_gap if now_s - known.until_s > long_s else None), paused or self.first_gap in AWAY
        elif abs(jump_s := now_s - known.until_s - dt_s) > CLOCK_S * self.clock.speed:
            known.advance(known.until_s + jump_s, state, steps=known.steps_done, gap="clock")
        elif dt_s > long_s or unread:
            gap = "stalled" if dt_s > long_s else "unread"
        since, how = known.until_s, self.ledger.counted(state)
        away, self.first_gap = self.first_gap in AWAY or how == "nothing", None
        if (seconds := known.advance(now_s, state, steps=steps, work_s=work_s, paused=paused, gap=gap)) <= 0 or away:
            return
        if state not in EXCLUDED:
            self.held_s += seconds
        if host_w and how == "whole":
            since, until = max(since, self.place_totals.since_s), max(now_s, self.place_totals.since_s)
            self.add(HOST, since, until, host_w * seconds, host_how, state, time.time(), gpu=False)
            known.drew(host_w * seconds, state, gpu=False)

    # --- grid ---

    def realised(self, rows: Iterable[Row], signal: str, source: str) -> None:
        """Book realised (or, marked, estimated) intensity into the bins of the accounts and the journal. `rows` are all
        that are known for the job's time, not only new ones: a bin is the mean of the rows in it. A value revised by
        the same source is an event. What they say of the time before the job came to this machine is another zone's."""
        spans: list[tuple[float, float, float]] = []
        fresh: list[tuple[float, float, float, str, str, str]] = []
        again: set[float] = set()
        for each in rows:
            if (row := self.place_totals.from_here(each)) is None:
                continue
            spans.append((row.start_s, row.dur_s, row.value))
            told, held = BookedRow(row.dur_s, row.value, row.kind, source), self.booked.get(row.start_s)
            if held == told:
                continue
            if held is not None and held.kind != "forecast" and held.source == source:
                again.update(at for at, _ in accounts.split(row.start_s, row.start_s + row.dur_s))
            self.booked[row.start_s] = told
            fresh.append((row.start_s, row.dur_s, row.value, row.kind, signal, source))
        if not fresh:
            return
        before = {at: self.intensity[at] for at in again if at in self.intensity}
        self.intensity.update_all(spans)
        self.journal.grid(fresh)
        wall_j = {at: self.ledger.bins[at] * self.ledger.pue for at in before}
        found = revision(before, before, self.intensity, wall_j, source)
        if found is not None:
            self.revision = found
            wall = time.time()
            self.journal.event(self.clock.at_wall(wall), wall, "revised", text=found.words, **found._asdict())

    def prices(self, outlook: GridForecast) -> None:
        """Book prices of slots that have begun: exact once published, else forecast and marked so."""
        fresh: list[tuple[float, float, float, str, str, str]] = []
        for index, value in enumerate(outlook.price[: outlook.realised + 1]):
            start = outlook.start_s + index * outlook.step_s
            if value is not None and self.price.update_all([(start, outlook.step_s, value)]):
                published = (
                    index >= len(outlook.price_lo) or outlook.price_lo[index] == outlook.price_hi[index] == value
                )
                kind = "actual" if published else "estimated"
                fresh.append((start, outlook.step_s, value, kind, PRICE, outlook.price_source or outlook.source))
        self.journal.grid(fresh)

    # --- sums ---

    def totals(
        self,
        *,
        start_s: float,
        run_now: RunNow | None,
        nowcast: float | None,
        gpus: int,
        rest: tuple[float, float, float] | None = None,
    ) -> Totals:
        """Energy, grams, avoided and money so far. `nowcast` is used for bins whose value is not known yet.

        Without `run_now` avoided is unknown. `rest`: now, seconds of work left at full speed, and its watts at the
        wall: of these, run-now would have done a part by now.
        """
        start_s = max(start_s, self.place_totals.since_s)
        bins = self.ledger.bins
        changed_j, changed_g, changed_p = bins.take_changed(), self.intensity.take_changed(), self.price.take_changed()
        self._carbon.renew(since := min(changed_j, changed_g), bins.since(since), self.intensity)
        self._money.renew(since := min(changed_j, changed_p), bins.since(since), self.price)
        emitted = self._carbon.total(nowcast)
        unknown = self.carried_over.gco2_g is None or (emitted.weight > 0 and emitted.unknown >= emitted.weight)
        grams = None if unknown else self._at_wall(emitted) + (self.carried_over.gco2_g or 0.0)
        if self._run_now.start_s != start_s:
            self._run_now, self._run_now_past = accounts.FromStart(start_s), accounts.FromStart(start_s)
        for known in (self._run_now, self._run_now_past):
            known.changed(changed_g)
        of_run_now: dict[str, float | None] = {}
        if grams is not None and run_now is not None:
            of_run_now = self._against(grams, run_now, rest, nowcast)
        elapsed = self.elapsed
        return Totals(
            gpu_kwh=self.ledger.gpu_kwh,
            wall_kwh=self.ledger.wall_kwh,
            gco2_g=grams,
            **of_run_now,
            cost=self._cost(gpus),
            gpu_shares=_shares(self.ledger.gpu_by_how),
            shares=_shares(self.ledger.by_how),
            counters=self.meter.verdicts(),
            metered_kwh=units.joules_to_kwh(sum(self.ledger.by_how.values()) * self.ledger.pue),
            idle_doubt_kwh=units.joules_to_kwh(self.ledger.idle_doubt_j * self.ledger.pue),
            here_s=sum(s for state, s in elapsed.by_state.items() if place_of(state) == "here"),
            elapsed_s=elapsed.counted_s,
            steps_apart=elapsed.steps_apart,
            excluded=tuple(self._excluded(nowcast)),
            places=self.place_totals.used(self.elapsed.steps_kept, self.ledger.wall_kwh, grams),
            moves_cost=self.place_totals.cost(self.intensity, nowcast, self.ledger.pue),
            coverage=protocol.Coverage(round(elapsed.metered_s, 3), round(elapsed.gap_s, 3), round(elapsed.lived_s, 3)),
        )

    def _against(
        self, grams: float, run_now: RunNow, rest: tuple[float, float, float] | None, nowcast: float | None
    ) -> dict[str, float | None]:
        """Run-now's grams so far and what is avoided; its grams by now, with the part of the rest that it would have
        done, and where on the clock its work so far ends."""
        before_g = self.carried_over.run_now_g
        if before_g is None:
            return {}
        if not run_now.acted and not self.place_totals.left:
            # it is its own run-now: whatever is to come begins now
            return {"avoided_g": 0.0, "run_now_past_g": grams, "run_now_until_s": None if rest is None else rest[0]}
        start_s, kwh_of = self._run_now.start_s, units.joules_to_kwh
        done = self._run_now.total(run_now.seconds, self.intensity, nowcast)
        ours_g = before_g + kwh_of(run_now.watts * done.value)
        found = {"run_now_g": ours_g, "avoided_g": ours_g - grams, "run_now_until_s": start_s + run_now.seconds}
        if rest is None:
            return {**found}
        now_s, left_s, watts = rest
        past_s = max(run_now.seconds, min(now_s - start_s, run_now.seconds + left_s))
        past = self._run_now_past.total(past_s, self.intensity, nowcast)
        return {**found, "run_now_past_g": ours_g + kwh_of(watts * (past.value - done.value))}

    def _excluded(self, nowcast: float | None) -> Iterator[protocol.Excluded]:
        """What was run to learn about the work: few bins, so they are simply summed."""
        for reason, apart in sorted(self.elapsed.excluded.items()):
            joules = self.ledger.apart[reason]
            values = [(j, self.intensity.get(at, nowcast)) for at, j in joules.items()]
            known, pue = [(j, value) for j, value in values if value is not None], self.ledger.pue
            yield protocol.Excluded(
                reason=reason,
                elapsed_s=round(apart.elapsed_s, 3),
                steps=apart.steps,
                energy_gpu_kwh=round(units.joules_to_kwh(apart.gpu_j), 9),
                energy_wall_kwh=round(units.joules_to_kwh((apart.gpu_j + apart.rest_j) * pue), 9),
                gco2_g=round(math.fsum(units.joules_to_kwh(j * pue) * value for j, value in known), 6)
                if len(known) == len(values)
                else None,
            )

    def _at_wall(self, total: accounts.Total) -> float:
        """Joules of the devices x value per kWh as grams or money at the wall."""
        return units.joules_to_kwh(total.value) * self.ledger.pue

    def _cost(self, gpus: int) -> protocol.Cost | None:
        if self.options.currency is None:
            return None
        money = self._money.total(self.options.price_per_kwh)
        priced = self.options.gpu_price or self.options.price_per_kwh is not None
        if money.unknown >= money.weight and not priced:
            return None  # None from the start, so that a figure never disappears from the account
        if self.carried_over.energy_cost is None:
            return None
        spent = self.carried_over.energy_cost + self._at_wall(money) + self._rent(gpus)
        return protocol.Cost(round(spent, 9), self.options.currency)

    def _rent(self, gpus: int) -> float:
        return (self.options.gpu_price or 0.0) * gpus * self.held_s / 3600.0

    def write(self, *, everything: bool = False) -> None:
        """Write closed rows to the journal."""
        for row in self.ledger.drain(everything=everything):
            self.journal.energy(*row)


def _shares(by_how: Mapping[str, float]) -> dict[str, float]:
    """Share of the joules by how they were metered."""
    total = sum(by_how.values())
    return {how: joules / total for how, joules in by_how.items() if joules > 0} if total > 0 else {}
