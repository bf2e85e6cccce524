"""The command that submits a successor: the options of the job as it runs, not as its script has them."""

from __future__ import annotations

import pytest

from carbontui.slurm import allocation, successor
from carbontui.slurm.successor import Chain, Unloaded

SHOWN = (
    "JobId=12 JobName=my train UserId=ada(1000) Account=(null) QOS=normal JobState=RUNNING TimeLimit=02:00:00 "
    "EndTime=2026-11-22T12:00:00 Partition=gpu NumNodes=2-2 NumCPUs=8 NumTasks=2 CPUs/Task=4 Features=(null) "
    "TresPerNode=gres:gpu:4 MinMemoryNode=64G Command=/home/ada/job.sh a b WorkDir=/home/ada/my work "
    'StdErr=/home/ada/slurm-12.out StdOut=/home/ada/slurm-12.out Comment=carbontui:{"a": 1} Power='
)


def test_fields_of_scontrol_may_hold_spaces():
    shown = allocation.fields(SHOWN)
    assert (shown["JobName"], shown["WorkDir"], shown["CPUs/Task"]) == ("my train", "/home/ada/my work", "4")


def test_the_successor_has_the_resources_of_the_job_and_follows_it():
    asked = successor.command(
        allocation.fields(SHOWN), Chain("7", 1), wait_s=600.2, script="/tmp/j.sh", arguments=["a b"]
    )
    assert asked[:2] == ["sbatch", "--parsable"] and asked[-2:] == ["/tmp/j.sh", "a b"]
    options = dict(option.partition("=")[::2] for option in asked[2:-2])
    assert options["--dependency"] == "afterany:12" and options["--begin"] == "now+601seconds"
    assert options["--comment"] == 'carbontui:{"chain": "7", "number": 2, "after": "12"}'
    assert (options["--nodes"], options["--gres"], options["--mem"]) == ("2", "gres:gpu:4", "64G")
    assert (options["--output"], options["--export"]) == ("/home/ada/slurm-12.out", "ALL")
    assert "--account" not in options and "--constraint" not in options and "--open-mode" in options


def test_a_chain_is_one_job_whatever_ids_slurm_gives():
    from carbontui.job.life import requeue

    assert successor.chain({}) is None
    first = requeue.scheduled({"SLURM_JOB_ID": "12", "SLURM_CLUSTER_NAME": "c"})
    later = requeue.scheduled({"SLURM_JOB_ID": "19", "SLURM_CLUSTER_NAME": "c", "CARBONTUI_CHAIN": "12 1"})
    assert first.key == later.key and (first.attempt, later.attempt) == (0, 1)
    assert successor.chain({"SLURM_JOB_ID": "19", "CARBONTUI_CHAIN": "rm -rf"}) == Chain("19", 0)


def test_a_task_of_an_array_is_named_as_slurm_names_it_alone():
    shown = allocation.fields(SHOWN.replace("JobId=12 ", "JobId=12 ArrayJobId=12 ArrayTaskId=3 "))
    asked = successor.command(shown, Chain("12", 0), wait_s=0.0, script="j.sh", arguments=[])
    assert "--dependency=afterany:12_3" in asked and "--array=3" in asked
    assert not any(option.startswith("--begin") for option in asked)


ALONE, TASK = Unloaded("12", "12", "", "ada", "t"), Unloaded("12_3", "12", "12", "ada", "t")


@pytest.mark.parametrize(
    ("job", "before", "after"),
    [
        (ALONE, "afterok:12(unfulfilled)", "afterok:57"),
        (ALONE, "afterok:12(unfulfilled),afterany:13(unfulfilled)", "afterok:57,afterany:13"),
        (ALONE, "afterok:13(unfulfilled)?afternotok:12(unfulfilled)", "afterok:13?afternotok:57"),
        (ALONE, "after:12+5(unfulfilled)", None),
        (ALONE, "afterok:121(unfulfilled)", None),
        (TASK, "afterok:12_3(unfulfilled)", "afterok:57"),
        (TASK, "afterok:12_*(unfulfilled)", "afterok:12_4,afterok:57"),
        (TASK, "afterany:12_*(unfulfilled)", "afterany:12_*,afterany:57"),
        (TASK, "aftercorr:12_*(unfulfilled)", "afterok:57"),
        (TASK, "afterok:12_2(unfulfilled)", None),
        (TASK, "afterok:12_*(unfulfilled)?afterok:13(unfulfilled)", None),
        (TASK, "afternotok:12_*(unfulfilled)", "afternotok:12_4?afternotok:57"),
        (TASK, "afternotok:9_*(failed)?afternotok:12_*(unfulfilled)", "afternotok:12_4?afternotok:57"),
        (TASK, "afternotok:12_*(unfulfilled),afterok:13(unfulfilled)", None),
    ],
)
def test_what_waits_for_an_unloaded_job_waits_for_its_successor(job, before, after):
    assert successor.moved(before, job, "57", ["12_4"]) == after
