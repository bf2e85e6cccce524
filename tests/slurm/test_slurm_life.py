"""One object through its whole life: an unloaded job returns to a real Slurm as its user would submit it again, or not
at all where its user cancelled it. CARBONTUI_TABLE=DIR keeps the rows; tests/slurm/table.py makes results.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from house import until
from outcomes import SCRIPT

from carbontui.slurm import successor

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.timeout(300)]
TABLE = os.environ.get("CARBONTUI_TABLE")
LEAVES = """\
import os, sys, time
import carbontui
from carbontui.client import marker
lives = open(sys.argv[1], "a", buffering=1)
begun = sys.argv[2:]
lives.write(f"{os.environ.get('SLURM_ARRAY_TASK_ID', '-')} {' '.join(begun)}\\n")
for step in range(30):
    time.sleep(0.02)
    carbontui.step()
if os.environ.get("CARBONTUI_RESUME") == "1":
    lives.write("end\\n")
else:
    marker.write(30, time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 3)))
"""
SAVES_LONG = LEAVES.replace("else:\n", "else:\n    lives.write('saving\\n'); time.sleep(6)\n")
"""It saves for a while: time enough for a scancel, of which it is told as any training is."""


def keep(pattern: str, plain: str, under: str) -> None:
    """A row for results.md; `plain` is what Slurm does with the job alone."""
    if TABLE:
        Path(TABLE, f"life-{pattern.replace(' ', '-').replace('/', '-')}.json").write_text(
            json.dumps({"pattern": pattern, "plain": plain, "carbontui": under})
        )


class Queue:
    """Jobs of one test: submitted with our environment and wrapped commands, all cancelled at its end."""

    def __init__(self, cluster, house, folder: Path) -> None:
        self.cluster, self.house, self.folder, self.jobs = cluster, house, folder, []
        self.lives = folder / "lives"
        self.wrapped = folder / "bin"
        self.wrapped.mkdir()

    def wrap(self, name: str, text: str) -> None:
        """Put a script before a command of Slurm's, which is REAL in it."""
        path = self.wrapped / name
        real = self.cluster.run("which", name).strip()
        path.write_text(f"#!/bin/bash\nREAL={real}\n{text}\n")
        path.chmod(0o755)

    def run(self, options: str = "--resubmit", script: str = LEAVES, arguments: str = "", begin: str = "") -> str:
        (self.folder / "train.py").write_text(script)
        train = shlex.join([sys.executable, str(self.folder / "train.py"), str(self.lives)])
        line = f"{sys.executable} -m carbontui.cli run --intensity 300 --work 10h {options} -- {train} {arguments}"
        return f'export PATH={self.wrapped}:"$PATH"\n{begin}{line}\n'

    def submit(self, line: str, *options: str, arguments: tuple[str, ...] = ()) -> str:
        script = self.folder / f"job-{len(self.jobs)}.sh"
        script.write_text(f"#!/bin/bash\n{line}")
        asked = ("sbatch", "--parsable", f"--output={self.folder}/out-%j", "--open-mode=append", *options)
        env = {**self.house.env, "PYTHONPATH": ""}
        self.jobs.append(self.cluster.run(*asked, str(script), *arguments, env=env).strip())
        return self.jobs[-1]

    def rows(self) -> list[list[str]]:
        """Name, state and comment of every job that succeeds one of ours."""
        told = self.cluster.run("squeue", "-h", "-t", "all", "-o", "%F|%i|%T|%k").splitlines()
        rows = [row.split("|", 3) for row in told]
        mine = [json.dumps(job)[1:-1] for job in self.jobs]
        return [row for row in rows if any(f'"chain": "{job}"' in row[3] for job in mine)]

    def output(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("out-*")))

    def said(self, text: str, timeout_s: float = 60) -> None:
        until(lambda: text in self.output(), timeout_s, text)

    def lines(self) -> list[str]:
        return self.lives.read_text().splitlines() if self.lives.exists() else []

    def over(self, job: str) -> str:
        until(lambda: self.cluster.state(job) not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"), 60, "its end")
        return self.cluster.state(job)


@pytest.fixture
def queue(queue_of_any):
    if queue_of_any.cluster.kind != "linuxproc":
        pytest.skip("the same with any process tracking")
    return queue_of_any


@pytest.fixture
def queue_of_both(queue_of_any):
    """Of either Slurm."""
    if queue_of_any.cluster.kind == "pgid":
        pytest.skip("the same with any process tracking")
    return queue_of_any


@pytest.fixture
def queue_of_any(cluster, house, tmp_path):
    made = Queue(cluster, house, tmp_path)
    yield made
    for job in [*made.jobs, *(row[0] for row in made.rows())]:
        cluster.run("scancel", job, check=False)


def test_tasks_return_with_their_index_arguments_and_what_waits_for_them(queue):
    after = queue.folder / "after"
    line = queue.run("--resubmit --name same", arguments='"$@"', begin="exec ")
    array = queue.submit(line, "--array=1-2", arguments=("alpha", "beta"))
    wait = f"wc -l < {queue.lives} >> {after}\n"
    all_of_it = queue.submit(wait, f"--dependency=afterok:{array}")
    one = queue.submit(wait, f"--dependency=afternotok:{array}_1")
    until(lambda: queue.lines().count("end") == 2, 120, "both tasks' ends")
    try:
        until(lambda: queue.cluster.state(all_of_it) == "COMPLETED", 60, "what waits for both")
    except AssertionError:
        print(queue.output(), queue.cluster.run("squeue", "-t", "all", "-o", "%i %T %E %r"))
        raise
    lives = sorted(line for line in queue.lines() if line != "end")
    assert lives == ["1 alpha beta"] * 2 + ["2 alpha beta"] * 2
    assert after.read_text().split() == ["6"], "it began after the last of both"
    assert {queue.cluster.state(job) for job in (f"{array}_1", f"{array}_2")} == {"CANCELLED"}
    assert queue.cluster.state(one) == "PENDING", "no task has failed"
    assert "the name same is taken: this is same-2" in queue.output()
    keep("array of 2, `exec`, a fixed name", "2 tasks COMPLETED", "2 tasks over 2 starts each, same arguments")
    keep("chain of `afterok`, `afternotok`", "begins after the last", "begins after the last successor")


FORMS = {
    "plain": "{run}\n{after}",
    "exec": "exec {run}\n{after}",
    "and": "{run} && {after}",
    "set": "set -e\n{run}\n{after}",
    "function": "train() {{ {run}; }}\ntrain\n{after}",
    "pipe": "{run} 2>&1 | cat\n{after}",
    "background": "{run} &\nwait\n{after}",
    "at-exit": "trap 'echo trap >> {lives}' EXIT\n{run}\n{after}",
    "at-term": "trap 'echo code $? >> {lives}; exit 1' TERM\n{run}\n{after}",
    "no-term": "trap '' TERM\n{run}\n{after}",
}
"""How a script may call its training; `after` is for one that is done."""
LIVES = {
    "exec": ["- ", "- ", "end"],
    "at-exit": ["- ", "trap", "- ", "end", "after", "trap"],
    "at-term": ["- ", "code 85", "- ", "end", "after"],
}


def test_what_follows_the_training_runs_once_after_its_real_end(queue_of_both):
    queue, jobs = queue_of_both, {}
    for form, text in FORMS.items():
        lives = queue.lives = queue.folder / f"lives-{form}"
        export, _, run = queue.run().strip().partition("\n")
        script = text.format(run=run, lives=lives, after=f"echo after >> {lives}")
        jobs[form] = queue.submit(f"{export}\n{script}\n"), lives
    after, lives = queue.folder / "after", jobs["plain"][1]
    for kind in ("afterok", "afterany"):
        queue.submit(f"wc -l < {lives} >> {after}\n", f"--dependency={kind}:{jobs['plain'][0]}")
    for form, (job, lives) in jobs.items():
        assert queue.over(job) == "CANCELLED", (form, queue.output())
        wanted = LIVES.get(form, ["- ", "- ", "end", "after"])
        until(lambda: len(lives.read_text().splitlines()) >= len(wanted), 120, form)  # noqa: B023
        new = next(id_ for id_, _, _, comment in queue.rows() if f'"after": "{job}"' in comment)
        assert queue.over(new) == "COMPLETED" and lives.read_text().splitlines() == wanted, form
    until(lambda: after.exists() and after.read_text().split() == ["4", "4"], 60, "what waits, after the last life")
    keep("lines after the training, in ten forms", "run at its end", "run once, after the end of the last life")


def test_several_runs_in_one_script_leave_with_one_successor(queue):
    """Side by side: none is ended while it trains, and none that waits for the others is forgotten."""
    late = LEAVES.replace("for step", "time.sleep(4.0 * begun.count('late'))\nfor step")
    lives, script = [], ""
    for number, late_too in enumerate(("", "", "late")):
        lives.append(queue.folder / f"lives-{number}")
        queue.lives = lives[-1]
        export, _, run = queue.run(script=late, arguments=late_too).strip().partition("\n")
        script += f"{run} &\n"
    job = queue.submit(f"{export}\n{script}wait\necho after >> {lives[0]}\n")
    assert queue.over(job) == "CANCELLED"
    ((new, *_),) = queue.rows()
    assert queue.over(new) == "COMPLETED" and len(queue.rows()) == 1, queue.output()
    assert [path.read_text().split() for path in lives] == [
        ["-", "-", "end", "after"], ["-", "-", "end"], ["-", "late", "-", "late", "end"]
    ]  # fmt: skip


def test_a_job_cancelled_while_one_run_waits_for_another_has_no_successor(queue):
    long = LEAVES.replace("range(30)", "range(30 + 10 ** 9 * begun.count('long'))")
    export, _, run = queue.run(script=long).strip().partition("\n")
    job = queue.submit(f"{export}\n{run} &\n{run} long &\nwait\n")
    until(queue.rows, 60, "the successor")
    assert queue.cluster.state(job) == "RUNNING" and [row[2] for row in queue.rows()] == ["PENDING"]
    queue.cluster.run("scancel", job)
    assert queue.over(job) == "CANCELLED"
    # said, too, where Slurm leaves it the time; where it kills all at once the successor cancels itself
    until(lambda: [row[2] for row in queue.rows()] == ["CANCELLED"], 20, "no successor")


def test_what_has_ended_is_not_repeated_and_alike_commands_are_told_apart(queue):
    """In turn: the first is over when the others, side by side, are unloaded."""
    ends = LEAVES.replace('get("CARBONTUI_RESUME")', 'get("CARBONTUI_RESUME", str(len(begun)))')
    first = queue.lives = queue.folder / "first"
    export, _, run = queue.run(script=ends, arguments="ends").strip().partition("\n")
    second = queue.lives = queue.folder / "second"
    alike = queue.run(script=ends).strip().partition("\n")[2]
    job = queue.submit(f"{export}\n{run}\n{alike} &\n{alike} &\n{alike} &\nwait\necho after >> {first}\n")
    assert queue.over(job) == "CANCELLED", queue.output()
    ((new, *_),) = queue.rows()
    assert queue.over(new) == "COMPLETED" and len(queue.rows()) == 1, queue.output()
    assert first.read_text().splitlines() == ["- ends", "end", "after"] and "is not repeated" in queue.output()
    assert sorted(second.read_text().splitlines()) == ["- "] * 6 + ["end"] * 3
    assert len(list(queue.house.home.glob("jobs/*/job.json"))) == 4


ENDS = {
    "plain": ("{run}\n", "FAILED 85:0"),
    "exec": ("exec {run}\necho after >> {lives}\n", "FAILED 85:0"),
    "more": ("{run}\necho after >> {lives}\n", "FAILED 0:15"),
    "trap": ("trap 'echo code $? >> {lives}; exit 3' TERM\n{run}\necho after >> {lives}\n", "CANCELLED 3:0"),
    "ignores": ("trap '' TERM\n{run}\necho after >> {lives}\n", "CANCELLED 0:(9|0)"),
}


@pytest.mark.parametrize("form", ENDS)
def test_a_refused_submission_ends_the_job_not_well_before_its_next_line(queue, form):
    text, code = ENDS[form]
    queue.wrap("sbatch", 'echo "sbatch: error: no" >&2; exit 1')
    export, _, run = queue.run().strip().partition("\n")
    job = queue.submit(f"{export}\n" + text.format(run=run, lives=queue.lives))
    state = queue.over(job)
    exit_code = re.findall(r" ExitCode=(\S+)", queue.cluster.run("scontrol", "-o", "show", "job", job))[0]
    assert re.fullmatch(code, f"{state} {exit_code}") and queue.rows() == [], queue.output()
    assert queue.lines() == ["- ", *(["code 85"] if form == "trap" else [])]
    assert "no successor is submitted (sbatch: sbatch: error: no)" in queue.output()


def test_a_life_without_a_step_is_the_last(queue):
    idle = LEAVES.replace('os.environ.get("CARBONTUI_RESUME") == "1"', "False")
    idle = idle.replace("range(30)", "range(30 * ('CARBONTUI_RESUME' not in os.environ))")
    job = queue.submit(queue.run(script=idle))
    assert queue.over(job) == "CANCELLED"
    ((new, *_),) = queue.rows()
    assert queue.over(new) == "FAILED" and len(queue.rows()) == 1
    assert "no successor is submitted (it has made no step since its start); submit it again" in queue.output()


WINDOWS = {
    "while it saves": ("", "", "saving", SAVES_LONG),
    "while scontrol is slow": (
        "scontrol",
        '[ "$1" = write ] && touch {at} && sleep 4; exec $REAL "$@"',
        "",
        LEAVES,
    ),
    "before sbatch acts": ("sbatch", 'touch {at}; sleep 4; exec $REAL "$@"', "", LEAVES),
    "before sbatch answers": ("sbatch", '$REAL "$@" > {at}.id; touch {at}; sleep 4; cat {at}.id', "", LEAVES),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_a_job_that_its_user_cancels_has_no_successor(queue_of_any, window):
    """Where Slurm kills all of it at once, one may be left, that ends itself before it trains."""
    queue = queue_of_any
    command, wrapper, word, script = WINDOWS[window]
    at = queue.folder / "at"
    if command:
        queue.wrap(command, wrapper.format(at=at))
    job = queue.submit(queue.run(script=script))
    until(lambda: at.exists() if command else word in queue.lines(), 60, window)
    queue.cluster.run("scancel", job)
    assert queue.over(job) == "CANCELLED"
    time.sleep(3.0)  # one that was on its way would be there now
    until(lambda: {row[2] for row in queue.rows()} <= {"CANCELLED"}, 30, "no successor")
    assert len(queue.lines()) == 1 + (not command), "nothing began again"
    keep(f"scancel {window}", "CANCELLED", "CANCELLED, no successor ran")


def test_a_successor_that_its_user_cancels_is_not_replaced(queue):
    job = queue.submit(queue.run(script=LEAVES.replace("+ 3)", "+ 3600)")))
    assert queue.over(job) == "CANCELLED"
    ((id_, _, state, _),) = queue.rows()
    assert state == "PENDING"
    queue.cluster.run("scancel", id_)
    assert queue.over(id_) == "CANCELLED" and len(queue.rows()) == 1
    keep("scancel while the successor is pending", "CANCELLED", "CANCELLED, no other")


def test_a_requeued_job_has_one_successor(queue):
    """None more at its second leave, and none any more once it has come to its end."""
    thrice = LEAVES.replace('os.environ.get("CARBONTUI_RESUME") == "1"', "len(open(sys.argv[1]).readlines()) == 3")
    job = queue.submit(queue.run(script=thrice.replace("+ 3)", "+ 3600)")))
    seen = []
    for starts in (1, 2, 3):
        until(lambda starts=starts: len(queue.lines()) >= starts, 200, f"start {starts}")
        assert queue.over(job) == ("CANCELLED" if starts < 3 else "COMPLETED")
        seen += [(id_, state) for id_, _, state, _ in queue.rows()]
        if starts < 3:
            queue.cluster.run("scontrol", "requeue", job)
            # it is to wait for two minutes, and cannot be told otherwise while it is still ending
            until(lambda: "BeginTime" in queue.cluster.run("squeue", "-h", "-j", job, "-o", "%r"), 60, "its wait")
            queue.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    first = seen[0][0]
    assert seen == [(first, "PENDING"), (first, "PENDING"), (first, "CANCELLED")], queue.output()
    assert queue.lines()[-1] == "end"
    keep("requeued with its successor pending", "starts again", "starts again; one successor, cancelled at its end")


def test_a_wrapped_command_returns_and_an_allocation_has_none_to_submit(queue):
    asked = ("sbatch", "--parsable", f"--output={queue.folder}/out-%j", "--open-mode=append", "--wrap", queue.run())
    queue.jobs.append(queue.cluster.run(*asked, env={**queue.house.env, "PYTHONPATH": ""}).strip())
    until(lambda: "end" in queue.lines(), 90, "the end of its successor")
    assert len(queue.lines()) == 3
    keep("`--wrap`", "COMPLETED", "COMPLETED at its second start")
    line = queue.run().splitlines()[-1]
    done = subprocess.run(
        ["salloc", "-N1", "bash", "-c", line],
        env={**queue.cluster.env, **queue.house.env, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 2 and "--resubmit: only in a Slurm batch script" in done.stderr, done.stderr
    within = queue.submit(f"srun {line}\n")
    assert queue.over(within) == "FAILED" and "carbontui run --resubmit ... -- srun" in queue.output()
    assert len(queue.lines()) == 3, "nothing began"
    keep("`salloc`", "runs", "`--resubmit` refused before the start; without it as alone")


REQUESTS = (
    "--gpus=2 --nice=50 --no-requeue",
    "--gpus-per-node=2 --exclusive --mem=100",
    "--ntasks=2 --gpus-per-task=1 --mem-per-cpu=20 --cpus-per-task=3",
    "--ntasks=2 --ntasks-per-gpu=1 --time=30 --time-min=9 --deadline=now+1day",
    "--gpus=2 --cpus-per-gpu=3 --mem-per-gpu=50 --comment=my=own --gpu-bind=map_gpu:0,1",
    "--gres=gpu:1 --ntasks-per-node=3 --hint=nomultithread --switches=1@10 --contiguous",
    "--gpus-per-socket=1 --sockets-per-node=1 --mincpus=2 --ntasks-per-core=1",
)
NAMES = "Tres|Ntasks|Nice|Requeue|Req|CPUs/|NumTasks|Min|Mem|CpusPer|Over|Time|Dead|Sw|Cont|Socks"
SAME = re.compile(rf"(?: |^)((?:{NAMES})\S+)")


def test_the_successor_is_the_same_job(queue_of_both):
    """Of what was given on the command line nothing is in the script."""
    queue = queue_of_both
    line = queue.run(script=LEAVES.replace("+ 3)", "+ 3600)"))
    jobs = {queue.submit(line, *request.split()): request for request in REQUESTS}
    queue.wrap("sbatch", 'exec $REAL "${@/--nice=7/--nice=8}"')
    other = queue.submit(line, "--nice=7")
    show = lambda job: queue.cluster.run("scontrol", "-o", "show", "job", job)  # noqa: E731
    for job, request in jobs.items():
        assert queue.over(job) == "CANCELLED", (request, queue.output())
        told = queue.cluster.run("squeue", "-h", "-t", "PENDING", "-o", "%i|%o|%k")
        new, comment = re.findall(rf"^(\d+)\|.*after-{job}\.sh\|(.*)$", told, re.MULTILINE)[0]
        queue.jobs.append(new)
        assert set(SAME.findall(show(job))) == set(SAME.findall(show(new))), request
        assert ("my=own" in request) == (comment == "my=own"), "a user's own comment stays"
    assert queue.over(other) == "FAILED" and "not be the same job: Nice 7 became 8" in queue.output()
    assert [row[2] for row in queue.rows() if f'"after": "{other}"' in row[3]] == ["CANCELLED"]


def test_a_signal_that_submit_was_given_comes_to_the_successor_too(queue):
    """Of plain sbatch's command line nobody can know it."""
    handler = "import signal\nsignal.signal(signal.SIGUSR2, lambda *_: lives.write('USR2\\n'))\n"
    caught = LEAVES.replace("for step", f"{handler}for step", 1)
    caught = caught.replace('    lives.write("end', '    time.sleep(70)\n    lives.write("end')
    script = queue.folder / "job.sh"
    script.write_text(f"#!/bin/bash\n{queue.run(script=caught).replace(' -- ', ' -- srun ')}")
    queue.house.env |= queue.cluster.env | {"CARBONTUI_HOME": queue.house.env["CARBONTUI_HOME"], "PYTHONPATH": ""}
    asked = ("submit", "--grid", dirty_now(queue.folder).split()[3], "--work", "1h", "--budget", "1x", "--json", "--")
    options = ("--signal=USR2@60", "--time=2", f"--output={queue.folder}/out-%j")
    told = queue.house.cli(*asked, *options, str(script), check=True).stdout
    queue.jobs.append(json.loads(told)["job"])
    assert queue.over(queue.jobs[0]) == "CANCELLED", queue.output()
    until(lambda: "end" in queue.lines(), 150, "the successor's end")
    assert "USR2" in queue.lines(), queue.output()


def test_what_slurm_24_11_shows_is_asked_for_as_what_22_05_shows():
    old = "TresPerJob=gres:gpu:2 TresPerTask=gres:gpu:a100:1 CpusPerTres=gres:gpu:3"
    new = "TresPerJob=gres/gpu:2 TresPerTask=cpu=2,gres/gpu:a100=1 CpusPerTres=gres/gpu:3"
    wanted = {"TresPerJob": "2", "TresPerTask": "a100:1", "CpusPerTres": "3", "ReqTRES": ""}
    for text in (old, new):
        assert successor.asked(dict(word.split("=", 1) for word in text.split())) == wanted
    assert successor.asked({"TresPerTask": "cpu=2", "ReqTRES": "cpu=2,billing=5"}) == {"ReqTRES": "cpu=2"}


def dirty_now(folder: Path) -> str:
    """A grid that every day is dirty at this hour and for five more."""
    now = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
    rows = [(now + timedelta(hours=h), 900 if h % 24 < 6 or h % 24 > 21 else 100) for h in range(-480, 48)]
    text = "".join(f"{at:%Y-%m-%dT%H:%M:%SZ},{value}\n" for at, value in rows)
    (folder / "grid.csv").write_text("time_utc,carbon_g_per_kwh\n" + text)
    return f"--zone DE --grid {folder}/grid.csv --budget 24h --patience 0%"


def test_a_start_that_waits_is_waited_for_in_the_queue(queue):
    line = queue.run(f"{dirty_now(queue.folder)} --resubmit").replace("--intensity 300 ", "")
    job = queue.submit(line.replace("--work 10h", "--work 1m"), "--time=2")
    assert queue.over(job) == "CANCELLED"
    ((id_, _, state, _),) = queue.rows()
    shown = queue.cluster.run("scontrol", "-o", "show", "job", id_)
    assert state == "PENDING" and "TimeLimit=00:02:00" in shown
    assert int(re.search(r"starting in (\d+) s", queue.output())[1]) > 3600
    assert not queue.lines(), "it has not begun"
    keep("limit before the start, `--resubmit`", "runs at once", "back in the queue at once, until its clean hours")


def test_without_a_successor_no_plan_begins_after_the_limit(queue):
    line = queue.run(dirty_now(queue.folder)).replace("--intensity 300 ", "--boundary given-back ")
    queue.submit(line.replace("--work 10h", "--work 1m"), "--time=2")
    until(queue.lines, 60, "its start")
    logs = lambda: "".join(log.read_text() for log in queue.house.home.glob("jobs/*/carbontui.log"))  # noqa: E731
    until(lambda: "its time limit ends it" in logs(), 60, "why it began at once")
    keep("limit before the start", "runs at once", "runs at once, and says so")


def test_a_lowered_limit_is_seen_and_a_suspended_job_named(queue):
    folder = queue.folder / "f"
    folder.mkdir()
    (queue.folder / "train.py").write_text(SCRIPT)
    train = shlex.join([sys.executable, str(queue.folder / "train.py"), str(folder), "10000000", "none"])
    run = f"{sys.executable} -m carbontui.cli run --intensity 300 --work 10h --resubmit -- {train}\n"
    job = queue.submit(run, "--time=60")
    got = folder / "got"
    until(lambda: got.exists() and len(got.read_text().splitlines()) > 30, 60, "steps")
    queue.cluster.run("scontrol", "suspend", job)
    queue.house.env |= {"CARBONTUI_HOME": queue.house.env["CARBONTUI_HOME"]}
    told = until(lambda: "SUSPENDED" in (s := queue.house.cli("status").stdout) and s, 30, "the word")
    assert "paused" in told.lower()
    queue.cluster.run("scontrol", "resume", job)
    queue.cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=2")
    lowered = time.monotonic()
    queue.said("continues as Slurm job", 120)
    assert time.monotonic() - lowered < 120, "before its lowered limit has ended it"
    assert queue.over(job) == "CANCELLED" and "saved" in got.read_text()
    keep("suspend and resume", "SUSPENDED, then RUNNING", "SUSPENDED by name, then RUNNING")
    keep("limit lowered while it runs", "TIMEOUT, all since the last save lost", "saved before it, continues")
