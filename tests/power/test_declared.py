"""Boards whose power cannot be read: a person's TDP x utilisation stands in, never for what is measured, never 0 W."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbontui.power.agent.core import Agent
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, RawReading
from carbontui.power.backends.declared import DeclaredBackend, DeclaredBoards
from carbontui.power.messages import DesiredPower, Report
from carbontui.power.metering.meter import Meter
from carbontui.power.metering.rapl import Host


class Mute(Backend):
    """One board, whose driver tells what the test wants it to."""

    name, driver = "nvml", "550"

    def __init__(self, **look):
        self.told = RawReading(**look)

    def devices(self):
        return (DeviceInfo(uuid="GPU-1", name="NVIDIA GRID T4-8Q", index=0),)

    def sample(self, uuid):
        return self.told


def over(beneath, activity=1.0, **said):
    backend = DeclaredBackend(beneath, DeclaredBoards(**{"tdp_w": 250.0, **said}))
    backend.open()
    backend.drive(activity, 1.0)
    return backend


def test_a_board_that_is_measured_stays_measured():
    for told in ({"power_w": 80.0, "kind": "instant"}, {"energy_uj": 5}):
        assert over(Mute(**told)).sample("GPU-1") == RawReading(**told)
    assert over(Mute(lost=True)).sample("GPU-1").lost


def test_unread_watts_are_tdp_times_the_given_utilisation_else_the_drivers():
    assert over(Mute(util=0.3), utilisation=0.8).sample("GPU-1").power_w == 200.0
    found = over(Mute(util=0.3, errors=(("power_w", 3), ("temp_c", 3)))).sample("GPU-1")
    assert (found.power_w, found.kind, found.errors) == (75.0, "model", (("temp_c", 3),))
    assert over(Mute()).sample("GPU-1").power_w == 250.0
    assert over(Mute(limit_mw=150_000)).sample("GPU-1").power_w == 150.0, "a limit in force bounds it"


def test_parked_and_idle_boards_draw_less_than_working_ones():
    at_work, parked, idle = (over(Mute(), activity).sample("GPU-1").power_w for activity in (1.0, 0.0, None))
    assert at_work == 250.0 and parked == pytest.approx(250 / 3, abs=0.01) and idle == pytest.approx(250 / 6, abs=0.01)


@given(
    st.floats(1, 10_000), st.none() | st.floats(0.001, 1), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1),
    st.floats(0.01, 1),
)  # fmt: skip
def test_never_zero_and_never_above_the_tdp(tdp_w, given_share, util, activity, duty):
    watts = DeclaredBoards(tdp_w=tdp_w, utilisation=given_share).watts(activity, duty, util)
    assert 0 < watts <= tdp_w * (1 + 1e-9)


def test_without_a_driver_the_boards_are_those_that_were_declared():
    backend = over(Backend(), name="T4", count=2, utilisation=0.5)
    assert [info.name for info in backend.devices()] == ["T4", "T4"]
    with pytest.raises(DeviceError):
        backend.set_limit_mw("GPU-declared-0", 100_000)
    now, sent = [100.0], []
    agent = Agent(sent.append, backend, Host(), None, "j", clock=lambda: now[0], wall=lambda: 1e9 + now[0])
    agent.wish(DesiredPower(gen=1, watch=("GPU-of-rocm",), activity=1.0))
    agent.open()
    meter = Meter()
    for _ in range(4):
        now[0] += 1.0
        agent.sample()
    reports = [message for message in sent if isinstance(message, Report)]
    reading = reports[-1].readings.devices[0]
    assert reading.watched and reading.power_w == 125.0 and reading.power_kind == "model"
    assert reading.caps["limit"].support == "not_supported"
    for report in reports:
        for sample in report.samples:
            meter.add(sample)
    assert meter.by_method("GPU-declared-0") == {"model": pytest.approx(375.0)}
