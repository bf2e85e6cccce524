"""Nothing of ours is a single point of loss: keepers are replaced, reboots survived; stops and signals arrive."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from house import Job, until

UNLOADS = """\
import json, os, sys, time
with open("starts", "a") as file:
    print(os.environ.get("CARBONTUI_RESUME", "fresh"), os.environ.get("CARBONTUI_START_STEP", "0"), os.environ["HUE"],
          file=file, flush=True)
if len(open("starts").readlines()) == 1:
    while not os.path.exists("leave"):
        time.sleep(0.02)
    marker = {"step": 12, "not_before": time.strftime("%Y-%m-%dT%H:%M:%S.0Z", time.gmtime(time.time() + 3600))}
    json.dump(marker, open(os.environ["CARBONTUI_MARKER"], "w"))
    sys.exit(0)
while True:
    time.sleep(0.05)
"""


def kill_all(directory, *, but=()):
    pids = json.loads((directory / "job.json").read_text())["pids"]
    for role in ("keeper", "supervisor", "child"):
        if pids.get(role) and role not in but:
            # a child that unloaded itself may stand in the record for a moment after its end
            with contextlib.suppress(ProcessLookupError if role == "child" else ()):
                os.kill(pids[role][0], signal.SIGKILL)
    return pids


def pids_of(directory):
    return json.loads((directory / "job.json").read_text())["pids"]


def switches(pid):
    """How often a process has gone to sleep, having done all that was due."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def starts(house):
    path = house.root / "starts"
    return path.read_text().splitlines() if path.exists() else []


def state_of(house, job_id):
    return Job(house, job_id, house.root / "marks").status()


@pytest.fixture
def unloading(house):
    """A job that has unloaded itself for an hour at step 12; (id, directory)."""
    script = house.root / "unloads.py"
    script.write_text(UNLOADS)
    house.env |= {"HUE": "blue", "SLURM_JOB_ID": "7", "ENTSOE_TOKEN": "secret"}
    job_id = house.cli("run", "--detach", "--", sys.executable, script, check=True).stdout.strip()
    house.cli("pause", job_id, check=True)  # else it would be started again at once
    (house.root / "leave").touch()
    until(lambda: state_of(house, job_id)["state"] == "unloaded", what="the unload")
    return job_id, house.home / "jobs" / job_id


@pytest.fixture
def waiting(house):
    """A job that is held before its first start; (id, directory)."""
    script = house.root / "waits.py"
    script.write_text("import time\nopen('begun', 'w').close()\nwhile True: time.sleep(0.05)\n")
    held = ("--budget", "20h", "--work", "1h", *house.dirty_now())
    job_id = house.cli("run", "--detach", *held, "--", sys.executable, script, check=True).stdout.strip()
    house.cli("pause", job_id, check=True)
    assert state_of(house, job_id)["state"] == "waiting"
    return job_id, house.home / "jobs" / job_id


def test_the_supervisor_of_an_unloaded_job_replaces_its_keeper(house, unloading):
    job_id, directory = unloading
    first = pids_of(directory)["keeper"]
    os.kill(first[0], signal.SIGKILL)
    until(lambda: pids_of(directory)["keeper"] != first, what="a new keeper")
    until(lambda: state_of(house, job_id)["pids"]["keeper"] == pids_of(directory)["keeper"][0], what="its supervisor")
    assert state_of(house, job_id)["state"] == "unloaded" and len(starts(house)) == 1
    house.cli("boost", job_id, check=True)
    until(lambda: len(starts(house)) == 2, what="the second start")
    assert starts(house)[1] == "1 12 blue"


def test_the_supervisor_of_a_waiting_job_replaces_its_keeper(house, waiting):
    job_id, directory = waiting
    first = pids_of(directory)["keeper"]
    os.kill(first[0], signal.SIGKILL)
    until(lambda: pids_of(directory)["keeper"] != first, what="a new keeper")
    until(lambda: state_of(house, job_id)["pids"]["keeper"] == pids_of(directory)["keeper"][0], what="its supervisor")
    status = state_of(house, job_id)
    assert status["state"] == "waiting" and status["override"]["mode"] == "pause"
    assert not (house.root / "begun").exists()
    house.cli("boost", job_id, check=True)
    until((house.root / "begun").exists, 60, what="the start")


def test_after_a_reboot_an_unloaded_job_resumes_where_it_left_off(house, unloading):
    job_id, directory = unloading
    spooled = directory / "environment.json"
    assert spooled.stat().st_mode & 0o777 == 0o600
    assert "blue" in spooled.read_text() and "SLURM" not in spooled.read_text() and "secret" not in spooled.read_text()
    kill_all(directory)
    told = house.cli("status", job_id, check=True).stdout
    assert "lost" in told and f"carbontui restart {job_id}" in told
    for verb in (["ls"], *([verb, job_id] for verb in ("plan", "log", "line", "attach", "report"))):
        done = house.cli(*verb)
        assert f"carbontui restart {job_id}" in done.stdout + done.stderr, verb
    assert "unloaded" in house.cli("restart", job_id, check=True).stdout
    assert state_of(house, job_id)["state"] == "unloaded"
    house.cli("boost", job_id, check=True)
    until(lambda: len(starts(house)) == 2, what="the second start")
    assert starts(house)[1] == "1 12 blue"
    kill_all(directory)
    house.cli("restart", job_id, check=True)
    until(lambda: len(starts(house)) == 3, what="the third start")
    assert starts(house)[2] == "1 12 blue", "lost while it ran: from the checkpoint of its last unload"
    house.cli("stop", job_id, "--now", "--yes", check=True)
    assert not spooled.exists()
    assert house.cli("restart", job_id).returncode == 3


def test_after_a_reboot_a_job_that_waited_waits_on(house, waiting):
    job_id, directory = waiting
    kill_all(directory)
    assert f"carbontui restart {job_id}" in house.cli("status", job_id, check=True).stdout
    house.cli("restart", job_id, check=True)
    until(lambda: state_of(house, job_id)["state"] == "waiting", what="the wait")
    assert not (house.root / "begun").exists()


def test_of_restarts_at_once_one_takes_the_job_up(house, waiting):
    job_id, directory = waiting
    kill_all(directory)
    command = [sys.executable, "-m", "carbontui.cli", "restart", job_id]
    several = [subprocess.Popen(command, env=house.env, stderr=subprocess.DEVNULL) for _ in range(4)]
    for each in several:
        each.wait(60)
    mark = f"carbontui.job.keeper\0{job_id}".encode()
    keepers = lambda: [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark in (read(p) or b"")]  # noqa: E731
    until(lambda: len(keepers()) == 1, what="the leaving of the keepers that found the job taken")
    assert state_of(house, job_id)["state"] == "waiting"


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return None


def test_without_a_spool_nothing_is_kept_and_nothing_else_is_promised(house):
    script = house.root / "waits.py"
    script.write_text("import time\nwhile True: time.sleep(0.05)\n")
    done = house.cli("run", "--no-spool", "--detach", "--", sys.executable, script, check=True)
    directory = house.home / "jobs" / done.stdout.strip()
    assert not (directory / "environment.json").exists()
    assert "--no-spool" in done.stderr and "a reboot" in done.stderr and len(done.stderr.splitlines()) == 1
    kill_all(directory)
    assert "restart" not in house.cli("status", directory.name, check=True).stdout
    refused = house.cli("restart", directory.name)
    assert refused.returncode == 1 and "start a new one" in refused.stderr


def test_an_unload_that_names_no_time_waits_for_the_plans_word(house):
    script = house.root / "unloads.py"
    script.write_text(UNLOADS.replace('"not_before": time', '"not_before": None, "then": time'))
    house.env["HUE"] = "blue"
    job_id = house.cli("run", "--detach", "--", sys.executable, script, check=True).stdout.strip()
    house.cli("pause", job_id, check=True)
    supervisor, keeper = (pids_of(house.home / "jobs" / job_id)[role][0] for role in ("supervisor", "keeper"))
    os.kill(supervisor, signal.SIGSTOP)  # busy for a moment when the training leaves
    (house.root / "leave").touch()
    until(lambda: "child unloaded" in (house.home / "jobs" / job_id / "carbontui.log").read_text(), what="the unload")
    turns = switches(keeper)
    until(lambda: switches(keeper) > turns + 1, what="the keeper's next turns")
    os.kill(supervisor, signal.SIGCONT)
    until(lambda: state_of(house, job_id)["state"] == "unloaded", what="the state")
    assert len(starts(house)) == 1
    house.cli("boost", job_id, check=True)
    until(lambda: len(starts(house)) == 2, what="the second start")


def test_a_launch_that_fails_leaves_no_job_behind(house):
    keeper = house.root / "python"
    keeper.write_text("#!/bin/sh\nexit 9\n")
    keeper.chmod(0o755)
    code = (
        "import sys; from carbontui.job.life import launch; from carbontui import cli;"
        f" launch.sys.executable = {str(keeper)!r}; sys.argv[1:] = ['run', '--detach', '--', 'true']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], env=house.env, cwd="/", capture_output=True, text=True)
    jobs = house.home / "jobs"
    assert done.returncode == 2 and "the monitor process ended at once" in done.stderr, done.stderr
    assert list(jobs.iterdir()) == [jobs / ".lock"]
    assert json.loads(house.cli("ls", "--json", check=True).stdout) == []


def test_a_stop_reaches_a_training_whose_keeper_and_supervisor_are_gone(house):
    job = house.start()
    job.until_steps()
    pids = kill_all(job.dir, but=("child",))
    done = house.cli("stop", job.id, "--now", "--yes", check=True)
    assert "stopped" in done.stdout
    assert read(Path(f"/proc/{pids['child'][0]}/cmdline")) in (None, b"")
    assert job.status()["state"] == "stopped"


def test_a_stop_reaches_a_training_whose_keeper_and_supervisor_hang(house):
    job = house.start()
    job.until_steps()
    pids = job.pids()
    for role in ("keeper", "supervisor"):
        os.kill(pids[role], signal.SIGSTOP)
    try:
        assert "do not answer" in house.cli("stop", job.id, "--now", "--yes", check=True).stdout
        assert read(Path(f"/proc/{pids['child']}/cmdline")) in (None, b"")
    finally:
        for role in ("keeper", "supervisor"):
            os.kill(pids[role], signal.SIGCONT)
    assert job.until_exit()["signal"] is not None


COUNTS = """\
import signal, time
def count(number, frame):
    with open("handled", "a") as file: print(number, file=file)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, count)
open("up", "w").close()
while True: time.sleep(0.05)
"""


def handled(house):
    path = house.root / "handled"
    return path.read_text().split() if path.exists() else []


def test_a_signal_to_the_keeper_is_the_trainings_and_reaches_it_once(house):
    script = house.root / "counts.py"
    script.write_text(COUNTS)
    job_id = house.cli("run", "--detach", "--", sys.executable, script, check=True).stdout.strip()
    until((house.root / "up").exists, what="the script")
    pids = pids_of(house.home / "jobs" / job_id)
    for number in (signal.SIGUSR1, signal.SIGTERM):
        os.kill(pids["keeper"][0], number)
        until(lambda n=number: str(int(n)) in handled(house), what=f"signal {number}")
    assert handled(house) == ["10", "15"]
    assert state_of(house, job_id)["state"] in ("starting", "running"), "no outside signal means stop"


def test_what_a_scheduler_sends_to_every_process_of_a_job_is_not_doubled(house):
    script = house.root / "counts.py"
    script.write_text(COUNTS)
    front = subprocess.Popen(
        [sys.executable, "-m", "carbontui.cli", "run", "--", sys.executable, str(script)],
        env=house.env,
        cwd=house.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until((house.root / "up").exists, what="the script")
    directory = next((house.home / "jobs").glob("*/job.json")).parent
    pids = pids_of(directory)
    daemon = house.root / "slurmstepd"  # the kernel names a process by its file
    shutil.copy("/bin/bash", daemon)
    everyone = f"{front.pid} {pids['keeper'][0]} {pids['child'][0]}"
    subprocess.run([str(daemon), "-c", f"kill -USR1 {everyone}; sleep 1.5; true"], check=True)
    assert handled(house) == ["10"]
    front.send_signal(signal.SIGUSR2)  # from anybody else to the front alone: passed on
    until(lambda: handled(house) == ["10", "12"], what="the second signal")
    house.cli("stop", directory.name, "--now", "--yes", check=True)
    front.wait(30)


ALWAYS = """\
import json, os
open("n", "a").write("x")
json.dump({"step": 1}, open(os.environ["CARBONTUI_MARKER"], "w"))
"""


def test_a_child_that_unloads_at_every_start_is_started_ever_more_rarely(house):
    script = house.root / "always.py"
    script.write_text(ALWAYS)
    job_id = house.cli("run", "--detach", "--", sys.executable, script, check=True).stdout.strip()
    log = house.home / "jobs" / job_id / "carbontui.log"
    until(lambda: "rests 8 s" in log.read_text(), 60, "the third rest")
    assert len((house.root / "n").read_text()) <= 4
    house.cli("stop", job_id, "--now", "--yes", check=True)


def test_of_several_runs_of_one_name_at_once_one_gets_it(house):
    command = [sys.executable, "-m", "carbontui.cli", "run", "--detach", "--name", "same", "--", "sleep", "60"]
    several = [subprocess.Popen(command, env=house.env, stdout=subprocess.DEVNULL, stderr=-3) for _ in range(4)]
    codes = sorted(each.wait(60) for each in several)
    assert codes == [0, 2, 2, 2]


def test_runs_of_one_script_at_once_are_numbered(house):
    command = [sys.executable, "-m", "carbontui.cli", "run", "--detach", "--", "sleep", "60"]
    several = [subprocess.Popen(command, env=house.env, stdout=subprocess.DEVNULL, stderr=-3) for _ in range(3)]
    assert [each.wait(60) for each in several] == [0, 0, 0]
    names = sorted(job["name"] for job in json.loads(house.cli("ls", "--json", check=True).stdout))
    assert names == ["sleep", "sleep-2", "sleep-3"]


def test_a_unit_goes_on_with_jobs_after_a_reboot_and_installs_nothing_else(house, unloading):
    job_id, directory = unloading
    tools, config, asked = house.root / "tools", house.root / "a con%fig", house.root / "asked"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n[ ! -e {house.root}/refuse ]\n')
    (tools / "systemctl").chmod(0o755)
    house.env |= {"PATH": f"{tools}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(config)}
    unit = config / "systemd" / "user" / "carbontui-restart.service"
    (house.root / "refuse").touch()
    refused = house.cli("doctor", "--install")
    assert refused.returncode == 1 and "nothing is installed" in refused.stderr and not unit.exists()
    (house.root / "refuse").unlink()
    told = house.cli("doctor", "--install", check=True).stdout
    assert unit.exists() and "--uninstall" in told
    assert asked.read_text().splitlines()[-2:] == ["--user daemon-reload", "--user enable carbontui-restart.service"]
    if shutil.which("systemd-analyze"):
        seen = subprocess.run(
            ["systemd-analyze", "--user", "verify", unit], capture_output=True, text=True, check=False
        )
        assert unit.name not in seen.stderr, seen.stderr
    assert house.cli("restart", "--after-reboot", check=True).stdout == "no job was ended by a reboot\n"
    kill_all(directory)
    record = json.loads((directory / "job.json").read_text())
    (directory / "job.json").write_text(json.dumps(record | {"boot": "the one before"}))
    # what systemd would do at its start: the unit's own words, in the unit's own environment
    words = {}
    for line in unit.read_text().splitlines():
        name, _, value = line.partition("=")
        words.setdefault(name, []).append(value)
    environment = dict(shlex.split(value)[0].replace("%%", "%").split("=", 1) for value in words["Environment"])
    environment |= {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": house.env["XDG_RUNTIME_DIR"]}
    command = shlex.split(words["ExecStart"][0])
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"job {job_id} unloaded" in done.stdout, done.stderr
    assert state_of(house, job_id)["state"] == "unloaded"
    assert "removed" in house.cli("doctor", "--uninstall", check=True).stdout and not unit.exists()
    assert asked.read_text().splitlines()[-2:] == ["--user disable carbontui-restart.service", "--user daemon-reload"]
    assert "nothing is installed" in house.cli("doctor", "--uninstall", check=True).stdout
