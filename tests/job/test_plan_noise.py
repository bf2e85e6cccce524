"""What a new plan must win by is how far this zone's forecasts have been off."""

from dataclasses import replace

import pytest
from states import inputs, job_state, outlook

from carbontui.job.supervisor.core.planning.plan_request import PLAN_NOISE, plan_request


@pytest.mark.parametrize(("measured", "asked"), [(None, PLAN_NOISE), (0.12, 0.12), (0.0, 0.02), (7.0, 0.3)])
def test_a_new_plan_must_win_by_the_measured_error_of_the_forecast(measured, asked):
    state = job_state(outlook=replace(outlook(), difference_error=measured))
    assert plan_request(state, inputs()).ask.uncertainty == asked
