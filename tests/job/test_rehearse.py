"""Rehearsals of an unload and tries before the start, with the real keeper and supervisor."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest
from house import Job, until

from carbontui.tui.model.loglines import last_error

SCRIPT = """\
import json, os, sys, time
import carbontui
path = sys.argv[1]
while os.path.exists(path + ".held"):
    time.sleep(0.02)
told = {name: os.environ.get(f"CARBONTUI_{name}") for name in ("RESUME", "START_STEP", "TRY")}
state = {"done": 0, "sum": 1}
if told["RESUME"]:
    if os.path.exists(path + ".broken"):
        raise KeyError("param_groups")
    state = json.load(open(path))
print("life", json.dumps({**told, "done": state["done"]}), flush=True)
def save():
    json.dump(state, open(path, "w"))
if not os.path.exists(path + ".unsaved"):
    carbontui.on_checkpoint(save)
while not os.path.exists(path + ".end"):
    # computes: what draws nothing has nothing to gain by waiting, and starts at once
    over = time.process_time() + 0.02
    while time.process_time() < over:
        pass
    state["done"] += 1
    state["sum"] = state["sum"] * 6364136223846793005 % 2**61 + state["done"]
    carbontui.report(loss=100 / state["done"])
    carbontui.step()
print("sum", state["done"], state["sum"], flush=True)
"""


FRAMEWORK = """\
import json, os, sys, time
from carbontui.client.frameworks.base import Loop, left_behind
folder, done = sys.argv[1], 0
left = left_behind("own")
print("life", left and os.path.basename(left), flush=True)
if left:
    done = json.load(open(left))
def save(name):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write("{" if name == "unload" else str(done))
    return path
loop = Loop()
loop.begin(done)
loop.saves_with(lambda: save("unload"), "own", lambda: [(os.path.join(folder, f"{n}"), n) for n in range(10, done, 10)])
while not os.path.exists(os.path.join(folder, "end")):
    time.sleep(0.02)
    done += 1
    if done % 10 == 0:
        save(f"{done}")
    loop.ended()
print("done", done, flush=True)
"""


def clean_in_two_hours():
    """Four weeks of days that are clean for eight hours, from two hours from now on."""
    now = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
    for hour in range(-14 * 24, 14 * 24):
        clean = 2 <= hour % 24 < 10
        yield f"{now + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ},{20 if clean else 900}"


class Training:
    def __init__(self, house):
        self.house, self.path = house, house.root / "state.json"
        (house.root / "resumes.py").write_text(SCRIPT)
        self.command = [sys.executable, house.root / "resumes.py", self.path]
        self.grid = house.root / "grid.csv"
        self.grid.write_text("\n".join(["time_utc,carbon_g_per_kwh", *clean_in_two_hours()]) + "\n")

    def run(self, *options, **kwargs):
        given = ("run", "--detach", "--zone", "DE", "--grid", self.grid, "--work", "5h", *options)
        return self.house.cli(*given, "--", *self.command, **kwargs)

    def flag(self, name):
        self.path.with_name(f"{self.path.name}.{name}").touch()

    def job(self, done):
        return Job(self.house, done.stdout.strip(), self.house.root / "marks")

    def lives(self, job):
        lines = (job.dir / "run.log").read_text().splitlines()
        return [json.loads(line[5:]) for line in lines if line.startswith("life ")]


def undisturbed(steps):
    value = 1
    for done in range(1, steps + 1):
        value = value * 6364136223846793005 % 2**61 + done
    return value


def test_a_rehearsal_says_whether_an_unload_would_hold(house):
    training = Training(house)
    training.flag("held")
    job = training.job(training.run("--budget", "1x", check=True))
    command = [*house.prefix, sys.executable, "-m", "carbontui.cli", "rehearse", job.id, "--json"]
    early = subprocess.Popen(command, env=house.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "waiting for its first step" in early.stderr.readline()
    training.path.with_name(f"{training.path.name}.held").unlink()
    verdict = json.loads(early.communicate(timeout=60)[0])
    assert early.returncode == 0, verdict
    assert verdict["held"] and verdict["step"] == verdict["resumed_step"] == training.lives(job)[1]["done"]
    assert verdict["loss_after"] < verdict["loss_before"] and verdict["checkpoint_bytes"] > 10
    assert verdict["reload_s"] > 0
    training.flag("broken")
    broken = house.cli("rehearse", job.id)
    assert broken.returncode == 1 and "exit code 1" in broken.stdout and "Traceback" not in broken.stdout
    # it began again from the start, and nobody had to look after it
    until(lambda: len(training.lives(job)) == 3, 60, "a third life")
    assert training.lives(job)[2] == {"RESUME": None, "START_STEP": None, "TRY": None, "done": 0}
    until(lambda: (s := job.served()) and s.clients and s.step > 20, 60, "steps")
    training.flag("end")
    assert job.until_exit()["code"] == 0
    job.until_over()
    _, steps, value = (job.dir / "run.log").read_text().splitlines()[-1].split()
    assert int(value) == undisturbed(int(steps)), "not a step lost or done twice"
    assert job.snapshot()["step"] == int(steps)


def test_a_checkpoint_that_is_none_is_replaced_by_the_newest_of_the_script_s_own(house):
    script = house.root / "framework.py"
    script.write_text(FRAMEWORK)
    job = Job(house, house.cli("run", "--detach", "--", sys.executable, script, house.root).stdout.strip(), None)
    until(lambda: (s := job.served()) and s.step > 50, 60, "steps")
    told = house.cli("rehearse", job.id, "--json")
    verdict = json.loads(told.stdout)
    assert told.returncode == 1 and "it continues from an earlier checkpoint" in verdict["why"], told.stdout
    lives = [line.split()[1] for line in (job.dir / "run.log").read_text().splitlines() if line.startswith("life ")]
    newest = (verdict["step"] - 1) // 10 * 10
    assert lives == ["None", "unload", f"{newest}"]
    assert f"resumed from step {newest}" in verdict["why"]
    (house.root / "end").touch()
    assert job.until_exit()["code"] == 0
    job.until_over()
    assert f"done {job.snapshot()['step']}" in (job.dir / "run.log").read_text(), "what is done twice counts once"


@pytest.mark.parametrize("saves", [True, False])
def test_a_try_learns_and_then_the_start_waits(house, saves):
    training = Training(house)
    if not saves:
        training.flag("unsaved")
    tried = training.run("--try", "--budget", "4x", "--patience", "0%", "--name", "tries", check=True)
    assert "tried: " in tried.stderr and "s a step" in tried.stderr
    job = training.job(tried)
    assert training.lives(job)[0]["TRY"] == "1"
    status = job.until_state("unloaded" if saves else "waiting")
    said = (job.dir / "run.log").read_text()
    assert "Traceback" not in said and not last_error(said), "its end is no crash"
    assert status["reason"]["code"] in ("plan", "plan_wait"), status["reason"]
    assert len(training.lives(job)) == 1, "the start for good is the plan's"
    house.cli("boost", job.id, check=True)
    until(lambda: len(training.lives(job)) == 2, 60, "the start for good")
    second = training.lives(job)[1]
    assert second["TRY"] is None and second["RESUME"] == ("1" if saves else None)
    assert (second["done"] > 0) is saves
    until(lambda: (s := job.served()) and s.clients and s.step >= second["done"] + 5, 60, "steps")
    training.flag("end")
    assert job.until_exit()["code"] == 0
    job.until_over()
    _, steps, value = (job.dir / "run.log").read_text().splitlines()[-1].split()
    assert int(value) == undisturbed(int(steps))
    assert job.snapshot()["step"] == int(steps)


def test_a_crash_is_told_now_with_its_last_lines(house):
    script = house.root / "crashes.py"
    script.write_text("print('\\x1b[31mreading\\x1b[0m', flush=True)\nimport torchhh\n")
    done = house.cli("run", "--detach", "--try", "--budget", "4x", "--work", "5h", "--", sys.executable, script)
    assert done.returncode == 1 and not done.stdout
    assert "reading" in done.stderr and "No module named 'torchhh'" in done.stderr and "\x1b" not in done.stderr
    assert "exit code 1 during the trial" in done.stderr
