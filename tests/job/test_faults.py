"""Every process of a job may die or hang at any moment; the training never does."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time

import pytest
from house import House, until

from carbontui.system import proc

LEASE_S = 15.0


def kill(pid, number=signal.SIGKILL):
    os.kill(pid, number)


def test_the_terminal_goes_away_and_training_goes_on(house):
    master, slave = pty.openpty()
    marks = house.root / "pty.steps"
    command = [sys.executable, "-m", "carbontui.cli", "run", "--name", "tty", "--"]
    command += [sys.executable, str(house.script), "100000", "0.01", "0", str(marks)]

    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, 0x540E, 0)  # TIOCSCTTY: closing the master then hangs up, as a lost ssh does

    env = {**house.env, "TERM": "dumb"}
    front = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, preexec_fn=own_terminal)
    os.close(slave)
    until(lambda: marks.exists() and len(marks.read_text().splitlines()) > 3, what="the first steps")
    os.close(master)
    front.wait(10)
    before = len(marks.read_text().splitlines())
    until(lambda: len(marks.read_text().splitlines()) > before + 20, what="steps after the hang-up")
    listed = lambda: [job["state"] for job in json.loads(house.cli("ls", "--json", check=True).stdout)]  # noqa: E731
    until(lambda: listed() == ["running"], what="one running job")


def test_supervisor_killed_while_training_loses_no_step_and_is_replaced(house):
    job = house.start()
    job.until_steps()
    first = job.pids()["supervisor"]
    kill(first)
    job.until_steps()
    until(lambda: job.pids()["supervisor"] not in (first, None), what="a new supervisor")
    job.until_state("running")
    until(lambda: job.status()["clients"] == 1, what="the training's return")
    made = job.steps()
    until(lambda: job.status()["step"] >= made, what="every step in the status")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_training_that_ends_without_a_supervisor_has_all_its_steps_counted(house, number):
    job = house.start(pause=0.005)
    job.until_connected()
    job.until_steps()
    kill(job.pids()["supervisor"], number)
    job.until_steps(50)
    job.let_end()
    job.until_exit()
    job.until_over()
    assert job.status()["step"] == job.steps()
    assert not list(job.dir.glob("last-count-*"))


def test_steps_of_a_killed_unsupervised_training_count_to_its_last_beat(house):
    job = house.start(pause=0.005)
    job.until_connected()
    keeper, supervisor, child = (job.pids()[role] for role in ("keeper", "supervisor", "child"))
    kill(keeper, signal.SIGSTOP)  # no successor yet
    kill(supervisor)
    left = until(lambda: next(job.dir.glob("last-count-*.jsonl"), None), what="the count on disk")
    first = left.read_bytes()
    until(lambda: left.read_bytes() != first, what="a later count")
    kill(child)
    kill(keeper, signal.SIGCONT)
    job.until_over()
    told = json.loads(left.read_bytes().splitlines()[1])["step"] if left.exists() else job.status()["step"]
    assert told <= job.status()["step"] <= job.steps() + 1
    assert job.status()["step"] > json.loads(first.splitlines()[1])["step"]


def test_supervisor_killed_while_paused_is_replaced_and_the_pause_holds(house):
    job = house.start()
    job.until_steps()
    assert "paused at step" in house.cli("pause", job.id, check=True).stdout
    held = job.steps()
    first = job.pids()["supervisor"]
    kill(first)
    until(lambda: job.pids()["supervisor"] not in (first, None), what="a new supervisor")
    status = job.until_state("paused")
    assert status["override"]["mode"] == "pause" and status["clients"] == 1
    # beyond the first lease: it is the successor that renews it
    until(lambda: time.monotonic() > begun + LEASE_S + 1, LEASE_S + 5) if (begun := time.monotonic()) else None
    assert job.steps() == held
    house.cli("resume", job.id, check=True)
    job.until_steps()


def test_without_a_successor_training_resumes_when_the_lease_is_over(house):
    house.env["CARBONTUI_NO_RESPAWN"] = "1"
    job = house.start()
    job.until_steps()
    house.cli("pause", job.id, check=True)
    held = job.steps()
    kill(job.pids()["supervisor"])
    until(lambda: job.steps() > held + 5, LEASE_S + 60, "steps after the lease")
    assert job.until_state("running")["reason"]["code"] == "unguarded"


def test_a_supervisor_that_hangs_is_replaced(house):
    job = house.start()
    job.until_steps()
    first = job.pids()["supervisor"]
    kill(first, signal.SIGSTOP)
    job.until_steps()
    until(lambda: job.pids()["supervisor"] not in (first, None), 60, "a new supervisor")
    job.until_state("running")


def test_an_agent_that_dies_is_replaced(house):
    job = house.start()
    first = until(lambda: job.status().get("pids", {}).get("agent"), what="an agent")
    kill(first)
    until(lambda: job.status()["pids"]["agent"] not in (first, None), what="a new agent")
    job.until_steps()


def test_keeper_killed_training_and_supervisor_go_on_and_say_so(house):
    job = house.start()
    job.until_steps()
    kill(job.pids()["keeper"])
    until(lambda: any("unguarded" in n for n in job.status().get("notices", [])), what="the word unguarded")
    assert "paused at step" in house.cli("pause", job.id, check=True).stdout
    house.cli("resume", job.id, check=True)
    job.let_end()
    status = until(lambda: (s := job.status()).get("state") == "lost" and s, 60, "state lost")
    assert status["exit"] is None


def test_the_childs_own_exit_code_is_reported_whoever_died(house):
    job = house.start(code=7)
    job.until_steps()
    kill(job.pids()["supervisor"])
    job.until_steps()
    kill(until(lambda: job.status()["pids"]["agent"], what="an agent"))
    job.let_end()
    assert job.until_exit()["code"] == 7
    status = job.until_state("failed")
    assert (status["exit"]["code"], status["exit"]["signal"]) == (7, None)


def test_front_mode_copies_the_output_and_exits_with_the_childs_code(house):
    script = house.root / "noisy.py"
    script.write_text("import sys\nprint('to stdout')\nprint('read', repr(sys.stdin.read()))\nsys.exit(3)\n")
    done = house.cli("run", "--", sys.executable, script)
    assert done.returncode == 3
    assert done.stdout == "to stdout\nread ''\n"
    assert "exit code 3" in done.stderr and "carbontui:" in done.stderr


def test_detached_processes_hold_none_of_the_callers_descriptors(house):
    read, write = os.pipe()
    command = [sys.executable, "-m", "carbontui.cli", "run", "--detach", "--"]
    command += [sys.executable, str(house.script), "100000", "0.01", "0", str(house.root / "m")]
    subprocess.run(command, env=house.env, stdout=write, stderr=write, stdin=subprocess.DEVNULL, check=True)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert len(pipe.read().strip()) == 6  # EOF comes only when nobody holds the other end


def test_stop_ends_a_process_that_ignores_interrupts_in_order(house):
    script = house.root / "stubborn.py"
    script.write_text(
        "import signal, time\n"
        "def say(text):\n"
        "    with open('signals', 'a') as seen: seen.write(f'{text} ')\n"
        "for s in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(s, lambda n, f: say(n))\n"
        "say('ready')\n"
        "while True: time.sleep(0.01)\n"
    )
    done = house.cli("run", "--detach", "--", sys.executable, script, check=True)
    until(lambda: (house.root / "signals").exists(), what="the script")
    job_id = done.stdout.strip()
    stopped = house.cli("stop", job_id, "--now", "--yes", check=True)
    assert "stopped" in stopped.stdout
    assert (house.root / "signals").read_text() == "ready 2 15 "
    exit_record = json.loads((house.home / "jobs" / job_id / "exit.json").read_text())
    assert exit_record["signal"] == 9 and exit_record["stopped"]


def test_the_last_step_of_a_stop_reaches_processes_with_sessions_of_their_own(house):
    script = house.root / "launcher.py"
    script.write_text(
        "import signal, subprocess, sys, time\n"
        "code = 'import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; time.sleep(600)'\n"
        "worker = subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
        "[signal.signal(s, signal.SIG_IGN) for s in (2, 15)]\n"
        "open('worker', 'w').write(f'{worker.pid} ')\n"
        "time.sleep(600)\n"
    )
    job_id = house.cli("run", "--detach", "--", sys.executable, script, check=True).stdout.strip()
    worker = int(until(lambda: (f := house.root / "worker").exists() and f.read_text().strip(), what="the worker"))
    house.cli("stop", job_id, "--now", "--yes", check=True)
    until(lambda: proc.start_time(worker) is None, what="the worker's end")


@pytest.mark.parametrize("keeper_lives", [True, False])
def test_a_stop_ends_what_a_shell_runs_in_the_background(house, keeper_lives):
    code = "import os, time; open('up', 'w').write(f'{os.getpid()} '); time.sleep(600)"
    script = f'{sys.executable} -c "{code}" &\nwait'  # a shell has its background jobs ignore INT
    job_id = house.cli("run", "--detach", "--", "sh", "-c", script, check=True).stdout.strip()
    worker = int(until(lambda: (f := house.root / "up").exists() and f.read_text().strip(), what="the worker"))
    if not keeper_lives:
        record = json.loads((house.home / "jobs" / job_id / "job.json").read_text())
        kill(record["pids"]["keeper"][0])
    house.cli("stop", job_id, "--now", "--yes", check=True)
    until(lambda: proc.start_time(worker) is None, what="the worker's end")


def test_stop_works_through_the_keeper_when_no_supervisor_is_left(house):
    house.env["CARBONTUI_NO_RESPAWN"] = "1"
    job = house.start()
    job.until_steps()
    kill(job.pids()["supervisor"])
    done = house.cli("stop", job.id, "--now", "--yes", timeout=60)
    assert done.returncode == 0, done.stderr
    assert job.until_exit()["stopped"]


def test_ctrl_c_on_the_front_reaches_the_training(house):
    script = house.root / "polite.py"
    script.write_text(
        "import time\n"
        "try:\n"
        "    open('up', 'w').close()\n"
        "    while True: time.sleep(0.01)\n"
        "except KeyboardInterrupt:\n"
        "    print('saved'); raise SystemExit(4)\n"
    )
    command = [sys.executable, "-m", "carbontui.cli", "run", "--", sys.executable, str(script)]
    front = subprocess.Popen(
        command, env=house.env, cwd=house.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    until((house.root / "up").exists, what="the script")
    front.send_signal(signal.SIGINT)
    out, _ = front.communicate(timeout=60)
    assert front.returncode == 4 and out == "saved\n"


def test_a_stop_wakes_a_held_training_so_that_it_ends_in_its_own_way(house):
    script = house.root / "graceful.py"
    script.write_text(
        "import signal, sys, time, carbontui\n"
        "asked = []\n"
        "signal.signal(signal.SIGINT, lambda *_: asked.append(1))\n"
        "open('up', 'w').close()\n"
        "while not asked:\n"
        "    time.sleep(0.01)\n"
        "    carbontui.step()\n"
        "print('saved', flush=True); sys.exit(5)\n"
    )
    done = house.cli("run", "--detach", "--", sys.executable, script, check=True)
    job_id = done.stdout.strip()
    until((house.root / "up").exists, what="the script")
    until(lambda: "paused at step" in house.cli("pause", job_id).stdout, what="the pause")
    house.cli("stop", job_id, "--yes", check=True)
    record = json.loads((house.home / "jobs" / job_id / "exit.json").read_text())
    assert record["code"] == 5 and record["stopped"]  # not the TERM that comes after 30 s


def test_a_supervisor_told_to_leave_is_replaced_and_the_job_goes_on(house):
    job = house.start()
    job.until_steps()
    first = job.pids()["supervisor"]
    kill(first, signal.SIGTERM)
    until(lambda: job.pids()["supervisor"] not in (first, None), what="a new supervisor")
    job.until_state("running")
    job.until_steps()
    assert not (job.dir / "exit.json").exists()


def test_an_unload_under_requeue_leaves_with_85_for_the_scheduler(house):
    script = house.root / "unloads.py"
    script.write_text("import os\nopen(os.environ['CARBONTUI_MARKER'], 'w').write('{\"step\": 3}')\n")
    done = house.cli("run", "--requeue", "--", sys.executable, script)
    assert done.returncode == 85, done.stderr


def test_a_full_run_log_costs_its_lines_and_not_the_training(house):
    job = house.start("--log", "/dev/full", steps=20, code=6)
    assert job.until_exit()["code"] == 6
    assert job.steps() == 20


def test_garbage_floods_and_silent_viewers_disturb_nobody(house):
    job = house.start()
    job.until_steps()
    house.cli("pause", job.id, check=True)
    held = job.steps()
    silent = []
    for _ in range(2):
        connection, _lines = job.connect()
        connection.sendall(b'{"t":"view","rate_hz":10}\n')
        silent.append(connection)
    for junk in (os.urandom(4096) + b"\n", b"[" * 60_000 + b"\n", b'{"t":"obs","step":NaN}\n', b"x" * 10_000_000):
        connection, _lines = job.connect()
        with contextlib.suppress(OSError):
            connection.sendall(junk)
        connection.close()
    flood, _lines = job.connect(role="rank", rank=1)
    line = b'{"t":"obs","step":1,"state":"paused","want_gen":0}\n'
    with contextlib.suppress(OSError):
        flood.settimeout(20)
        for _ in range(100):
            flood.sendall(line * 1000)
    flood.shutdown(socket.SHUT_RDWR)  # the reader of its lines still holds it open
    viewer, lines = job.connect()
    viewer.sendall(b'{"t":"cmd","id":7,"verb":"boost","args":{"for_s":[]}}\n')
    answer = json.loads(lines.readline())
    assert (answer["t"], answer["id"], answer["ok"]) == ("result", 7, False)
    viewer.sendall(b'{"t":"view","rate_hz":5}\n')
    first = json.loads(lines.readline())
    assert first["t"] == "snap"
    later = json.loads(lines.readline())
    assert later["t"] == "delta" and later["seq"] == first["seq"] + 1
    until(lambda: job.status()["state"] == "paused", what="the pause, still")
    assert job.steps() == held
    for connection in silent:
        connection.close()


def test_a_deep_state_path_and_no_runtime_directory(tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    assert len(os.fsencode(deep / "home")) > 138
    house = House(deep, None)
    try:
        job = house.start(steps=50)
        assert job.until_exit()["code"] == 0
        path = json.loads((job.dir / "job.json").read_text())["socket"]
        assert len(os.fsencode(path)) <= 100 and path.startswith("/tmp/carbontui-")
    finally:
        house.end()


def test_the_socket_is_bound_again_when_a_cleaner_removes_it(house):
    job = house.start()
    job.until_connected()
    path = json.loads((job.dir / "job.json").read_text())["socket"]
    os.unlink(path)
    until(lambda: os.path.exists(path), what="the socket")
    status = until(job.served, what="an answer over the new socket")
    assert status.clients == 1, "the training's connection outlives the socket it was made through"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_hurts_neither_training_nor_supervisor(tmp_path, house):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("this sandbox mounts nothing")
    try:
        house.home = small / "home"
        house.env["CARBONTUI_HOME"] = str(house.home)
        job = house.start()
        job.until_steps()
        with contextlib.suppress(OSError), (small / "ballast").open("wb") as ballast:
            while True:
                ballast.write(b"\0" * 65536)
                ballast.flush()
        until(lambda: any("journal not written" in n for n in job.status().get("notices", [])), 60, "the notice")
        assert "paused at step" in house.cli("pause", job.id, check=True).stdout
        house.cli("resume", job.id, check=True)
        job.until_steps()
        (small / "ballast").unlink()
        until(lambda: not any("journal not" in n for n in job.status().get("notices", [])), 60, "room again")
        with contextlib.suppress(OSError), (small / "ballast").open("wb") as ballast:
            while True:
                ballast.write(b"\0" * 65536)
                ballast.flush()
        house.cli("stop", job.id, "--now", "--yes", check=True)
        assert job.until_exit()["stopped"]  # the room for it was kept
    finally:
        house.end()
        subprocess.run(["umount", "-l", str(small)], check=False)


def test_another_hosts_job_is_listed_and_never_touched(house):
    job = house.start(steps=20)
    job.until_over()
    record = json.loads((job.dir / "job.json").read_text())
    record |= {"host": "elsewhere", "boot": "another"}
    (job.dir / "job.json").write_text(json.dumps(record))
    assert "on elsewhere" in house.cli("ls", check=True).stdout
    refused = house.cli("rm", job.id)
    assert refused.returncode == 2 and "elsewhere" in refused.stderr
    assert socket.gethostname() != "elsewhere"


def test_what_was_metered_before_a_death_is_in_the_books_after_it(house):
    house.env |= {"CARBONTUI_HOST_W": "500", "CARBONTUI_BOUNDARY": "given-back"}
    job = house.start("--zone", "DE", "--work", "8h")
    before = until(lambda: (s := job.snapshot()).get("energy_wall_kwh", 0) > 0.0008 and s, 60, "some energy")
    kill(job.pids()["supervisor"])
    until(lambda: (s := job.status())["pids"]["supervisor"] not in (None, before["pids"]["supervisor"]) and s)
    after = until(lambda: (s := job.status()).get("gco2_g") and s, what="the books")
    assert after["energy_wall_kwh"] >= before["energy_wall_kwh"] * 0.99
    assert after["gco2_g"] >= before["gco2_g"] * 0.99


def test_a_damaged_journal_is_set_aside_and_the_account_goes_on(house):
    house.env["CARBONTUI_HOST_W"] = "5000"
    job = house.start("--zone", "DE", "--work", "8h")
    job.until_steps()
    house.cli("pause", job.id, check=True)
    job.until_state("paused")
    stood = job.steps()
    until(lambda: (s := job.snapshot()).get("step") == stood and s.get("gco2_g"), what="a snapshot of it all")
    keeper, supervisor = job.pids()["keeper"], job.pids()["supervisor"]
    os.kill(keeper, signal.SIGSTOP)  # no successor before the damage is done
    kill(supervisor)
    told = job.snapshot()
    (job.dir / "journal.db").write_bytes(b"\xff" * 65536)
    (job.dir / "journal.db-wal").unlink(missing_ok=True)  # or SQLite mends the file from it
    os.kill(keeper, signal.SIGCONT)
    aside = until(lambda: next(job.dir.glob("journal.db.corrupt-*Z"), None), what="the damaged file set aside")
    status = until(
        lambda: aside.name in str((s := job.status())["notices"]) and s.get("gco2_g") and s, what="the books"
    )
    assert "the account continues" in str(status["notices"]) and aside.name in (job.dir / "carbontui.log").read_text()
    for key in ("energy_wall_kwh", "gco2_g"):
        assert told[key] * 0.999 <= status[key] < 4 * told[key]
    assert job.until_state("paused")["override"]["mode"] == "pause" and status["step"] == stood == job.steps()
    house.cli("resume", job.id, check=True)
    job.until_steps()
