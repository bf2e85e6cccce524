"""What is said of a job in the surroundings that others reported: rotated logs, a full memory, locks without effect."""

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from house import until

from carbontui.job.files import runlog
from carbontui.job.keeper import command
from carbontui.job.terms import child
from carbontui.system import life
from carbontui.text.statements import words

NO_LOCKS = "int flock(int fd, int how) { return 0; }"
"""What flock does on some network file systems."""


def test_two_restarts_at_once_start_one_training_where_locks_have_no_effect(house):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc)")
    library = house.root / "nolocks.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=NO_LOCKS, text=True, check=True)
    house.env["LD_PRELOAD"] = str(library)
    job = house.start("--intensity", "300", "--work", "9h")
    job.until_steps()
    pids = job.pids()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for role in ("keeper", "supervisor", "child"):
            os.kill(pids[role], number)
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda _: house.cli("restart", job.id), range(3)))
    assert 0 in {one.returncode for one in done}, done
    until(lambda: job.pids()["child"] not in (None, pids["child"]))
    log = (job.dir / "carbontui.log").read_text()
    late = log.count("another keeper has this job") + sum("is running" in one.stderr for one in done)
    assert (log.count("keeper: child "), late) == (2, 2), log


RACE = """\
import sys
from carbontui.system import life
sys.stdin.readline()
print(life.own(sys.argv[1]), flush=True)
sys.stdin.readline()
"""


def test_of_several_that_take_a_job_over_one_succeeds_and_its_death_lets_the_next(tmp_path):
    for _ in range(3):  # each finds the links of the dead ones before
        words = [sys.executable, "-c", RACE, str(tmp_path)]
        racers = [subprocess.Popen(words, stdin=-1, stdout=-1, text=True, bufsize=1) for _ in range(4)]
        for one in racers:
            one.stdin.write("\n")
        assert sorted(one.stdout.readline() for one in racers) == ["False\n"] * 3 + ["True\n"]
        assert life.owned(tmp_path)
        for one in racers:
            one.communicate("\n")
        assert not life.owned(tmp_path)


def test_our_log_is_for_its_user_alone_whatever_the_umask(house):
    house.prefix = ("sh", "-c", 'umask 000; exec "$@"', "sh")
    job = house.start(steps=1)
    assert (job.dir / "carbontui.log").stat().st_mode & 0o777 == 0o600


def test_a_renamed_log_is_read_on_and_a_cut_one_from_its_start(house):
    script = house.root / "say.py"
    script.write_text("import sys\nfor line in iter(sys.stdin.readline, ''):\n    print(line, end='', flush=True)\n")
    pipe = house.root / "pipe"
    os.mkfifo(pipe)
    keeps = os.open(pipe, os.O_RDWR)
    job = house.cli("run", "--detach", "--", "sh", "-c", f"exec {sys.executable} {script} < {pipe}", check=True)
    job = job.stdout.strip()
    log = house.home / "jobs" / job / "run.log"
    program = [sys.executable, "-m", "carbontui.cli", "log", "-f", job]
    with subprocess.Popen(program, env=house.env, stdout=subprocess.PIPE, text=True) as follower:

        def says(line):
            os.write(keeps, f"{line}\n".encode())
            assert follower.stdout.readline() == f"{line}\n"

        says("before")
        log.rename(log.with_name("run.log.1"))
        says("after")
        assert house.cli("log", job, check=True).stdout == "before\nafter\n"
        log.touch()  # as logrotate does
        assert house.cli("log", "-n", "1", job, check=True).stdout == "after\n"
        os.truncate(log.with_name("run.log.1"), 0)  # copytruncate
        says("cut")
        assert house.cli("log", job, check=True).stdout == "cut\n"
        os.close(keeps)
        assert follower.stdout.read() == ""
    assert house.cli("log", job, check=True).stdout == "cut\n"
    assert runlog.written(log, None) == log.with_name("run.log.1")


@pytest.mark.parametrize(
    ("group", "files", "found"),
    [
        (
            "0::/a/b\n",
            {"a/b/memory.events": "low 0\noom 9\noom_kill 2\n", "a/memory.max": "4294967296\n"},
            (2, 1 << 32),
        ),
        ("0::/gone\n", {"memory.events": "oom_kill 1\n", "memory.max": "max\n"}, (1, 0)),
        (
            "4:cpu,memory:/x\n0::/\n",
            {
                "memory/x/memory.oom_control": "under_oom 0\noom_kill 3\n",
                "memory/x/memory.limit_in_bytes": "1048576\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            (3, 1 << 20),
        ),
        ("", {}, (0, 0)),
    ],
)
def test_kills_for_memory_and_the_limit_are_read_of_both_kinds_of_cgroup(tmp_path, group, files, found):
    (tmp_path / "group").write_text(group)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert command.out_of_memory(str(tmp_path / "group"), str(tmp_path)) == found


def test_a_command_that_was_killed_for_its_memory_is_said_to_be():
    for limit_b, said in ((4 << 30, "killed: out of memory (limit 4 GiB)"), (0, "killed: out of memory")):
        record = {"code": None, "signal": 9, "at": 1.0, "out_of_memory": True, "memory_limit_b": limit_b}
        state, why = child.ending(child.exited(json.loads(json.dumps(record))))
        assert (state, words(why.said, 0.0)) == ("failed", said)
