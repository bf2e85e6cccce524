"""`with carbontui.job():` in a script, or a notebook, that was not started with `carbontui run`."""

from __future__ import annotations

import json
import subprocess
import sys

from house import Job, until
from later import needs

BLOCK = """
import json, os, sys, time
import carbontui
before = dict(os.environ)
for name in sys.argv[2:]:
    with carbontui.job(total=100_000, intensity="300", name=name) as job:
        print(job.id, flush=True)
        with open(sys.argv[1], "w", buffering=1) as done:
            while not os.path.exists(sys.argv[1] + ".end"):
                time.sleep(0.01)
                carbontui.step()
                done.write(f"1 {time.monotonic()}\\n")
    os.unlink(sys.argv[1] + ".end")
    print(json.dumps(carbontui.metrics()), flush=True)
    carbontui.step()
assert dict(os.environ) == before
"""


def start(house, code: str, *names: str) -> subprocess.Popen[str]:
    """A script alone: it leads no process group."""
    argv = [sys.executable, "-c", code, str(house.root / "marks"), *names]
    return subprocess.Popen(argv, env=house.env, cwd=house.root, text=True, stdout=-1, stderr=-1)


def job_of(house, script) -> Job:
    return Job(house, script.stdout.readline().strip(), house.root / "marks")


def test_a_part_of_a_script_is_a_job_held_at_one_step_and_the_next_one_counts_anew(house):
    script = start(house, BLOCK, "first", "second")
    for name in ("first", "second"):
        job = job_of(house, script)
        job.until_connected()
        assert job.served().pids.child == script.pid and job.served().name == name
        answer = house.cli("pause", job.id, check=True).stdout
        job.until_state("paused")
        held = job.steps()
        assert f"paused at step {held + 1}" in answer
        assert "can_unload" not in str(job.served()) and job.steps() == held
        house.cli("resume", job.id, check=True)
        job.until_steps(5)
        job.let_end()
        figures, steps = json.loads(script.stdout.readline()), job.steps()
        job.until_over()
        status = job.status()
        assert status["state"] == "done" and status["step"] == steps and status["steps_total"] == 100_000
        for field in ("energy_wall_kwh", "gco2_g", "state"):
            assert figures[field] == status[field]
    err = script.communicate(timeout=60)[1]
    assert script.returncode == 0, err
    assert err.count("look with: carbontui report") == 2


def test_a_stop_interrupts_the_script_and_the_job_has_ended(house):
    script = start(house, BLOCK, "a")
    job = job_of(house, script)
    job.until_steps(3)
    house.cli("stop", "--yes", job.id, check=True)
    _, err = script.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    job.until_over()
    assert job.status()["state"] == "stopped"


def test_what_ends_a_part_is_told_and_goes_on_to_the_script(house):
    fails = """
import carbontui, sys
try:
    with carbontui.job(intensity="300") as job:
        print(job.id, flush=True)
        raise KeyError("theirs")
except KeyError as error:
    print(error)
"""
    script = start(house, fails)
    job = job_of(house, script)
    assert "theirs" in script.communicate(timeout=60)[0]
    job.until_over()
    assert job.status()["state"] == "failed" and job.status()["exit"]["code"] == 1


def test_wrong_options_are_an_error_and_leave_nothing(house):
    for options in ('budgt="2x"', 'budget="soon"', "requeue=True", "total=-1"):
        code = f"import carbontui\nwith carbontui.job({options}): print('begun')"
        out, err = start(house, code).communicate(timeout=60)
        assert "ValueError" in err and out == "", err
        assert options.partition("=")[0] in err
    assert not list(house.home.glob("jobs/*/job.json"))


def test_under_run_it_is_the_same_job(house):
    house.script.write_text("import carbontui\nwith carbontui.job(total=7): [carbontui.step() for _ in range(7)]")
    job = house.start("--intensity", "300")
    job.until_over()
    assert job.status()["step"] == job.status()["steps_total"] == 7
    assert len(list(house.home.glob("jobs/*/job.json"))) == 1


@needs("torch")
def test_optimizers_of_before_are_seen_and_a_total_is_found(house):
    code = """
import time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def steps(n):
    for i in range(n):
        time.sleep(0.02)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
steps(3)
import carbontui
with carbontui.job(intensity="300") as job:
    print(job.id, flush=True)
    steps(150)
"""
    path = house.root / "train.py"
    path.write_text(code)
    script = start(house, f"exec(compile(open({str(path)!r}).read(), {str(path)!r}, 'exec'))")
    job = job_of(house, script)
    until(lambda: (s := job.served()) and s.guess and s.guess.steps == 150, what="the total")
    script.communicate(timeout=60)
    job.until_over()
    assert job.status()["step"] == 150
