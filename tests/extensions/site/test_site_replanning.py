"""A supervisor plans anew for the machine's budget: when it is set, when plans clash, in turn, and not for nothing."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2] / "job"))
from drawn import drawn
from states import NOW_S, board, door, inputs, job_state, rank

from carbontui.headroom import Claim, Headroom
from carbontui.job.supervisor.core.advance import SiteShare
from carbontui.job.supervisor.core.planning import plan_request, site_plan
from carbontui.job.supervisor.core.rules import site_claim
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.shell.replanner import Replanner
from carbontui.job.worker.process import solve_plan


class Made:
    """A replanner on a worker that answers at once; `whys` are the reasons of its plans."""

    def __init__(self) -> None:
        self.door = door(job_state(caps_hold=True, budget="3x"))
        self.whys: list[str] = []
        self.said: list[str] = []
        self.seen = None
        recorder = SimpleNamespace(
            event=lambda name, **facts: self.whys.append(drawn(facts["why"])),
            say=lambda line: self.said.append(drawn(line)),
        )
        grid = SimpleNamespace(forecast=lambda now_s: asyncio.sleep(0, ""))
        worker = SimpleNamespace(plan=lambda ask: asyncio.sleep(0, solve_plan(ask)))
        journal = SimpleNamespace(keep=lambda *_: None)
        ports = SimpleNamespace(read_inputs=lambda: self.seen, wake=lambda: None)
        self.made = Replanner(self.door, worker, grid, journal, recorder, ports)

    async def observe(self, after_s: float, share: Headroom | None) -> None:
        self.door.dispatch(SiteShare(share))
        self.seen = inputs(NOW_S + 1 + after_s, mono_s=1000.0 + after_s, boards=(board(),), ranks=(rank(),))
        self.made.consider(self.seen)
        for _ in range(20):
            await asyncio.sleep(0)


def share(*others: Claim, cap_w: float = 900.0) -> Headroom:
    return Headroom(700.0, cap_w, True, 0.0, 0.0, others)


def told(made: Made, name: str) -> Claim:
    """What another job of the same plan tells."""
    known = replace(made.door.state, spec=msgspec.structs.replace(made.door.state.spec, job=name))
    seen = inputs(NOW_S + 1, boards=(board(),), ranks=(rank(),))
    return site_claim.claim(replace(known, site=share()), seen)


async def test_a_budget_and_a_clash_are_planned_around_in_turn_and_once():
    made = Made()
    await made.observe(0.0, None)
    await made.observe(1.0, None)
    assert made.whys == ["start"]
    await made.observe(5.0, share())
    await made.observe(6.0, share())
    assert made.whys == ["start", "site budget"]
    clash = share(told(made, "a"))  # the same hours, 700 W each
    await made.observe(20.0, clash)
    await made.observe(20.5 + site_plan.TURN_S / 2, clash)
    assert len(made.whys) == 2  # "a" comes first
    await made.observe(21.0 + site_plan.TURN_S, clash)
    assert made.whys[2:] == ["site budget"]
    mine = site_claim.claim(made.door.state, made.seen)
    assert site_plan.others(made.door.state, made.seen).clash == (), "it has made room"
    assert mine.ahead.planned != clash.others[0].ahead.planned
    for later in range(30, 60):
        await made.observe(float(later), clash)
    assert len(made.whys) == 3
    await made.observe(70.0, None)
    await made.observe(76.0, None)
    assert made.whys[3:] == ["site budget"]


async def test_once_the_watts_are_measured_the_assumed_ones_are_planned_with_no_longer():
    """The grams of a plan on assumed watts stood beside the measured ones until the slot was over."""
    made = Made()
    await made.observe(0.0, None)
    assumed_g = made.door.state.plan.view.gco2_g
    made.door.state = replace(made.door.state, measured=Measured(full_w={"GPU-a": Mean(100.0, 1)}))
    await made.observe(1.0, None)
    await made.observe(2.0, None)
    assert made.whys == ["start", "the watts at full speed are known"]
    assert made.door.state.plan.view.gco2_g < assumed_g / 2


async def test_the_worker_answers_what_shared_watts_cost_in_every_slot():
    made = Made()
    await made.observe(0.0, None)
    state = replace(made.door.state, site=share(told(made, "a")))
    ask = plan_request.plan_request(state, made.seen).ask
    assert len(solve_plan(ask).budget_g_per_kwh) == len(ask.problem.slots.dur_s)
