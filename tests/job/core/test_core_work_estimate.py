"""The estimate of the whole work in grams and money, from a state of the job."""

import random
from dataclasses import replace

import pytest
from states import NOW_S, board, inputs, job_state, outlook

from carbontui import protocol
from carbontui.account.estimate import Blocks
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.supervisor.core.view import work_estimate
from carbontui.text import account as account_words


def estimate(**fields):
    dice = random.Random(7)
    blocks = Blocks(times=tuple(1.0 + dice.uniform(-0.05, 0.05) for _ in range(60)))
    state = job_state(
        progress=Progress(steps_total=7200, step=60, blocks=blocks),
        measured=Measured(full_w={"GPU-a": Mean(600.0, 100)}),
        **fields,
    )
    return work_estimate.estimate(state, inputs(NOW_S, boards=(board(),)))


def test_grams_and_money_have_intervals_too_that_hold_the_forecasts_error():
    flat = estimate(currency="EUR", price_per_kwh=0.3, gpu_price=2.0)
    assert flat.gco2_g == pytest.approx(flat.energy_wall_kwh * 300.0, rel=1e-6)
    assert flat.gco2_lo_g < flat.gco2_g < flat.gco2_hi_g
    assert flat.cost == pytest.approx(flat.energy_wall_kwh * 0.3 + 2.0 * flat.work_s / 3600.0, rel=1e-5)
    assert flat.cost_lo < flat.cost < flat.cost_hi and flat.currency == "EUR"
    banded = replace(outlook(*[300.0] * 96), lo=(200.0,) * 96, hi=(400.0,) * 96)
    assert estimate(outlook=banded).gco2_hi_g > flat.gco2_hi_g


def test_what_is_not_known_is_left_out():
    bare = estimate(outlook=None)
    assert bare.gco2_g is None and bare.cost is None and bare.energy_wall_kwh is not None
    assert [label for label, _ in account_words.estimate_rows(bare)] == ["time", "energy", "load"]
    plain = protocol.Estimate(work_s=80160.0, work_lo_s=79500.0, work_hi_s=80820.0)
    assert account_words.estimate(plain) == "22 h 16 at full speed (22 h 05 to 22 h 27)"
