"""A job that waits for its start tells one story: its plan is made anew once other watts count, and all its figures are
in one account's watts until then."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace

from drawn import drawn
from msgspec import structs
from states import NOW_S, door, inputs, job_state

from carbontui.job.supervisor.core.view.shown_plan import scaled
from carbontui.job.supervisor.shell.replanner import Replanner
from carbontui.job.worker.process import solve_plan


def seen(after_s: float, idle_w: float | None):
    now = inputs(NOW_S + 1 + after_s, mono_s=1000.0 + after_s)
    host = structs.replace(now.readings.host, idle_w=idle_w)
    return dataclasses.replace(now, readings=structs.replace(now.readings, host=host))


def test_a_plan_is_made_anew_when_other_watts_count():
    whys, state = [], job_state(budget="3x", boundary="always-on")
    recorder = SimpleNamespace(event=lambda name, **facts: whys.append(drawn(facts["why"])), say=print)
    ports = SimpleNamespace(wake=lambda: None)
    own = door(state)
    made = Replanner(
        own,
        SimpleNamespace(plan=lambda ask: asyncio.sleep(0, solve_plan(ask))),
        SimpleNamespace(forecast=lambda now_s: asyncio.sleep(0, "")),
        SimpleNamespace(keep=lambda *_: None),
        recorder,
        ports,
    )

    async def drive():
        for after_s, idle_w in ((0, None), (10, 26.0), (20, 26.5), (40, 3.0), (60, 3.0)):
            now = seen(after_s, idle_w)
            ports.read_inputs = lambda now=now: now
            made.consider(now)
            for _ in range(20):
                await asyncio.sleep(0)

    asyncio.run(drive())
    assert whys[1:] == ["the watts that count are others now"] * 2, "of the idle ones as read, then as they fell"

    # what is shown in the account's watts is so to its certificate
    view = own.state.plan.view
    twice = scaled(view, 2.0)
    assert twice.certificate.lower_bound == 2 * view.certificate.lower_bound
    assert (twice.gco2_g, twice.price_of_time_g_per_h) == (2 * view.gco2_g, 2 * view.price_of_time_g_per_h)
    assert twice.certificate.gap == view.certificate.gap
