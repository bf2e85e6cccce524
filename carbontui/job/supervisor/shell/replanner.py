"""The supervisor's planner: builds the problem, asks the worker when it is time, holds the plan in force.

A plan is made anew every slot, on a new forecast, on drift of progress, and on every word of a person; the old one is
kept unless the new one gains more than its own uncertainty. When the worker fails, the plan stays; when there is none,
the job runs flat out.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from carbontui import protocol, units
from carbontui.job import budget as budgets
from carbontui.job.supervisor.core import plan as planning
from carbontui.job.supervisor.core import problem
from carbontui.job.supervisor.core.control import FULL, OFF, STILL, Level
from carbontui.job.worker.handle import WorkFailed
from carbontui.job.worker.messages import ForecastAsk, Pauses, PlanAnswer, PlanAsk, PreviewAsk

if TYPE_CHECKING:
    from carbontui.job.supervisor.loop import Supervisor

REPLAY_GAP_S = 1.5
"""In a replay slots fly by; a plan a slot would eat the machine the training runs on."""
FIRST_GAP_S = 0.3
FIRST_PLAN_S = 20.0
"""A start waits no longer than this for a first plan."""
DRIFT_S = 300.0
LATE_TOLERANCE_S = 60.0
LATE_TOLERANCE = 0.01
PLAN_NOISE = 0.05
"""Relative standard error of a difference between two slots' forecasts: what a new plan must win by."""
FORECAST_EVERY_S = 900.0
CURVE_REACH = 1.5
"""How far beyond the budget the frontier goes: what a looser one would save must be seen before it is given."""
CURVE_LEAST = 2.0
"""It reaches this multiple of flat out at least: the default budget leaves no slack of its own."""
CURVE_MOST_S = 3 * 86400.0
"""And no further beyond the deadline than this: what a week of typical days says is not worth its cost."""


class Planner:
    """Plan, frontier, and the questions asked of the worker."""

    def __init__(self, job: Supervisor) -> None:
        self._job = job
        self.plan: planning.Plan | None = None
        self.frontier: protocol.Frontier | None = None
        self.note = ""
        self._setup: problem.Setup | None = None
        self._task: asyncio.Task[None] | None = None
        self._due_s = 0.0
        self._asked_mono = 0.0
        self._born_mono = time.monotonic()
        self._surprise = "start"
        self._forecast_s = float("-inf")
        self._level_since: tuple[str, float] = ("", 0.0)
        self._expected_left: tuple[float, float] | None = None
        self._caps_held = job.caps_hold

    # --- what is known of the machine ---

    def machine(self) -> problem.Machine:
        """Learned watts and latencies; documented defaults until then."""
        job = self._job
        devices = job.devices
        uuids = tuple(reading.uuid for reading in devices)
        count = max(1, len(uuids))
        limits = [reading.limit_found_w or reading.limit_w for reading in devices]
        guess = sum(limit or problem.DEFAULT_FULL_W for limit in limits) / count if limits else problem.DEFAULT_FULL_W
        full, full_measured = job.learned.total("full", uuids, guess)
        parked, parked_measured = job.learned.total("parked", uuids, min(problem.DEFAULT_PARKED_W, guess / 3))
        idle, _ = job.learned.total("idle", uuids, min(problem.DEFAULT_IDLE_W, guess / 6))
        rest = (job.learned.rest_w.value or 0.0) + job.options.host_w
        if not uuids:
            # no board: what the CPU draws at work and at rest takes its place
            rest = job.options.host_w
            full = job.learned.rest_w.value or problem.DEFAULT_CPU_W
            parked = idle = min(full, job.learned.rest_parked_w.value or problem.DEFAULT_CPU_IDLE_SHARE * full)
        speed = job.clock.speed
        learned = job.learned
        return problem.Machine(
            full_w=full,
            full_measured=full_measured,
            parked_w=min(parked, full) if full else parked,
            parked_measured=parked_measured,
            idle_w=min(idle, parked),
            rest_w=rest,
            pue=job.options.pue,
            caps=job.caps if job.caps_hold else (),
            # in a replay one period of a duty cycle would be an hour
            can_duty=job.progress.step > 0 and not job.caps_hold and not job.clock.replay,
            pause_s=min(120.0, (learned.pause_s.value or problem.DEFAULT_PAUSE_S / speed) * speed),
            resume_s=min(600.0, (learned.resume_s.value or problem.DEFAULT_RESUME_S / speed) * speed),
            can_unload=any(p.obs and p.obs.can_unload for p in job.server.ranks) or job.decision.state == "unloaded",
            reload_s=max(problem.DEFAULT_RELOAD_MIN_S, learned.reload_s.value or problem.DEFAULT_RELOAD_S) * speed,
            unload_s=problem.DEFAULT_UNLOAD_S if speed == 1 else speed * problem.DEFAULT_PAUSE_S,
        )

    def aim(self) -> problem.Aim:
        o = self._job.options
        rent = (o.gpu_price or 0.0) * max(1, len(self._job.devices))
        if o.objective == "cost":
            return problem.Aim(1.0, (o.carbon_price or 0.0) / 1e6, rent)
        return problem.Aim(0.0, 1.0, rent)

    def free_reason(self) -> protocol.Reason | None:
        """Why nothing may be paused or delayed; None when a plan may."""
        job = self._job
        if job.progress.total_s is None:
            how = "tell it with --work 8h, --steps N or carbontui.report(total=N)"
            if job.progress.steps_total is not None:
                how = "measuring the speed of a step first"
            return protocol.Reason("no_work", f"flat out: the amount of work is not known yet; {how}")
        if job.feed.zone is None:
            return protocol.Reason("no_zone", f"flat out: {job.options.zone_why or 'the grid zone is not known'}")
        if job.outlook is None or all(value is None for value in job.outlook.mean[job.outlook.realised :]):
            # what nobody expects must not be planned as clean
            return protocol.Reason("no_grid", f"no shifting in time: {job.feed.note or 'no grid source answers'}")
        o = job.options
        priced = o.price_per_kwh is not None or any(value is not None for value in job.outlook.price)
        if o.objective == "cost" and not priced and not o.carbon_price:
            # every hour would cost nothing, and any plan be the best
            text = f"no shifting in time: no electricity price in {o.currency} is known; set price_per_kwh"
            return protocol.Reason("no_grid", text)
        return None

    # --- what the plan says ---

    def level_at(self, now: float) -> tuple[Level | None, float | None, str | None]:
        if self.plan is None:
            # a start that may wait waits for the first plan, which alone knows whether now is a good time
            return (OFF if self._first_plan_is_near() else None), None, None
        level, at, name = self.plan.at(now)
        return (level or FULL), at, name

    def _first_plan_is_near(self) -> bool:
        waiting = self._job.guard.child().state == "waiting"
        return waiting and self.free() and not self.note and time.monotonic() - self._born_mono < FIRST_PLAN_S

    def level_named(self, name: str) -> Level | None:
        return self.plan.table.get(name) if self.plan else None

    def finish_s(self) -> float | None:
        """When the work will be done, epoch seconds; None where the work is unknown, or a person's pause has no end."""
        job = self._job
        left, held, until = job.progress.left_s, job.overrides.current, job.overrides.until_s
        if left is None:
            return None
        if held is not None and until is None:
            # it is planned for its slot alone, and taken to hold
            speed = planning.speed_under(held, self._setup)
            return None if speed is None else job.clock.now() + left / speed
        soonest = self._soonest_s(job.clock.now(), left)
        if self.plan is None or not self.free():
            return soonest
        planned = units.from_iso(self.plan.view.finish)
        # a little behind its plan the job is until the next one; a pause is over when it is over
        slack = 0.0 if held is not None else self._drift_s()
        return soonest if soonest > planned + slack else planned

    def _soonest_s(self, now: float, left: float) -> float:
        """When flat out would be done; a pause with an end is waited for."""
        held, until = self._job.overrides.current, self._job.overrides.until_s
        paused = held is not None and held.mode == "pause" and until is not None
        return (max(now, until) if paused and until is not None else now) + left

    def free(self) -> bool:
        return self.free_reason() is None

    def late(self) -> bool:
        if self.plan is None:
            return False
        return self.plan.view.late_s > self.late_tolerance_s()

    def late_tolerance_s(self) -> float:
        """Behind the deadline by less than this is no news: the default budget has no slack at all."""
        return max(LATE_TOLERANCE_S, LATE_TOLERANCE * (self._job.progress.total_s or 0.0))

    def certificate(self) -> protocol.Certificate | None:
        return self.plan.view.certificate if self.plan else None

    def ahead_s(self, now: float) -> float:
        """How far the outlook must reach: to the end of the frontier, a day at least."""
        deadline = self._job.deadline_s()
        return max(86400.0, (now if deadline is None else self._curve_end_s(deadline)) - now + 3600.0)

    def _curve_end_s(self, deadline: float) -> float:
        start, total = self._job.start_s, self._job.progress.total_s or 0.0
        end = start + max(CURVE_REACH * (deadline - start), CURVE_LEAST * total)
        return max(deadline, min(end, deadline + CURVE_MOST_S))

    # --- making plans ---

    def surprise(self, why: str) -> None:
        """Plan anew at the next opportunity."""
        self._surprise = self._surprise or why

    def consider(self, now: float, mono: float) -> None:
        """Start a new plan when one is due and none is being made."""
        job = self._job
        if self._task is not None and not self._task.done():
            return
        if job.decision.state in ("done", "failed", "stopped", "lost") or not self.free():
            return
        if job.caps_hold != self._caps_held:
            self._caps_held = job.caps_hold
            self.surprise("limits can be set" if job.caps_hold else "limits cannot be set")
        gap = REPLAY_GAP_S if job.clock.replay else FIRST_GAP_S
        due = now >= self._due_s or bool(self._surprise) or self._drifted(now)
        if due and mono - self._asked_mono >= gap:
            self._asked_mono = mono
            why, self._surprise = self._surprise or "slot", ""
            self._task = asyncio.ensure_future(self._make(why))

    def _drifted(self, now: float) -> bool:
        """Whether the work left differs from what the plan expects by more than five minutes or 2 %."""
        left = self._job.progress.left_s
        if self._expected_left is None or left is None or self.plan is None:
            return False
        at, then = self._expected_left
        done = 0.0
        for name, a, b in zip(self.plan.names, self.plan.edges_s, self.plan.edges_s[1:], strict=False):
            level = self.plan.table.get(name)
            if level is not None and b > at and a < now:
                done += level.speed * (min(b, now) - max(a, at))
        return abs(max(0.0, then - done) - left) > self._drift_s()

    def _drift_s(self) -> float:
        return max(DRIFT_S, 0.02 * (self._job.progress.total_s or 0.0))

    def setup(self, now: float, deadline: float, left: float) -> problem.Setup | None:
        job = self._job
        if job.outlook is None or deadline <= now + 1.0 or left <= 0:
            return None
        started = job.guard.child().state != "waiting"
        name = self._level_now(now, started)
        return problem.build(
            now_s=now,
            deadline_s=deadline,
            outlook=job.outlook,
            machine=self.machine(),
            aim=self.aim(),
            work_left_s=left,
            started=started,
            level_now=name,
            age_s=now - self._level_since[1],
            flat_price=job.options.price_per_kwh,
            risk=0.15 if job.options.cautious else 0.0,
        )

    def _pauses(self, setup: problem.Setup, now: float) -> Pauses:
        """How long a pause may be, and how much of the present one is over; a start that waits is no pause."""
        since = self._job.control.still_since_s
        return Pauses(
            max_pause_s=self._job.options.max_pause_s,
            still_s=0.0 if since is None else now - since,
            pausing=tuple(i for i, level in enumerate(setup.levels) if level.kind in ("pause", "unload")),
        )

    def _level_now(self, now: float, started: bool) -> str:
        """The level the job is really at, and since when its group (running or not) has lasted."""
        state = self._job.decision.state
        if not started:
            name = "off"
        elif state == "unloaded":
            name = "unload"
        elif state in ("paused", "pausing"):
            name = "pause"
        else:
            name = self._job.decision.level
        group = "still" if name in STILL else "run"
        if self._level_since[0] != group:
            self._level_since = (group, now)
        return name

    async def _make(self, why: str) -> None:
        job = self._job
        try:
            await self._forecast(job.clock.now())
            now = job.clock.now()
            deadline, left = job.deadline_s(), job.progress.left_s
            self._due_s = planning.slot_boundary(now, problem.SLOT_S)
            if deadline is None or left is None:
                return
            # a deadline that cannot be met is planned to the soonest finish: what lies beyond it must be priced, too
            end = max(deadline, self._soonest_s(now, left))
            setup = self.setup(now, end, left)
            if setup is None:
                return  # the work is done
            reach = now + problem.SLOTS_MAX * setup.slot_s  # in slots of the plan's size, or a preview would be askew
            curve = self.setup(now, max(end, min(self._curve_end_s(deadline), reach)), left)
            assert curve is not None
            fixed = planning.fixed_slots(job.overrides.current, job.overrides.until_s, setup)
            ask = PlanAsk(
                problem=setup.problem,
                curve=curve.problem,
                kept=self.plan.kept(setup) if self.plan else None,
                fixed=fixed,
                start_s=setup.start_s,
                currency=job.options.currency,
                uncertainty=PLAN_NOISE,
                pauses=self._pauses(setup, now),
            )
            self._adopt(setup, await job.worker.plan(ask), why, left, deadline)
        except WorkFailed as error:
            self.note = f"no new plan: {error}"
            job.log(self.note)
        except Exception as error:
            # planning must never take the supervisor along: the plan in force stays
            self.note = f"no new plan: {type(error).__name__}: {error}"
            job.log(self.note)
        finally:
            job.wake()

    def _adopt(self, setup: problem.Setup, answer: PlanAnswer, why: str, left: float, deadline: float) -> None:
        job = self._job
        now = job.clock.now()
        self.note = ""
        self._setup = setup
        self._due_s = planning.slot_boundary(now, setup.slot_s)
        self.plan = planning.from_answer(setup, answer, now, deadline)
        if self.late():
            self.plan = planning.said_late(self.plan)
        self._expected_left = (setup.start_s, left)
        spent = planning.Spent(
            job.sums.gco2_g or 0.0, job.sums.cost.value if job.sums.cost else 0.0, job.books.ledger.wall_kwh
        )
        self.frontier = planning.frontier_view(
            answer.frontier, setup, self.plan.view, job.start_s, job.progress.total_s, spent
        )
        job.journal.keep("plan", self.plan.to_dict())
        job.event(
            "plan",
            why=why,
            levels=self.plan.view.levels,
            start=self.plan.view.start,
            gco2_g=self.plan.view.gco2_g,
            finish=self.plan.view.finish,
            gap=self.plan.view.certificate.gap if self.plan.view.certificate else None,
        )

    async def _forecast(self, now: float) -> None:
        """Have the worker forecast when there is history to learn from and the last forecast has aged a slot."""
        job = self._job
        if now - self._forecast_s < FORECAST_EVERY_S:
            return
        request = job.feed.forecast_request(now, int(self.ahead_s(now) // problem.SLOT_S) + 1, problem.SLOT_S)
        if request is None:
            return
        self._forecast_s = now
        try:
            job.feed.adopt(await job.worker.forecast(ForecastAsk(request=request)))
        except WorkFailed as error:
            job.log(f"no own forecast: {error}")
        job.senses.look(job.clock.now())

    async def preview(self, ask: protocol.Preview) -> protocol.Previewed:
        """What another budget or carbon price would give."""

        def refused(text: str) -> protocol.Previewed:
            return protocol.Previewed(ask.id, None, None, None, None, None, error=text)

        job = self._job
        reason = self.free_reason()
        left = job.progress.left_s
        if reason is not None or left is None:
            return refused(reason.text if reason else "the work is not known")
        now = job.clock.now()
        try:
            wanted = budgets.parse(ask.budget, now) if ask.budget else job.budget
        except ValueError as error:
            return refused(str(error))
        deadline = wanted.deadline_s(job.start_s, job.progress.total_s)
        # a deadline flat out cannot meet is planned as flat out, and says it is late
        setup = self.setup(now, max(deadline or now, self._soonest_s(now, left)), left)
        if setup is None:
            return refused("nothing is left to plan")
        setup = planning.with_price(setup, ask.carbon_price)
        fixed = planning.fixed_slots(job.overrides.current, job.overrides.until_s, setup)
        try:
            answer = await job.worker.preview(
                PreviewAsk(problem=setup.problem, fixed=fixed, pauses=self._pauses(setup, now))
            )
        except WorkFailed as error:
            return refused(str(error))
        view = planning.from_answer(setup, answer, now).view
        spent_g, spent_cost = job.sums.gco2_g or 0.0, job.sums.cost.value if job.sums.cost else 0.0
        return protocol.Previewed(
            ask.id,
            view,
            view.finish,
            spent_g + view.gco2_g,
            spent_cost + view.cost,
            job.books.ledger.wall_kwh + view.kwh,
        )

    def restore(self, kept: dict[str, object] | None) -> None:
        """The predecessor's plan, until a new one is made."""
        self.plan = planning.Plan.from_dict(kept)
        self._asked_mono = time.monotonic() - 60.0
