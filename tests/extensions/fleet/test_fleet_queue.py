"""Slurm's queue as a problem, its plan as moves: what is read, what is left alone, what is said."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from click.testing import CliRunner

from carbontui import cli
from carbontui.extensions.fleet import commands, rounds
from carbontui.extensions.fleet import queue_problem as fleet
from carbontui.extensions.fleet import queue_problem as fleet_queue
from carbontui.extensions.fleet.placing import best_constant, planned
from carbontui.extensions.fleet.queue_problem import Assumed, Cap, FleetTerms, Pool, pool_of, why_left
from carbontui.slurm import queue as slurm_queue
from carbontui.slurm.queue import ClusterSize

MARK = "0123456789abcdef"
NOW = 1_800_000_000.0
ASSUMED = Assumed(gpu_w=400.0, node_w=100.0)
MACHINE = Pool(ClusterSize(cpus=128, gpus=16), frozenset(), frozenset())


def comment(**noted: object) -> str:
    return "carbontui:" + json.dumps({"deadline": "2027-01-16T08:00:00Z", "work_s": 3600, **noted})


def row(job: str, state: str = "PENDING", gres: str = "gres:gpu:4", told: str | None = None, **more: str) -> str:
    fields = {
        "id": job, "state": state, "user": "ann", "reason": "BeginTime", "nodelist": "", "name": "train",
        "partition": "", "start": "N/A", "end": "N/A", "eligible": "N/A", "limit": "8:00:00", "priority": "100",
        "comment": comment() if told is None else told, "nodes": "1", "cpus": "8", "tasks": "1", "sockets": "*:*:*",
        "shares": "OK", "alloc": "N/A", "per_job": "N/A", "gres": gres, "per_task": "N/A", "per_socket": "N/A",
    }  # fmt: skip
    return f"{MARK}:" + "".join(f"{field}{MARK};" for field in (fields | more).values())


def made(rows: list[str], intensity=None, cap_w: float = 20_000.0, slots: int = 96):
    jobs = slurm_queue.rows("\n".join(rows), MARK)
    mean = intensity or [400.0] * 20 + [100.0] * 20 + [400.0] * (slots - 40)
    return fleet_queue.problem(jobs, MACHINE, mean, FleetTerms([Cap(cap_w, None)], ASSUMED, 1800.0), NOW)


def test_jobs_that_asked_are_moved_into_clean_hours_within_the_budget():
    rows = [row(str(job)) for job in range(1, 9)]
    found = made(rows, cap_w=5200.0)  # 1700 W each: three at a time
    plan = planned(found.problem)
    moves = fleet_queue.moves(found, plan)
    assert len(moves) == 8 and (plan.watts <= 5200.0).all()
    clean = [20 <= (move.at_s - NOW) / 1800.0 < 40 for move in moves]
    assert all(clean)
    assert found.price_g_per_kwh(plan)[50] == 0.0
    lines = "\n".join(commands.plan_lines(found, plan))
    assert "in the fullest slot 5100 W of a budget of 5200 W" in lines
    assert "8 jobs wait" in lines and "certificate: no plan of these is better by more than 0.00 %" in lines


def test_what_runs_counts_and_what_did_not_ask_is_left_alone():
    rows = [
        row("1", "RUNNING", start=str(int(NOW - 600)), end=str(int(NOW + 7200)), told=""),
        row("2", told="", reason="Priority"),
        row("3", reason="Dependency"),
        row("4"),
    ]
    found = made(rows, cap_w=2000.0, intensity=[100.0] * 96)
    assert [job.id for job in found.jobs] == ["4"] and found.others == 1
    assert found.fixed_w[:5].tolist() == [1700.0] * 4 + [0.0]
    plan = planned(found.problem)
    assert fleet_queue.moves(found, plan)[0].at_s == NOW + 4 * 1800.0
    assert any("1 other job waits that did not ask" in line for line in commands.plan_lines(found, plan))


def test_a_start_that_is_right_is_not_moved_and_one_without_room_is_put_behind():
    rows = [row("1", start=str(int(NOW + 20 * 1800)))]
    found = made(rows)
    plan = planned(found.problem)
    assert plan.start.tolist() == [20] and fleet_queue.moves(found, plan) == []
    found = made(rows, cap_w=100.0)
    plan = planned(found.problem)
    assert fleet_queue.moves(found, plan)[0].at_s == NOW + 96 * 1800.0
    assert any("1 has no room before its deadline" in line for line in commands.plan_lines(found, plan))


def test_of_two_without_room_for_both_the_one_with_the_higher_priority_is_begun():
    told = comment(deadline=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW + 5000)))
    rows = [row("1", told=told, priority="10"), row("2", told=told, priority="1000")]
    found = made(rows, cap_w=2000.0)
    plan = planned(found.problem)
    assert [int(start) >= 0 for start in plan.start] == [False, True]


def test_a_job_that_is_late_whenever_it_begins_is_begun_all_the_same():
    found = made([row("1", told=comment(deadline="2020-01-01T00:00:00Z"))])
    assert planned(found.problem).start[0] >= 0


def test_an_empty_queue_is_a_plan_of_nothing():
    found = made([])
    plan = planned(found.problem)
    assert fleet_queue.moves(found, plan) == [] and plan.gap == 0.0
    assert commands.plan_lines(found, plan)[0].startswith("0 jobs wait")


@pytest.mark.parametrize(
    "told",
    [
        "carbontui:", "carbontui:{", "carbontui:[1]", 'carbontui:{"work_s": "long"}', 'carbontui:{"work_s": -1}',
        'carbontui:{"work_s": 1e999}', 'carbontui:{"deadline": 5}', 'carbontui:{"deadline": "soon", "work_s": 60}',
        'carbontui:{"watts": {}}',
    ],
)  # fmt: skip
def test_a_comment_edited_by_hand_is_one_line_and_the_job_is_left_as_it_is(told):
    found = made([row("7", told=told), row("8")])
    assert [job.id for job in found.jobs] == ["8"]
    assert len(found.faults) == 1 and found.faults[0].startswith("job 7 is left as it is: its comment cannot be read")
    assert "\n" not in found.faults[0]


def test_lines_that_are_none_and_names_with_escapes_do_no_harm():
    jobs = slurm_queue.rows("garbage\n" + row("1", name="a\x1b[31mred") + "\nslurm_load_jobs error\n", MARK)
    assert [job.id for job in jobs] == ["1"] and "\x1b" not in jobs[0].name


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gres:gpu:4", 4), ("gpu:a100:8", 8), ("gpu:a100:8(S:0-1)", 8), ("gres/gpu=2", 2), ("N/A", 0), ("(null)", 0),
        ("gpu", 1), ("gpu:a100", 1), ("nic:2,gpu:v100-32:3", 3), ("gpu:1g.5gb:7", 7), ("", 0),
    ],
)  # fmt: skip
def test_gpus_are_counted_as_slurm_writes_them(gres, count):
    assert slurm_queue.gpus_of(gres) == count


NODES = [slurm_queue.NodeState(name, "idle", 32, 8, frozenset({"gpu"})) for name in ("n1", "n2", "n3")]


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ({"alloc": "cpu=8,gres/gpu=3,gres/gpu:a100=3"}, 3), ({"per_job": "gres/gpu:a100:3"}, 3),
        ({"per_socket": "gres:gpu:1"}, None), ({"gres": "gres:shard:2"}, None),
        ({"gres": "gres:shard:2", "state": "RUNNING", "nodelist": "n1"}, 8),
        ({"shares": "NO", "state": "RUNNING", "nodes": "2", "nodelist": "n[1-2]"}, 16), ({}, 0),
    ],
)  # fmt: skip
def test_gpus_that_are_not_told_are_never_none(more, gpus):
    told = [row("1", **({"gres": "N/A", "partition": "gpu"} | more)), row("2", partition="gpu")]
    jobs = slurm_queue.rows("\n".join(told), MARK, NODES)
    assert jobs[0].gpus == gpus
    found = fleet.problem(jobs, pool_of(jobs, NODES), [100.0] * 96, FleetTerms([Cap(9e3, None)], ASSUMED, 1800.0), NOW)
    left = "job 1 (1): left alone, as Slurm does not tell their GPUs"
    assert ("1" not in [job.id for job in found.jobs] and found.faults == (left,)) == (gpus is None)


def test_a_budget_may_be_lower_in_some_hours_of_the_day(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    parsed = [fleet.parse("120kW"), fleet.parse("80 kW 17:00-20:00"), fleet.parse("50000 23:30-00:30")]
    midnight = NOW // 86400 * 86400
    day = fleet.per_slot(parsed, midnight, 1800.0, 48)
    assert (day[0], day[1], day[33], day[34], day[39], day[40], day[47]) == (5e4, 1.2e5, 1.2e5, 8e4, 8e4, 1.2e5, 5e4)
    assert fleet.per_slot(parsed[1:2], midnight, 1800.0, 1) == [float("inf")]
    for wrong in ("", "much", "0", "80kW 25:00-26:00", "80kW 17:00", "80kW 17:00-17:00"):
        with pytest.raises(ValueError, match=r"kW|hours"):
            fleet.parse(wrong)


def test_slots_begin_at_their_multiples_with_time_to_tell_slurm():
    assert fleet_queue.next_slot_s(1000.0, 900.0) == 1800.0
    assert fleet_queue.next_slot_s(1745.0, 900.0) == 2700.0
    assert np.isclose(fleet_queue.next_slot_s(1000.0, 20.0), 1020.0)


def test_the_budget_is_told_as_it_was_given_however_little_waits():
    found = made([row("1")], cap_w=9000.0)
    lines = commands.plan_lines(found, planned(found.problem))
    assert lines[0].startswith("1 job waits and may be moved; 1 starts")
    assert "fullest slot 1700 W of a budget of 9000 W" in lines[1]
    free = made([row("1")], cap_w=float("inf"))
    assert "fullest slot 1700 W\n" in "\n".join([*commands.plan_lines(free, planned(free.problem)), ""])


@pytest.mark.parametrize("levels", ["many", [[0, 1.0]], [[900.0]], [[900.0, "fast"]]])
def test_levels_edited_by_hand_are_one_line_and_the_job_counts_in_full(levels):
    told = comment(levels=levels)
    found = made([row("1", "RUNNING", start=str(int(NOW - 600)), end=str(int(NOW + 7200)), told=told)])
    assert found.fixed_w[0] == 1700.0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"reason": "JobHeldUser"}, "held"),
        ({"reason": "QOSMaxCpuPerUserLimit"}, "at a limit of their QOS or account"),
        ({"partition": "debug"}, "in partition debug, which has other nodes"),
        ({"id": "20_3"}, "of an array that runs only some tasks at a time"),
        ({"start": str(int(NOW + 7200)), "told": comment(begin="2027-01-15T08:30:00Z")}, "when their owner said"),
    ],
)
def test_what_a_plan_cannot_know_is_left_alone_and_listed(more, why):
    fields = {"job": "5", **more}
    rows = [row("1", partition="gpu"), row(fields.pop("id", fields.pop("job")), **fields)]
    jobs = slurm_queue.rows("\n".join(rows), MARK)
    pool = Pool(ClusterSize(128, 16), frozenset({"gpu"}), frozenset({"gpu"}))
    throttled = frozenset({"20"})
    found = fleet.problem(jobs, pool, [100.0] * 96, FleetTerms([Cap(9e3, None)], ASSUMED, 1800.0), NOW, throttled)
    assert [job.id for job in found.jobs] == ["1"] and why in "".join(found.faults)
    assert any(why in line for line in commands.plan_lines(found, planned(found.problem)))


def test_the_nodes_of_a_plan_are_those_of_the_partition_with_most_to_move():
    node = lambda name, *parts: slurm_queue.NodeState(name, "idle", 8, 2, frozenset(parts))  # noqa: E731
    nodes = [node("a", "main", "all"), node("b", "main", "all"), node("c", "big", "all")]
    jobs = slurm_queue.rows("\n".join(row(str(n), partition="main" if n else "big") for n in range(3)), MARK)
    found = pool_of(jobs, nodes)
    assert (found.size.gpus, found.partitions, found.touching) == (4, {"main"}, {"main", "all"})
    assert [found.has(job) for job in jobs] == [False, True, True]


def test_a_start_is_noted_in_the_comment_as_scontrol_reads_a_line(monkeypatch):
    given = []
    monkeypatch.setattr(slurm_queue.commands, "orders", lambda lines: given.extend(lines) or [])
    (job,) = slurm_queue.rows(row("7", told=comment(begin="2027-01-15T08:30:00Z", mine="a 'b' c")), MARK)
    slurm_queue.move([(job, NOW, 250.0)])
    (line,) = given
    noted = json.loads(line.partition(" Comment=carbontui:")[2])
    assert len(line.split()) == 4 and "'" not in line
    assert noted["mine"] == "a 'b' c" and noted["begin"] == "2027-01-15T08:00:00.000Z" and noted["work_s"] == 3600
    assert noted["cap"] == 250.0
    slurm_queue.move([(job._replace(asked=slurm_queue.asked(f"carbontui:{json.dumps(noted)}")), NOW, None)])
    assert "cap" not in json.loads(given[1].partition(" Comment=carbontui:")[2])


def test_where_jobs_are_left_out_they_are_named_with_the_least_budget_that_suffices():
    rows = [row(str(job), told=comment(deadline="2027-01-15T10:00:00Z")) for job in range(1, 9)]  # two hours from NOW
    found = made(rows, cap_w=3500.0)  # 1700 W each: two at a time, of which eight are due
    plan = planned(found.problem)
    left = fleet.undone(found, plan)
    assert len(left) == 4
    least = rounds.least_cap_w(found)
    assert 4 * 1700.0 <= least <= 4 * 1700.0 * 1.02
    lines = "\n".join(commands.plan_lines(found, plan, least))
    assert f"not in time: {left[0]}, " in lines and "certificate" not in lines
    assert "a constant budget of 6" in lines and "suffices for all" in lines
    few = made(rows[:1] + [row("9", gres="gres:gpu:64")], cap_w=1e6)
    assert rounds.least_cap_w(few) is None


LEVELS = [[1700.0, 0.96, 350.0, 0.02], [1300.0, 0.85, 250.0, 0.03]]


def test_waiting_jobs_start_under_caps_where_full_speed_has_no_room():
    told = comment(deadline="2027-01-15T09:40:00Z", watts=2000.0, levels=LEVELS)  # 100 minutes from NOW
    rows = [row("1", told=told), row("2", told=told)]
    found = made(rows, cap_w=2700.0)
    plan = planned(found.problem)
    moves = {move.job.id: move for move in fleet.moves(found, plan)}
    assert {move.cap_w for move in moves.values()} == {250.0} and fleet.undone(found, plan) == []
    jobs = {job["job"]: job for job in fleet.planned_jobs(fleet.placements(found, plan))}
    assert {job["level"] for job in jobs.values()} == {"cap 250 W"} and jobs["1"]["watts"] == 1300.0
    # an hour of work at a speed of 0.82, the error of the public curve kept for the deadline
    assert jobs["1"]["end"] == "2027-01-15T09:13:10.244Z" and jobs["1"]["deadline"] == "2027-01-15T09:40:00.000Z"
    # a level that the time limit would cut short is not open
    short = made([row(str(n), told=told, limit="1:00:00") for n in (1, 2)], cap_w=2700.0)
    assert len(fleet.undone(short, planned(short.problem))) == 1


def test_a_job_that_has_begun_at_a_cap_counts_at_its_watts_until_it_ends():
    told = comment(watts=2000.0, levels=LEVELS, cap=250.0)
    found = made([row("1", "RUNNING", start=str(int(NOW - 600)), end=str(int(NOW + 90_000)), told=told)])
    assert found.fixed_w[:4].tolist() == [1300.0, 1300.0, 1300.0, 0.0]  # 73 minutes of which ten are over


def test_beside_the_plan_stands_the_best_constant_cap_and_is_used_where_it_is_better():
    told = comment(watts=2000.0, levels=LEVELS)
    found = made([row(str(job), told=told) for job in range(1, 7)], cap_w=4000.0)
    plan = planned(found.problem)
    constant = best_constant(found.problem, plan.prices, np.arange(6))
    assert constant.share == 0.65 and set(constant.plan.watts[:4].tolist()) == {3900.0}
    assert plan.total_g < constant.plan.total_g and not fleet.undone(found, constant.plan)
    line = commands.constant_line(0.65, 1e3, [], used=False)
    assert line.startswith("one cap for all (65 % of full watts, each as soon as there is room): ")
    assert line.endswith("0 not in time")
    assert best_constant(made([row("1")]).problem, plan.prices, np.arange(1)) is None


@pytest.mark.parametrize(
    ("eligible_s", "owners"),
    [(NOW, False), (NOW + 7200.0, True), (NOW - 7200.0, True), (None, False)],
    ids=["ours", "later", "at once", "not told"],
)
def test_an_owners_start_is_left_before_slurm_has_looked_at_it_again(eligible_s, owners):
    told = comment(begin=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW)))
    (job,) = slurm_queue.rows(row("5", told=told, reason="Resources"), MARK)
    assert bool(why_left(job._replace(eligible_s=eligible_s), MACHINE, frozenset(), NOW - 1800.0)) is owners
    # one that came to wait for nothing any more is not its owner's
    came = job._replace(eligible_s=NOW - 3600.0, asked=job.asked._replace(begin_s=NOW - 9000.0))
    assert not why_left(came, MACHINE, frozenset(), NOW - 1800.0)


def test_a_cap_that_is_no_power_is_refused_in_one_line(refused):
    refused(["fleet", "--cap", "lots"])


def test_an_sbatch_that_names_no_job_has_submitted_none(tmp_path, monkeypatch):
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho all is well\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    asked = ["submit", "--zone", "DE", "--work", "1h", "--", str(tmp_path / "sbatch")]
    refused = CliRunner().invoke(cli.cli, asked, env={"CARBONTUI_OFFLINE": "1"})
    assert refused.exit_code == 1 and "named no job" in refused.output and len(refused.output.splitlines()) == 1
