"""Makes plans: decides when one is due, asks the worker, puts the answer into the state.

A new plan is made every slot, on a new forecast, on drift of progress, once the watts at full speed are known, and on
every user command; the old one is kept unless the new one gains more than its own uncertainty. When the worker fails,
the plan stays in force; without one the job runs at full speed.
"""

import asyncio
from dataclasses import dataclass, replace

from carbontui import protocol, units
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.core.advance import PlanFailed, PlanMade
from carbontui.job.supervisor.core.planning import answers, expected_end, finish, machine, plan_request, site_plan
from carbontui.job.supervisor.core.planning.course import if_planned
from carbontui.job.supervisor.core.planning.problem import SLOT_S
from carbontui.job.supervisor.core.state import boards, forbidden, plan
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.core.state.job import JobState
from carbontui.job.supervisor.record.disk import Recorder
from carbontui.job.supervisor.shell.door import Door, Ports
from carbontui.job.supervisor.shell.grid import GridReader
from carbontui.job.terms import budget as budgets
from carbontui.job.worker.handle import WorkerHandle, WorkFailed
from carbontui.job.worker.messages import PlanAnswer
from carbontui.protocol import Statement, statement
from carbontui.text.statements import kept

BASE_S = 2.0
"""Previews this close together, as of a slider that is moved, are of one moment: the plan in force is solved once."""
REPLAY_GAP_S = 1.5
"""In a replay slots pass quickly; a plan per slot would take too much of the machine the training runs on."""
FIRST_GAP_S = 0.3
"""Requests this close together share one plan."""
STARTS = statement("cause_start")

WATTS_MOVED, WATTS_GAP_S = 0.1, 15.0
"""A plan is made anew once what counts at full speed or while paused differs from the plan's by this share of full
speed, at most so often: what waits for hours would stand beside figures of other watts until its slot is over."""


@dataclass(eq=False)
class Replanner:
    """Makes at most one plan at a time."""

    door: Door
    worker: WorkerHandle
    grid: GridReader
    journal: Journal
    recorder: Recorder
    ports: Ports
    _why: Statement | None = STARTS
    _due_s: float = 0.0
    _asked_mono: float = float("-inf")
    _task: asyncio.Task[None] | None = None
    _others: site_plan.Others | None = None
    _received: tuple[object, ...] = ()
    _turn_mono: float | None = None
    _base: tuple[tuple[object, ...], JobState, Inputs, protocol.PlanTotals | None] | None = None
    """Of the last previews: what must still hold, what they were asked of, and what the plan in force comes to."""
    _watts_assumed: bool = False
    """Whether the plan in force was made before the watts at full speed were known."""
    _watts: tuple[float, float] | None = None
    """What counted when the plan in force was asked for: at full speed, while paused."""

    def request(self, why: Statement) -> None:
        """Make a new plan at the next opportunity."""
        self._why = self._why or why

    def consider(self, inputs: Inputs) -> None:
        """Start a new plan when one is due and none is being made."""
        state = self.door.state
        if self._task is not None and not self._task.done():
            return
        if state.decision.state in ("done", "failed", "stopped", "lost"):
            return
        if finish.why_no_shifting(state, inputs) is not None:
            return
        if boards.unread(inputs):
            return
        self._receive_others(state, inputs)
        if self._watts_assumed and machine.full_wall_w(state, inputs) is not None:
            # else its grams stand beside the measured ones, perhaps ten times as many, until the slot is over
            self._watts_assumed = False
            self.request(statement("cause_watts_known"))
        elif self._watts is not None and inputs.mono_s - self._asked_mono >= WATTS_GAP_S:
            now = machine.charged_w(state, inputs)
            if max(abs(a - b) for a, b in zip(now, self._watts, strict=True)) > WATTS_MOVED * max(now[0], 1.0):
                self.request(statement("cause_watts_moved"))
        due = inputs.now_s >= self._due_s or bool(self._why) or finish.drifted(state, inputs.now_s)
        gap = REPLAY_GAP_S if state.clock.replay else FIRST_GAP_S
        if due and inputs.mono_s - self._asked_mono >= gap:
            self._asked_mono = inputs.mono_s
            why, self._why = self._why or statement("cause_slot"), None
            self._task = asyncio.ensure_future(self._make(why))

    def _receive_others(self, state: JobState, inputs: Inputs) -> None:
        """Replan, in turn, when the site budget changes or the plans of all jobs together exceed it."""
        received = site_plan.received(state)
        if received == self._received and self._turn_mono is None:
            return
        self._received = received
        others = site_plan.others(state, inputs)
        if not site_plan.matters(self._others, others):
            self._others, self._turn_mono = others, None
        elif self._turn_mono is None:
            self._turn_mono = max(inputs.mono_s + site_plan.turn_s(state), self._asked_mono + site_plan.TURN_S)
        elif inputs.mono_s >= self._turn_mono:
            self._others, self._turn_mono = others, None
            self.request(statement("cause_site"))

    async def _make(self, why: Statement) -> None:
        try:
            failed = await self.grid.forecast(self.ports.read_inputs().now_s)
            if failed:
                self.recorder.say(statement("no_own_forecast", why=failed))
            seen = self.ports.read_inputs()
            self._due_s = self._next_s(seen, SLOT_S)
            self._watts_assumed = machine.full_wall_w(self.door.state, seen) is None
            self._watts = machine.charged_w(self.door.state, seen)
            request = plan_request.plan_request(self.door.state, seen)
            if request is not None:
                self._adopt(request, await self.worker.plan(request.ask), why)
        except WorkFailed as error:
            self._fail(str(error))
        except Exception as error:
            # a planning failure must never end the supervisor: the plan in force stays
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self.ports.wake()

    def _fail(self, why: str) -> None:
        said = statement("no_new_plan", why=why)
        self.recorder.say(said)
        self.door.dispatch(PlanFailed(said))

    def _adopt(self, request: plan_request.PlanRequest, answer: PlanAnswer, why: Statement) -> None:
        state, now, setup = self.door.state, self.ports.read_inputs().now_s, request.setup
        new = answers.from_answer(setup, answer, now, request.deadline_s, request.left_s, state.spec.patience)
        new = answers.with_scarcity(new, answer.budget_g_per_kwh)
        new = replace(new, moved=state.outlook.moved if state.outlook else "")
        total_s = state.progress.total_s
        frontier = answers.frontier_view(answer.frontier, setup, new.view, state.start_s, total_s, state.totals)
        self._due_s = self._next_s(self.ports.read_inputs(), setup.slot_s)
        self.door.dispatch(PlanMade(new, frontier, request.mean_per_kwh))
        self.journal.keep("plan", plan.to_kept(new))
        view = new.view
        gap = view.certificate.gap if view.certificate else None
        grams: dict[str, float | None] = {"gco2_g": view.gco2_g}
        state, inputs = self.door.state, self.ports.read_inputs()
        if (end := expected_end.statement(state, inputs, if_planned(state, inputs, state.most_cap_w))[1]) is not None:
            grams |= {"whole_g": end.gco2_g, "whole_lo_g": end.gco2_lo_g, "whole_hi_g": end.gco2_hi_g}
        facts = {"levels": view.levels, "start": view.start, **grams, "finish": view.finish, "gap": gap}
        self.recorder.event("plan", why=why, **facts)

    def _next_s(self, inputs: Inputs, slot_s: float) -> float:
        """When the next slot has begun, and the jobs before this one in a common budget have planned."""
        return answers.slot_boundary(inputs.now_s, slot_s) + site_plan.turn_s(self.door.state)

    async def preview(self, ask: protocol.Preview) -> protocol.Previewed:
        """The result of another budget or carbon price."""

        def refused(text: str, *, misread: bool = False) -> protocol.Previewed:
            return protocol.Previewed(ask.id, None, None, None, None, None, error=text, misread=misread)

        state, seen = self.door.state, self.ports.read_inputs()
        keep = ask.slot is None and ask.forbid is None  # of some hours, the difference is that of the hours alone
        base, holds = self._base, (keep, state.budget, state.forbidden, state.override, state.plan)
        if base is not None and base[0] == holds and seen.mono_s - base[2].mono_s <= BASE_S:
            _, state, seen, _ = base
        else:
            base = None
        now, reason = state, finish.why_no_shifting(state, seen)
        if reason is not None or state.progress.left_s is None:
            return refused(kept(reason.said, seen.now_s) if reason else "the work is not known")
        try:
            wanted = budgets.parse(ask.budget, seen.now_s) if ask.budget else state.budget
            read: Statement | None = None
            if ask.forbid is not None:
                hours = forbidden.parse(ask.forbid, seen.now_s)
                state = replace(state, forbidden=forbidden.added(state.forbidden, hours))
                read = hours.said
            slot_s = None if ask.slot is None else units.from_iso(ask.slot)
            read = read if slot_s is None else statement("slot", at_s=slot_s)
            asked = plan_request.preview_request(state, seen, wanted, ask.carbon_price, slot_s, keep=keep)
            found = await self._totals(state, seen, asked)
            if found is None:
                return refused("nothing is left to plan")
            if base is None:
                # the plan in force is as old as its slot: beside it solved anew, a difference is that of the request
                asked = plan_request.preview_request(now, seen, now.budget, None, keep=keep)
                self._base = base = holds, now, seen, await self._totals(now, seen, asked)
        except ValueError as error:
            return refused(str(error), misread=True)
        except WorkFailed as error:
            return refused(str(error))
        totals = (found.plan, found.finish, found.gco2_g, found.cost, found.kwh)
        text = "" if read is None else kept(read, seen.now_s)
        return protocol.Previewed(ask.id, *totals, text=text, instead=base[3], said=read)

    async def _totals(
        self, state: JobState, inputs: Inputs, request: plan_request.PreviewRequest | None
    ) -> protocol.PlanTotals | None:
        """What the whole job would come to so; None: nothing is left to plan. Raises WorkFailed."""
        if request is None:
            return None
        answer = await self.worker.preview(request.ask)
        view = answers.from_answer(request.setup, answer, inputs.now_s, request.deadline_s).view
        whole = answers.point_of(state.totals, view, state.start_s)
        return protocol.PlanTotals(view, view.finish, whole.gco2_g, whole.cost, whole.kwh)
