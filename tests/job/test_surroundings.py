"""Who pays for a machine, guessed from where `run` is called, and what follows for stillness, PUE and host watts."""

from dataclasses import replace

import pytest
from msgspec import structs
from states import NOW_S, OFF, PAUSE, UNLOAD, board, inputs, job_state, policy

from carbontui.config import Settings
from carbontui.job.life import launch
from carbontui.job.supervisor.core.planning import machine, plan_request, problem
from carbontui.job.supervisor.core.state.decision import Desired
from carbontui.power.messages import HostReading
from carbontui.text import statements

SLURM = {"SLURM_JOB_ID": "7"}


def of(environment, tmp_path, *, maker="", product="", resubmit=False, **settings):
    if maker:
        (tmp_path / "sys_vendor").write_text(f"{maker}\n")
        (tmp_path / "product_name").write_text(f"{product}\n")
    return launch.terms(Settings(**settings), environment, resubmit=resubmit, dmi=tmp_path)


@pytest.mark.parametrize(
    ("environment", "more", "expected"),
    [
        ({}, {}, ("always-on", "workstation", 1.0, None)),
        (SLURM, {}, ("held", "slurm", 1.2, 1800.0)),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {}, ("held", "kubernetes", 1.2, 1800.0)),
        ({}, {"gpu_price": 2.4}, ("held", "rented", 1.0, None)),
        ({}, {"host_w": 150.0}, ("always-on", "workstation", 1.0, None)),
        ({}, {"maker": "Google", "product": "Google Compute Engine"}, ("held", "cloud", 1.09, None)),
        ({}, {"maker": "Microsoft Corporation", "product": "Virtual Machine"}, ("held", "cloud", 1.16, None)),
        ({}, {"maker": "Microsoft Corporation", "product": "Surface"}, ("always-on", "workstation", 1.0, None)),
        (SLURM, {"boundary": "given-back", "pue": 1.5}, ("given-back", "", 1.5, None)),
        (SLURM, {"idle_limit": "1h"}, ("held", "slurm", 1.2, 3600.0)),
        (SLURM, {"idle_limit": "none"}, ("held", "slurm", 1.2, None)),
    ],
)
def test_the_boundary_is_guessed_by_where_a_job_is_started(environment, more, expected, tmp_path) -> None:
    found = of(environment, tmp_path, **more)
    assert tuple(found[name] for name in ("boundary", "boundary_why", "pue", "idle_limit_s")) == expected


def test_an_idle_limit_that_is_no_time_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(ValueError, match="--idle-limit: 'soon'"):
        of(SLURM, tmp_path, idle_limit="soon")


def test_held_boards_stand_still_no_longer_than_the_limit_and_given_back_ones_do() -> None:
    def level(planned, still_s: float, **more):
        asked = Desired(still_since_s=NOW_S + 100.0 - still_s)
        return policy(planned, asked=asked, idle_limit_s=1800.0, **more)[1].level.kind

    assert level(PAUSE, 1700.0) == "pause" and level(PAUSE, 1900.0) == "full"
    assert level(OFF, 1900.0) == "full", "held before the start too"
    assert level(UNLOAD, 7200.0, gives_back=True) == "unload"


def test_a_plan_limits_every_stillness_that_keeps_held_boards() -> None:
    known = problem.Machine(can_unload=True)
    for spec, kinds, longest in (
        ({}, {"pause", "unload"}, 12 * 3600.0),
        ({"boundary": "held", "idle_limit_s": 1800.0}, {"pause", "unload", "off"}, 1800.0),
        ({"boundary": "held", "idle_limit_s": 1800.0, "gives_back": True}, {"pause"}, 1800.0),
    ):
        for started in (False, True):
            levels = problem.levels_of(known, started=started)
            setup = problem.PlanningProblem({}, levels, 0.0, 900.0, 900.0, 9000.0)
            found = plan_request.pauses(job_state(**spec), setup, 0.0)
            assert {levels[i].kind for i in found.pausing} == kinds & {one.kind for one in levels}
            assert found.max_pause_s == longest


def test_host_watts_are_as_given_else_measured_else_those_of_a_server() -> None:
    boards = tuple(structs.replace(board(f"GPU-{i}"), limit_default_w=700.0) for i in range(8))
    seen = inputs(boards=boards)
    held = job_state(boundary="held", host_w=None)
    found = machine.host(held, seen)
    assert (
        found.watts == pytest.approx(8 * 280.0) and found.how == "default" and found.band_w[0] < 2240 < found.band_w[1]
    )
    metered = structs.replace(seen.readings, host=HostReading(beside_w=900.0, beside_by="ipmitool dcmi", jobs=2))
    measured = machine.host(held, replace(seen, readings=metered))
    assert (measured.watts, measured.how) == (900.0, "measured")
    given = machine.host(job_state(boundary="held", host_w=300.0), replace(seen, readings=metered, jobs=2))
    assert (given.watts, given.how) == (150.0, "given"), "split among the jobs of the machine"
    assert machine.host(job_state(boundary="always-on", host_w=None), seen).watts == 0.0


@pytest.mark.parametrize("kind", ["held", "always-on", "given-back"])
def test_one_line_says_what_is_counted(kind) -> None:
    from carbontui.job.supervisor.core.view import status

    job = job_state(boundary=kind, boundary_why="slurm", host_w=250.0, pue=1.2, pue_why="centre")
    why, counted = (statements.words(said, 0.0) for said in status.boundary(job, inputs()))
    assert why == "in a Slurm allocation" and "PUE 1.2" in counted and "\n" not in counted
    assert ("250 W" in counted) == (kind != "always-on")


def test_a_machine_without_boards_counts_no_host_in_plan_and_words() -> None:
    from carbontui.job.supervisor.core.view import status

    job, bare = job_state(boundary="held", host_w=None), inputs(boards=())
    bare = replace(bare, readings=structs.replace(bare.readings, host=HostReading(cpu_w=40.0, dram_w=5.0, idle_w=9.0)))
    assert machine.machine(job, bare).host_w == machine.host(job, bare).watts == 0.0
    _, counted = (statements.words(said, 0.0) for said in status.boundary(job, bare))
    assert counted.startswith("CPU and memory, the rest of the machine is not known and not counted")
