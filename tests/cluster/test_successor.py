"""The command that submits a successor: the options of the job as it runs, not as its script has them."""

from __future__ import annotations

from carbontui.slurm import successor
from carbontui.slurm.successor import Chain

SHOWN = (
    "JobId=12 JobName=my train UserId=ada(1000) Account=(null) QOS=normal JobState=RUNNING TimeLimit=02:00:00 "
    "EndTime=2026-11-22T12:00:00 Partition=gpu NumNodes=2-2 NumCPUs=8 NumTasks=2 CPUs/Task=4 Features=(null) "
    "TresPerNode=gres:gpu:4 MinMemoryNode=64G Command=/home/ada/job.sh a b WorkDir=/home/ada/my work "
    'StdErr=/home/ada/slurm-12.out StdOut=/home/ada/slurm-12.out Comment=carbontui:{"a": 1} Power='
)


def test_fields_of_scontrol_may_hold_spaces():
    shown = successor.fields(SHOWN)
    assert (shown["JobName"], shown["WorkDir"], shown["CPUs/Task"]) == ("my train", "/home/ada/my work", "4")


def test_the_successor_has_the_resources_of_the_job_and_follows_it():
    asked = successor.command(
        successor.fields(SHOWN), Chain("7", 1), array_task="3", wait_s=600.2, script="/tmp/j.sh", arguments=["a b"]
    )
    assert asked[:2] == ["sbatch", "--parsable"] and asked[-2:] == ["/tmp/j.sh", "a b"]
    options = dict(option.partition("=")[::2] for option in asked[2:-2])
    assert options["--dependency"] == "afterany:12" and options["--begin"] == "now+601seconds"
    assert options["--comment"] == 'carbontui:{"chain": "7", "number": 2, "after": "12"}'
    assert (options["--nodes"], options["--gres"], options["--mem"]) == ("2", "gres:gpu:4", "64G")
    assert (options["--array"], options["--output"]) == ("3", "/home/ada/slurm-12.out")
    assert "--account" not in options and "--constraint" not in options and "--open-mode" in options


def test_a_chain_is_one_job_whatever_ids_slurm_gives():
    from carbontui.job import requeue

    assert successor.chain({}) is None
    first = requeue.scheduled({"SLURM_JOB_ID": "12", "SLURM_CLUSTER_NAME": "c"})
    later = requeue.scheduled({"SLURM_JOB_ID": "19", "SLURM_CLUSTER_NAME": "c", "CARBONTUI_CHAIN": "12 1"})
    assert first.key == later.key and (first.attempt, later.attempt) == (0, 1)
    assert successor.chain({"SLURM_JOB_ID": "19", "CARBONTUI_CHAIN": "rm -rf"}) == Chain("19", 0)
