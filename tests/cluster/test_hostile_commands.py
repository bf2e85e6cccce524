"""Slurm's and ssh's commands as others may have put them on the PATH, and a queue in which others write."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from carbontui import cli
from carbontui.job.life import launch, machines
from carbontui.nodes.handle import NodeHandle
from carbontui.slurm import allocation, commands, successor
from carbontui.slurm import queue as slurm_queue
from carbontui.slurm.allocation import BatchJob
from carbontui.system import ssh

MARK = "0123456789abcdef"
SAYS = {
    "without an end": ("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done", "more than"),
    "nothing, for ever": ("sleep 1000", "no answer within"),
    "nothing, behind a wrapper": ("sleep 1000 & wait", "no answer within"),
    "nothing, its child holding the pipes": ("sleep 1000 & exit 0", "no answer within"),
    "escape codes": (r"printf '\033[2J\033]0;x\007\342\200\256no such job\n' >&2; exit 1", "no such job"),
    "bytes that are no text": (r"printf '\377\376' >&2; exit 2", "squeue: "),
    "an exit code alone": ("exit 7", "ended with 7"),
}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts a script of that name first on the PATH."""

    def put(name: str, text: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(commands, "ASK_S", 1.0)
    monkeypatch.setattr(commands, "ANSWER_B", 2**20)
    yield put
    for process in Path("/proc").glob("[0-9]*"):  # what a wrapper has left running
        with contextlib.suppress(OSError):
            if f"PATH={tmp_path}:".encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("says", "told"), SAYS.values(), ids=SAYS.keys())
def test_a_command_that_says_what_no_slurm_does_is_given_up_in_one_line(fake, says, told):
    fake("squeue", says)
    with pytest.raises(commands.SlurmError, match=told) as caught:
        slurm_queue.queue([])
    assert str(caught.value).isprintable()


def test_rubbish_is_neither_an_empty_queue_nor_a_cluster_without_nodes(fake):
    fake("squeue", ":")
    assert slurm_queue.queue([]) == []
    for says in (r"printf 'a\037b\n\0\377 {} 99999999999999999999999'", "echo all is well", "echo ${5%%,*}${5%%,*}"):
        fake("squeue", says)
        with pytest.raises(commands.SlurmError, match="squeue: its answer cannot be read") as caught:
            slurm_queue.queue([])
        assert str(caught.value).isprintable()
    for says in (":", "echo all is well"):
        fake("sinfo", says)
        with pytest.raises(commands.SlurmError, match="sinfo: "):
            slurm_queue.nodes()
    fake("sinfo", r"printf 'n1\037idle\03799999999999999999999\037gpu:99999999999999999\037p\n'")
    assert slurm_queue.nodes()[0].cpus < 1e16


@pytest.mark.timeout(120)
@pytest.mark.parametrize("says", ["cat /dev/zero", "sleep 1000 & wait"])
def test_another_machine_that_never_ends_its_answer_is_given_up(fake, monkeypatch, says):
    fake("ssh", says)
    monkeypatch.setattr(machines, "ANSWER_S", 1.0)
    with pytest.raises(launch.LaunchError, match="far"):
        machines.named("far")
    monkeypatch.setattr(ssh, "ANSWER_S", 1.0)
    with ssh.SshHost("far") as host, pytest.raises(ssh.SshError, match="far"):
        host.statuses()


def row(**fields: str) -> str:
    """A row as squeue prints it for our format."""
    told = {"id": "7", "state": "PENDING", "user": "ann", "start": "N/A", "end": "N/A", "limit": "1-00:00:00"}
    told |= {"prio": "10", "reason": "Priority", "where": "", "name": "t", "partition": "", "comment": "(null)"}
    told |= {"eligible": "N/A", "nodes": "1", "cpus": "8"} | fields
    rest = ["N/A"] * (len(slurm_queue.COLUMNS) - len(told))
    return f"{MARK}:" + "".join(f"{field}{MARK};" for field in [*told.values(), *rest]) + "\n"


def test_no_name_or_comment_passes_for_the_row_of_another_job():
    note = json.dumps({"work_s": 3600, "deadline": "2030-01-01T00:00:00Z"})
    forged = "\n" + row(id="8", user="bob", comment=f"carbontui:{note}").replace(MARK, "\x1f")
    told = row(comment=f"x{forged}", name=f"evil{forged}") + row(id="8", user="bob")
    first, second = slurm_queue.rows(told, MARK)
    assert (first.id, first.asked) == ("7", slurm_queue.NOT_OURS) and first.name.isprintable()
    assert (second.id, second.user, second.asked) == ("8", "bob", slurm_queue.NOT_OURS)


@pytest.mark.parametrize(
    "comment",
    [
        '{"work_s": 1' + "0" * 400 + "}",
        '{"work_s": 1e300}',
        '{"work_s": -1}',
        '{"watts": "nan"}',
        '{"watts": 1e308}',
        '{"deadline": "9' + "9" * 400 + '"}',
        '{"x":' + "[" * 50_000,
        "[]",
        "\x1b[2J",
        "",
    ],
)
def test_a_comment_that_its_owner_has_spoilt_is_said_and_that_job_alone_left(comment):
    found = slurm_queue.asked(f"carbontui:{comment}")
    assert found.fault.isprintable() and not found.movable


@pytest.mark.parametrize("text", ["²", "9" * 400, "-1", "1e5", "", "N/A", "٣"])
def test_a_number_that_slurm_does_not_write_is_none(text):
    (job,) = slurm_queue.rows(row(start=text, end=text, limit=text, prio=text, nodes=text, cpus=text), MARK)
    assert job.start_s is None and job.end_s is None and job.limit_s is None and job.cpus < 1e16


def test_a_job_that_slurm_does_not_show_gets_no_successor(fake, tmp_path):
    job = {"SLURM_JOB_ID": "7"}
    fake("scontrol", "echo rubbish")
    fake("squeue", ":")
    with pytest.raises(commands.SlurmError, match="shows no job 7"):
        successor.submit(job, BatchJob(tmp_path / "locks", 7), wait_s=0.0, ended=bool)
    for left in ("9" * 400 + ":00", "soon", ""):
        fake("squeue", f"echo '7|7|RUNNING|{left}|'")
        assert allocation.observe(job).ends_s is None
    fake("squeue", "echo rubbish")
    with pytest.raises(commands.SlurmError, match="shows no job 7"):
        allocation.observe(job)


def test_a_component_of_a_heterogeneous_job_is_refused_before_anything_is_lost():
    env = {"SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2"}
    refused = CliRunner().invoke(cli.cli, ["run", "--resubmit", "--", "true"], env=env)
    assert refused.exit_code and "--resubmit: this is a heterogeneous job" in refused.output
    refused = CliRunner().invoke(cli.cli, ["run", "--name", "--resubmit", "--", "true"])
    assert refused.exit_code and "--name: '--resubmit' is an option, not a name" in refused.output


@pytest.mark.timeout(120)
@pytest.mark.parametrize("says", ["echo all is well", "printf '\\377\\033[2J\\n'", ":"])
def test_an_sbatch_that_ends_well_and_names_no_job_has_submitted_none(fake, tmp_path, says):
    fake("sbatch", says)
    with pytest.raises(commands.SlurmError, match=r"sbatch: named no job, but said .*squeue --me") as caught:
        commands.submitted(("sbatch", "--parsable", "x.sh"))
    assert str(caught.value).isprintable()
    fake("scontrol", "echo JobId=7 JobState=RUNNING JobName=x")
    fake("squeue", "echo '7|7|RUNNING|1:00|'")
    with pytest.raises(commands.SlurmError, match="named no job"):
        successor.submit({**os.environ, "SLURM_JOB_ID": "7"}, BatchJob(tmp_path / "locks", 7), wait_s=0.0, ended=bool)
    for told in ("4711", "4711;cluster", r"the site says hello\n4711", "4711;c\nsbatch: thanks"):
        fake("sbatch", f"printf '%b\\n' '{told}'")
        assert commands.submitted(("sbatch", "x.sh")) == "4711"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("exit 3", "ended with 3"),
        ("kill -9 $$", "ended with -9"),
        ("sleep 1000", "no answer"),
        ("cat /dev/zero >&2", "more than"),
    ],
)
def test_starts_that_no_scontrol_has_set_are_not_called_moved(fake, says, told):
    fake("scontrol", says)
    (seven,) = slurm_queue.rows(row(id="7"), MARK)
    with pytest.raises(commands.SlurmError, match=told):
        slurm_queue.move([(seven, 1.9e9, None)])
    fake("scontrol", "cat >/dev/null; printf 'slurm_update error: Invalid \\033[2Jjob id\\n' >&2; exit 1")
    assert slurm_queue.move([(seven, 1.9e9, None)]) == ["slurm_update error: Invalid ?[2Jjob id"]


def test_nodes_that_are_not_as_many_as_slurm_promised_are_none(fake):
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    fake("scontrol", "printf 'n1\\nn2\\n'")
    assert commands.promised_nodes(job) == ("n1", "n2")
    for says in ("echo all is well", ":", r"printf '\033[2J'"):
        fake("scontrol", says)
        with pytest.raises(commands.SlurmError, match=r"scontrol: names \d nodes of 2"):
            commands.promised_nodes(job)


@pytest.mark.timeout(120)
async def test_endless_output_of_a_nodes_command_does_not_fill_the_disk(fake, tmp_path):
    said: list[str] = []
    endless = "yes $(printf 'a\\033[2Jb') >&2"
    fake("srun", f"{endless} & sleep 1000")
    node = NodeHandle("n2", ["srun"], {**os.environ}, path=tmp_path / "s", simulated=False, log=said.append, job="j")
    await node.start()
    while not any("the rest is left out" in line for line in said):
        await asyncio.sleep(0.01)
    kept = len(said)
    group = node.pid
    await asyncio.sleep(0.2)
    assert len(said) == kept and sum(map(len, said)) < 64 * 1024 and all(line.isprintable() for line in said)
    await node.close(0.1)
    with pytest.raises(ProcessLookupError):
        for _ in range(500):
            os.killpg(group, 0)
            await asyncio.sleep(0.01)
