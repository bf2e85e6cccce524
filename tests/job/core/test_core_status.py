"""What people see: every number with where it is from, and none where it is not known."""

from dataclasses import replace

import msgspec
import pytest
from drawn import drawn, drawn_plan
from states import CAP, FULL, NOW_S, PAUSE, board, decided, inputs, job_state, outlook, plan_of, rank, settled, shown

from carbontui import protocol, units
from carbontui.job.supervisor.core.state.boards import Boards
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.measured import Mean, Measured
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.core.state.progress import Progress
from carbontui.job.supervisor.core.view import notices as core_notices
from carbontui.job.supervisor.core.view import status as core
from carbontui.job.terms.child import Child
from carbontui.job.terms.clock import Clock
from carbontui.plan.results import Explanation
from carbontui.power.backends.simulated import SimulatedSpec
from carbontui.power.messages import HostReading, Readings
from carbontui.text import figures

REPLAY = Clock(60.0, NOW_S, NOW_S)
CPU = HostReading(cpu_w=80.0, dram_w=12.0, how="measured", source="RAPL")


def decision(name="running", level="full", code="plan"):
    return decided(name, level, code, "x")


def status(state=None, seen=None, **fields):
    known = state or job_state(decision=decision(), **fields)
    return shown(known, seen or read(board()))


def read(*devices, host=HostReading(), age_s=0.5, **fields):
    readings = Readings(mono_s=1100.0 - age_s, backend="nvml", devices=devices, host=host)
    return inputs(readings=readings, **fields)


# --- watts ---


def test_the_power_of_a_job_is_that_of_its_boards_cpu_and_memory():
    told = status(seen=read(board(power_w=600.0), board("GPU-b", power_w=400.0), host=CPU))
    assert told.power_w == 1092.0
    assert told.provenance["power_w"] == protocol.Provenance("measured", "nvml; CPU and memory measured", 0.5)


def test_a_board_that_is_not_the_jobs_is_neither_shown_nor_summed():
    told = status(seen=read(board(power_w=600.0), board("GPU-z", power_w=400.0, watched=False)))
    assert [gpu.uuid for gpu in told.gpus] == ["GPU-a"] and told.power_w == 600.0


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ({}, read(board(), board("GPU-b", power_w=None))),
        ({}, read(board(), metered=frozenset({"GPU-a", "GPU-b"}))),
        ({"boards": Boards(named=("GPU-a",))}, read(host=CPU)),
        ({}, read(board(), age_s=5.0)),
        ({"decision": decision("done")}, read(board())),
        ({}, read(host=HostReading())),
    ],
    ids=["a board cannot be read", "a board is gone", "none of its boards", "old readings", "over", "nothing is read"],
)
def test_no_power_is_told_where_it_would_be_wrong(state, seen):
    assert status(job_state(**{"decision": decision(), **state}), seen).power_w is None


def test_energy_without_a_board_that_cannot_be_read_says_so():
    told = status(seen=read(board(), board("GPU-b", power_w=None)))
    assert told.provenance["energy_gpu_kwh"].source.endswith("; a GPU that cannot be read is not in it")
    assert told.provenance["energy_wall_kwh"].source.endswith("; a GPU that cannot be read is not in it")


def test_boards_of_a_silent_driver_are_known_by_name_alone():
    (gpu,) = status(seen=read(board(power_w=600.0, util=0.9, memory_used_b=5), age_s=6.0)).gpus
    assert (gpu.power_w, gpu.util, gpu.memory_used_b) == (None, None, None)
    assert (gpu.uuid, gpu.name, gpu.limit_w) == ("GPU-a", "H100", 700.0)


def test_without_a_gpu_the_cpus_watts_are_the_jobs():
    told = status(seen=read(host=CPU))
    assert told.power_w == 92.0 and told.provenance["power_w"] == protocol.Provenance("measured", "RAPL", 0.5)
    guess = read(host=HostReading(cpu_w=65.0, how="estimated", source="load x 65 W"))
    assert status(seen=guess).provenance["power_w"].how == "estimated"


def test_the_limit_of_a_clock_lock_is_what_it_is_steered_to_and_an_estimate():
    told = status(seen=read(board(limit_w=700.0, clocks_w=310.0)))
    assert told.gpus[0].limit_w == 310.0 and told.provenance["gpus.0.limit_w"].how == "estimated"
    assert "gpus.0.limit_w" not in status().provenance


def test_parked_watts_are_told_once_learned():
    known = job_state(decision=decision(), measured=Measured(parked_w={"GPU-a": Mean(90.04, 9)}))
    told = status(known, read(board(), board("GPU-b")))
    assert [gpu.parked_w for gpu in told.gpus] == [90.0, None]
    assert told.provenance["gpus.0.parked_w"].how == "measured" and "gpus.1.parked_w" not in told.provenance


# --- where numbers are from ---


def how(told, name):
    return told.provenance[name].how


def test_every_number_of_a_simulated_board_says_simulated():
    known = job_state(
        simulated=SimulatedSpec(), decision=decision(), measured=Measured(parked_w={"GPU-a": Mean(118.0, 9)})
    )
    told = status(known)
    names = ("gpus.0.power_w", "gpus.0.parked_w", "power_w", "energy_gpu_kwh", "energy_wall_kwh", "gco2_g")
    assert {how(told, name) for name in names if name != "gco2_g"} == {"simulated"}
    assert how(told, "gco2_g") == "simulated", "grams are no better known than the joules they come from"


def test_a_replay_is_called_one_in_energy_and_grams():
    told = status(clock=REPLAY)
    assert {how(told, name) for name in ("energy_gpu_kwh", "energy_wall_kwh", "gco2_g", "avoided_g")} == {"replay"}


@pytest.mark.parametrize(("counter", "how_told"), [(0.96, "measured"), (0.9, "integrated"), (0.0, "integrated")])
def test_energy_is_measured_where_counters_counted_all_but_what_sensors_err_by(counter, how_told):
    shares = {"counter": counter, "integrated": 1 - counter}
    told = status(totals=Totals(gpu_shares=shares, shares=shares))
    assert how(told, "energy_gpu_kwh") == how_told and how(told, "energy_wall_kwh") == how_told
    shown = told.provenance["energy_gpu_kwh"].source
    assert f"{figures.percent(1 - counter)} integrated" in shown
    assert shown.startswith(figures.percent(max(shares.values())))


def test_energy_before_anything_was_metered_says_so():
    told = status()
    assert told.provenance["energy_gpu_kwh"].source == "nothing metered yet"


def test_the_energy_of_a_machine_without_a_gpu_is_an_estimate_at_the_wall():
    assert how(status(seen=read(host=CPU)), "energy_wall_kwh") == "estimated"


def test_grams_by_a_default_intensity_are_estimated():
    default = replace(outlook(), how="default", source="yearly mean of DE")
    told = status(outlook=default, totals=Totals(gpu_shares={"counter": 1.0}))
    assert how(told, "energy_gpu_kwh") == "measured" and how(told, "gco2_g") == "estimated"
    assert told.provenance["gco2_g"].source == "yearly mean of DE"


def test_an_intensity_has_its_source_and_age():
    told = status(outlook=outlook(300.0, 280.0))
    assert told.intensity == protocol.Intensity(300.0, "average_direct", "DE")
    late = status(outlook=replace(outlook(300.0), known_until_s=NOW_S - 10800)).intensity
    assert late.known_until == units.iso(NOW_S - 10800) and late.age_s == 10900
    assert told.provenance["intensity"] == protocol.Provenance("forecast", "a test", 100.0)


def test_the_error_of_the_forecasts_so_far_and_the_fuels_that_moved_are_told():
    so_far = tuple(protocol.ForecastError(lead, 300, round(0.03 * lead**0.5, 4), 0.1, 0.79) for lead in (1, 24))
    told = status(outlook=replace(outlook(300.0), accuracy=so_far, moved="coal +2.1 GW since 16:00"))
    assert [(x.lead_h, x.hours, x.error) for x in told.forecast_errors] == [(1, 300, 0.03), (24, 300, 0.147)]
    words = told.provenance["forecast_errors"].source
    assert words.startswith("off by 3, 15 % at 1, 24 h ahead") and "band held 79 % of 300 hours" in words
    assert told.provenance["intensity"].source == "a test; moved by coal +2.1 GW since 16:00"
    assert status(outlook=outlook(300.0)).forecast_errors == ()
    made = job_state(
        decision=decision(),
        plan=replace(plan_of(FULL), explanation=Explanation(verdict="best"), moved="coal +2.1 GW since 16:00"),
    )
    assert drawn_plan(made, inputs()).explanation.endswith("The grid: coal +2.1 GW since 16:00.")


def test_without_a_grid_there_is_no_intensity_and_grams_are_estimates():
    told = status(job_state(decision=decision(), outlook=None))
    assert told.intensity is None and "intensity" not in told.provenance
    assert told.provenance["gco2_g"] == protocol.Provenance("estimated", "no grid source")


def test_what_was_avoided_says_whether_its_watts_were_measured():
    assert "assumed full watts" in status().provenance["avoided_g"].source
    known = job_state(decision=decision(), measured=Measured(full_w={"GPU-a": Mean(600.0, 9)}))
    assert "measured full watts" in status(known).provenance["avoided_g"].source


def test_what_is_not_known_is_none_and_not_nought():
    told = status(totals=Totals(gpu_kwh=1.0))
    assert told.gco2_g is None and told.avoided_g is None and told.cost is None
    assert told.energy_gpu_kwh == 1.0


# --- what comes ---


def test_the_next_change_is_the_plans_where_it_is_followed():
    told = status(plan=plan_of(FULL, PAUSE, FULL))
    assert told.next == protocol.Next("2027-01-15T08:15:00.000Z", "pause")
    assert status(plan=plan_of(FULL, FULL)).next is None, "the finish is no change"


def test_the_next_change_under_an_override_is_to_the_level_after_its_end():
    pause = protocol.Override("pause", None, None, "ada")
    timed = settled(
        job_state(override=Overrides(pause, 4, NOW_S + 1800), plan=plan_of(FULL, FULL, FULL)), read(board())
    )
    assert status(timed).next == protocol.Next("2027-01-15T08:30:00.000Z", "full")
    assert status(timed).override_gen == 4
    assert status(settled(job_state(override=Overrides(pause, 4)), read(board()))).next is None


def test_a_plan_that_is_not_followed_announces_nothing():
    known = job_state(plan=plan_of(FULL, PAUSE), decision=decision(code="no_zone"))
    assert status(known, inputs(zone=None)).next is None


def test_the_finish_is_told_while_the_job_lives():
    known = job_state(decision=decision(), plan=plan_of(FULL, FULL), work_s=1800.0)
    assert status(known).finish_expected == "2027-01-15T08:30:00.000Z"
    assert status(known).provenance["finish_expected"].how == "forecast"
    over = status(replace(known, decision=decision("done")))
    assert over.finish_expected is None and "finish_expected" not in over.provenance


def test_the_budget_is_told_as_a_multiple_of_flat_out_once_that_is_known():
    told = status(budget="3h", work_s=7200.0).budget
    assert told == protocol.BudgetStatus("2027-01-15T08:00:00.000Z", "2027-01-15T11:00:00.000Z", 1.5, True)
    told = status(budget="2x", work_s=None).budget
    assert (told.deadline, told.factor, told.work_known) == (None, None, False)


# --- the training ---


def test_the_training_is_told_as_rank_0_told_it():
    leader = rank(rate=12.5, loss=0.3, epoch=1.5)
    told = status(
        progress=Progress(step=57, steps_total=100), seen=read(board(), ranks=(rank(rank=1, rate=9.0), leader))
    )
    assert (told.step, told.steps_total, told.clients) == (57, 100, 2)
    assert (told.rate_steps_per_s, told.epoch) == (12.5, 1.5)


def test_a_training_that_left_has_its_last_loss_and_no_rate():
    told = status(loss=protocol.Loss(0.25))
    assert told.loss_value == 0.25 and told.rate_steps_per_s is None


def test_an_exit_is_told_and_an_unload_is_none():
    ended = read(board(), child=Child("exited", code=3))
    assert status(seen=ended).exit == protocol.Exit(3, None)
    assert status(seen=read(board(), child=Child("exited", code=85, unloaded=True))).exit is None
    assert status().exit is None


def test_a_status_is_read_by_viewers_as_it_was_written():
    known = job_state(
        decision=decision("throttled", CAP.name), plan=plan_of(CAP, FULL), totals=Totals(gco2_g=1.23456789)
    )
    told = status(known, read(board(), host=CPU, ranks=(rank(loss=0.1),)))
    assert msgspec.json.decode(msgspec.json.encode(told), type=protocol.Status) == told


def test_charts_get_the_outlook_as_it_is_gaps_included():
    band = core.band(outlook(300.04, None, 200.0, realised=1))
    assert band.mean_g == (300.0, None, 200.0) and band.realised == 1 and band.start == "2027-01-15T08:00:00.000Z"


def test_what_is_split_is_said_to_be() -> None:
    shared = board(foreign_pids=(9,), foreign_user="job resnet (pid 9)", share=0.25)
    state = job_state(totals=Totals(gpu_shares={"split": 0.9, "counter": 0.1}))
    told = shown(state, inputs(boards=(shared,)))
    assert (told.gpus[0].power_w, told.gpus[0].own_w, told.power_w) == (600.0, 150.0, 150.0)
    assert told.provenance["gpus.0.own_w"].how == "estimated"
    assert "shared, split" in told.provenance["power_w"].source
    assert told.provenance["energy_gpu_kwh"].how == "estimated"
    assert "90 % shared, split" in told.provenance["energy_gpu_kwh"].source
    (line,) = core_notices.board_notices([shared], 0.0)
    assert "job resnet" in drawn(line) and "150 of 600 W are this job's" in drawn(line)
