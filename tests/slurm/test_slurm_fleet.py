"""`carbontui fleet` on a real Slurm: it moves the starts of jobs that asked, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import Cluster, missing
from house import until
from test_slurm_submit import grid, shown

sys.path.insert(0, str(Path(__file__).parents[1] / "nvmlsim"))

from carbontui.slurm import queue as slurm_queue

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(180)]


def test_starts_are_moved_within_the_budget_and_stay_when_it_has_ended(cluster, house, tmp_path):
    if cluster.kind != "linuxproc":
        pytest.skip("the same with any process tracking")
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --output=/dev/null\nsleep 1\n")
    clean = grid(tmp_path / "grid.csv", [400] * 9 + [100] * 8 + [400] * 80)
    house.env |= cluster.env | {"CARBONTUI_HOME": house.env["CARBONTUI_HOME"]}
    asked = ("submit", "--grid", clean, "--work", "30m", "--budget", "40x", "--watts", "1kW", "--json")
    jobs = [json.loads(house.cli(*asked, "--", str(script), check=True).stdout)["job"] for _ in range(3)]
    stranger = cluster.submit("sleep 1\n", "--begin=now+1hour")
    before = shown(cluster, stranger)["StartTime"]
    steps = ("fleet", "--cap", "1500W", "--grid", clean, "--slot", "15m")

    polled = house.cli(*steps, "--dry-run", check=True).stdout
    assert "would move 3 starts" in polled and "certificate" in polled and "1 other job waits" in polled
    assert shown(cluster, stranger)["StartTime"] == before

    told = json.loads(house.cli(*steps, "--once", "--json", check=True).stdout)
    begins = {job: shown(cluster, job)["StartTime"] for job in jobs}
    # one at a time, half an hour each, as many in the clean hours as have room there
    at = sorted(time.mktime(time.strptime(begin, "%Y-%m-%dT%H:%M:%S")) for begin in begins.values())
    assert all(later - earlier >= 1800 for earlier, later in zip(at, at[1:], strict=False))
    assert {job["job"]: job["start"] for job in told["jobs"]} == told["starts"]
    assert all(job["watts"] == 1000.0 and job["level"] == "full" and job["end"] for job in told["jobs"])
    assert set(told["starts"]) == set(jobs) and max(told["watts"]) == 1000.0
    assert shown(cluster, stranger)["StartTime"] == before

    # Slurm says why a job waits only after its next look at the queue: until then its start is not known to be held
    until(lambda: all(shown(cluster, job)["Reason"] == "BeginTime" for job in jobs), 60, "Slurm's look at the queue")
    again = json.loads(house.cli(*steps, "--once", "--json", check=True).stdout)
    assert again["moved"] == []

    # a start that its owner has set stays, and is listed
    theirs = "2030-01-01T00:00:00"
    cluster.run("scontrol", "update", f"JobId={jobs[2]}", f"StartTime={theirs}")
    polled = until(
        lambda: "to start when their owner said" in (s := house.cli(*steps, "--once", check=True).stdout) and s,
        60,
        "it",
    )
    assert f"job {jobs[2]}" in polled and shown(cluster, jobs[2])["StartTime"] == theirs

    # its owner has edited one comment, another is gone: each is one line, the rest is planned
    cluster.run("scontrol", "update", f"JobId={jobs[0]}", "Comment=carbontui:{oops")
    cluster.run("scancel", jobs[1])
    once = house.cli(*steps, "--once", check=True).stdout
    assert f"job {jobs[0]} is left as it is: its comment cannot be read" in once and "0 jobs wait" in once
    for job in (*jobs, stranger):
        cluster.run("scancel", job, check=False)


def test_every_move_is_logged_before_it_is_made_and_undone_where_it_is_the_last(cluster, house, tmp_path):
    if cluster.kind != "linuxproc":
        pytest.skip("the same with any process tracking")
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --output=/dev/null\nsleep 1\n")
    clean = grid(tmp_path / "grid.csv", [400] * 9 + [100] * 8 + [400] * 80)
    house.env |= cluster.env | {"CARBONTUI_HOME": house.env["CARBONTUI_HOME"]}
    asked = ("submit", "--grid", clean, "--work", "30m", "--budget", "40x", "--watts", "1kW", "--json")
    jobs = [json.loads(house.cli(*asked, "--", str(script), check=True).stdout)["job"] for _ in range(5)]
    before = [shown(cluster, job)["StartTime"] for job in jobs]
    steps = ("fleet", "--cap", "1500W", "--grid", clean, "--slot", "15m")

    def logged() -> list[dict[str, str]]:
        return [json.loads(line) for line in house.cli("fleet", "--log", check=True).stdout.splitlines()]

    few = json.loads(house.cli(*steps, "--once", "--json", "--max-moves", "2", check=True).stdout)
    assert len(few["moved"]) == 2 and len(few["later"]) == len(set(few["starts"])) - 2
    one = json.loads(house.cli(*steps, "--once", "--json", "--max-moves-per-user", "1", check=True).stdout)
    assert len(one["moved"]) == 1
    house.cli(*steps, "--once", check=True)
    first = logged()
    assert all(set(line) == {"at", "job", "from", "to", "by", "why"} for line in first)
    assert {line["job"] for line in first} <= set(jobs) and {line["why"] for line in first} == {"planned"}
    assert house.cli("fleet", "--undo", check=True).stdout.startswith("moved ")
    assert [shown(cluster, job)["StartTime"] for job in jobs] == before

    # while one runs another is refused; what it had logged and was killed before it asked Slurm for is corrected
    house.cli(*steps, "--once", check=True)
    begins = [shown(cluster, job)["StartTime"] for job in jobs]
    (tmp_path / "bin").mkdir()
    real = shutil.which("scontrol", path=house.env["PATH"])
    (tmp_path / "bin/scontrol").write_text(
        f'#!/bin/bash\n[ $# -gt 0 ] && exec {real} "$@"\ntouch {tmp_path}/asked\nread < <(sleep 600)\n'
    )
    (tmp_path / "bin/scontrol").chmod(0o755)
    other = grid(tmp_path / "other.csv", [400] * 33 + [100] * 12 + [400] * 80)
    slow = {**house.env, "PATH": f"{tmp_path}/bin:{house.env['PATH']}"}
    command = [sys.executable, "-m", "carbontui.cli", "fleet", "--cap", "1500W", "--grid", other, "--slot", "15m"]
    with subprocess.Popen(command, env=slow, stdout=subprocess.DEVNULL) as running:
        until((tmp_path / "asked").exists, 60, "its orders")
        second = house.cli(*steps, "--once")
        assert second.returncode == 4 and len(second.stderr.splitlines()) == 1 and "another fleet" in second.stderr
        running.kill()
    tail = logged()
    slurms = [line for line in tail if line["by"] == "Slurm"]
    cut_short = tail[-2 * len(slurms) : -len(slurms)]
    assert len(slurms) > 3 and tail[-len(slurms) :] == slurms
    assert {line["job"]: line["to"] for line in slurms} == {line["job"]: line["from"] for line in cut_short}
    assert [shown(cluster, job)["StartTime"] for job in jobs] == begins

    # a start that its owner has set since is not undone
    theirs = "2030-01-01T00:00:00"
    cluster.run("scontrol", "update", f"JobId={jobs[0]}", f"StartTime={theirs}")
    house.cli("fleet", "--undo", check=True)
    assert [shown(cluster, job)["StartTime"] for job in jobs] == [theirs, *before[1:]]
    cluster.run("scancel", *jobs)


FORMS = ("--gpus=3", "--gpus-per-node=2", "--gres=gpu:2", "--ntasks=2 --gpus-per-task=2", "-N2 --gres=gpu:2", "-c2",
         "--gpus-per-socket=1 --sockets-per-node=2 --ntasks=2", "--gpus=4 --gpus-per-task=2")  # fmt: skip


@pytest.mark.parametrize("slurm", ["22.05", "24.11"])
def test_gpus_are_counted_however_they_were_asked_for(house, tmp_path, monkeypatch, request, slurm):
    if why := missing():
        pytest.skip(why)
    two = Cluster(nodes=2, gpus=32, commands=request.getfixturevalue("trixie") if slurm == "24.11" else None)
    try:
        two.start()
        for name, value in two.env.items():
            monkeypatch.setenv(name, value)
        run = [two.submit("sleep 600\n", *form.split()) for form in FORMS]
        until(lambda: {two.state(job) for job in run} == {"RUNNING"}, 60, "all of them")
        wait = [two.submit("sleep 600\n", "--begin=now+2hours", *form.split()) for form in (*FORMS, "--exclusive")]
        given = [two.run("scontrol", "-o", "-d", "show", "job", job).partition("JOB_GRES=")[2] for job in run]
        truth = [slurm_queue.gpus_of(gres.split()[0]) for gres in given]
        found = {job.id: job for job in slurm_queue.queue(slurm_queue.nodes())}
        assert [found[job].gpus for job in run] == truth and sum(truth) == 21
        assert [found[job].gpus for job in wait] == [*truth, 32]

        # watts of what runs and of what waits, and the room for it, are those of these GPUs
        clean = grid(tmp_path / "grid.csv", [400] * 9 + [100] * 8 + [400] * 80)
        (tmp_path / "job.sh").write_text("#!/bin/bash\nsleep 1\n")
        house.env |= two.env | {"CARBONTUI_HOME": house.env["CARBONTUI_HOME"]}
        asked = ("submit", "--grid", clean, "--work", "30m", "--budget", "40x", "--", "--gpus=3")
        house.cli(*asked, str(tmp_path / "job.sh"), check=True)
        steps = ("fleet", "--cap", "20kW", "--gpu-w", "400W", "--node-w", "300W", "--grid", clean, "--once", "--json")
        told = json.loads(house.cli(*steps, "--dry-run", check=True).stdout)
        runs_w = 21 * 400.0 + sum(found[job].nodes for job in run) * 300.0
        assert [job["watts"] for job in told["jobs"]] == [1500.0] and max(told["watts"]) == runs_w + 1500.0
    finally:
        two.end()


def test_without_slurm_fleet_says_so(house, tmp_path):
    clean = grid(tmp_path / "grid.csv", [400] * 90)
    house.env["PATH"] = str(tmp_path)
    done = house.cli("fleet", "--once", "--cap", "1kW", "--grid", clean)
    assert done.returncode == 1 and "sinfo: not found" in done.stderr and len(done.stderr.splitlines()) == 1
    assert house.cli("fleet", "--once", "--cap", "much", "--grid", clean).returncode == 2


def test_orders_for_jobs_that_have_gone_are_refused_and_the_rest_carried_out(cluster, monkeypatch):
    if cluster.kind != "linuxproc":
        pytest.skip("the same with any process tracking")
    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)
    job = cluster.submit("sleep 1\n", "--begin=now+1hour")
    at = time.time() // 60 * 60 + 7200
    (waits,) = (one for one in slurm_queue.queue([]) if one.id == job)
    refused = slurm_queue.move(
        [(waits._replace(id="999999"), at, None), (waits, at, None), (waits._replace(id="888888"), at, None)]
    )
    assert len(refused) == 2 and all("nvalid job id" in line for line in refused)
    assert shown(cluster, job)["StartTime"] == time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    cluster.run("scancel", job)


def test_a_controller_or_munge_that_is_down_is_one_line_and_the_rest_goes_on(cluster, house, tmp_path):
    """What a login node meets: each a line that names the command, no traceback, and the jobs as they were."""
    if cluster.kind != "linuxproc":
        pytest.skip("the same with any process tracking")
    clean = grid(tmp_path / "grid.csv", [400] * 90)
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\nsleep 1\n")
    conf = (cluster.dir / "slurm.conf").read_text()
    port = next(line for line in conf.splitlines() if line.startswith("SlurmctldPort="))
    away = conf.replace(port, "SlurmctldPort=1\nMessageTimeout=2")
    unresponsive = conf.replace("munge/socket", "munge/none")
    for name, text in (("away", away), ("deaf", unresponsive)):
        (tmp_path / name).write_text(text)
        house.env |= cluster.env | {"CARBONTUI_HOME": house.env["CARBONTUI_HOME"], "SLURM_CONF": str(tmp_path / name)}
        for asked in (
            ("fleet", "--once", "--cap", "1kW", "--grid", clean),
            ("submit", "--grid", clean, "--work", "1h", "--", str(script)),
        ):
            done = house.cli(*asked)
            assert done.returncode == 1, (name, done.stdout)
            assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr, done.stderr
            assert done.stderr.startswith(("carbontui: sinfo: ", "carbontui: sbatch: ")), done.stderr


def test_licences_lowered_by_a_reservation_keep_a_sites_power():
    """The recipe of docs/cluster.md for jobs that `submit` did not submit."""
    if why := missing():
        pytest.skip(why)
    nodes = Cluster(conf="Licenses=kw:100\n")
    try:
        nodes.start()
        power = ("StartTime=now", "Duration=infinite", "Flags=LICENSE_ONLY", "Users=root", "Licenses=kw:50")
        nodes.run("scontrol", "create", "reservation", "ReservationName=powercap", *power)
        waits = nodes.submit("sleep 600\n", "-L", "kw:60")
        until(
            lambda: nodes.run("squeue", "-h", "-j", waits, "-o", "%r").strip() == "Licenses", 30, "the wait for watts"
        )
        nodes.run("scontrol", "update", "ReservationName=powercap", "Licenses=kw:20")
        until(lambda: nodes.state(waits) == "RUNNING", 60, "its watts")
    finally:
        nodes.end()
