"""A try or an estimate that carbontui ends leaves no traceback in the user's output; a person's interrupt does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from house import Job, until

PLAIN = """\
import atexit, carbontui, time
atexit.register(lambda: print("atexit has run", flush=True))
while True:
    time.sleep(0.02)
    carbontui.step()
"""
CATCHES = """\
import carbontui, time
try:
    while True:
        time.sleep(0.02)
        carbontui.step()
except KeyboardInterrupt:
    open("interrupted.pt", "w").close()
"""
TORCH = """\
import torch
net = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
while True:
    net(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SCRIPTS = {"plain": PLAIN, "catches": CATCHES, "torch": TORCH}


def tried(house, name, script, *command):
    path = house.root / f"{name}_script.py"
    path.write_text(script)
    given = ("run", "--detach", "--try", "--budget", "4x", "--work", "5h", "--name", name)
    done = house.cli(*given, "--", *command, sys.executable, path, timeout=150, check=True)
    assert "tried: " in done.stderr
    return (house.home / "jobs" / done.stdout.strip() / "run.log").read_text()


@pytest.mark.long
@pytest.mark.parametrize(("name", "script"), SCRIPTS.items(), ids=SCRIPTS)
def test_a_try_ends_at_a_step_without_a_traceback_and_without_a_file(house, name, script):
    said = tried(house, name, script)
    assert "Traceback" not in said and "the try was ended here on purpose; the real start" in said
    assert ("atexit has run" in said) is (script == PLAIN)
    assert not (house.root / "interrupted.pt").exists(), "the real start would resume from a try's file"


@pytest.mark.long
def test_a_try_below_a_shell_ends_the_shell_too_and_without_a_traceback(house):
    shell = house.root / "all.sh"
    shell.write_text('"$@"\necho next line\n')
    said = tried(house, "shell", PLAIN, "bash", shell)
    assert "Traceback" not in said and "next line" not in said and "ended here on purpose" in said


def test_an_interrupt_by_a_person_shows_where_the_script_was_also_in_a_try(house):
    path = house.root / "t.py"
    path.write_text(PLAIN)
    given = ("run", "--try", "--budget", "4x", "--work", "5h", "--name", "person")
    command = [*house.prefix, sys.executable, "-m", "carbontui.cli", *given, "--", sys.executable, path]
    process = subprocess.Popen(command, env=house.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    jobs = house.home / "jobs"
    found = until(lambda: next(iter(jobs.glob("*/job.json")), None), 60, "the job")
    job = Job(house, found.parent.name, None)
    job.until_connected()
    os.kill(job.pids()["child"], signal.SIGINT)
    process.communicate(timeout=60)
    assert "KeyboardInterrupt" in (job.dir / "run.err").read_text()


def test_an_estimate_ends_quietly_and_says_that_it_was_ended(house):
    path = house.root / "t.py"
    path.write_text(PLAIN)
    done = house.cli("estimate", "--yes", "--steps", "5000", "--", sys.executable, path, timeout=150)
    assert done.returncode == 0, done.stderr
    said = next(iter((house.home / "jobs").glob("*/run.log"))).read_text()
    assert "Traceback" not in said and "carbontui: the estimate was ended here on purpose\n" in said
