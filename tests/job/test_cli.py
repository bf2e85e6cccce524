"""The command line from outside: documented exit codes, one clear line, never a traceback."""

import json
import re
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

import pytest
from house import until

from carbontui.cli import ALIASES, BETWEEN, VERBS

WRONG = [
    (["run"], 2, "needs a command"),
    (["run", "--budget", "0.5x", "--", "true"], 2, "--budget"),
    (["run", "--work", "soon", "--", "true"], 2, "--work"),
    (["run", "--zone", "Atlantis", "--", "true"], 2, "--zone"),
    (["run", "--gpu-price", "2", "--", "true"], 2, "--currency"),
    (["run", "--objective", "cost", "--", "true"], 2, "--currency"),
    (["run", "--", "no-such-command-here"], 127, "no such command"),
    (["run", "--", sys.executable, "-u", "trian.py", "--epochs", "3"], 2, "trian.py: no such file"),
    (["run", "--nonsense", "--", "true"], 2, "--nonsense"),
    (["status"], 3, "no job is running"),
    (["pause"], 3, "no job is running"),
    (["status", "nobody"], 3, "no job 'nobody'"),
    (["stop", "nobody"], 3, "no job 'nobody'"),
    (["cap", "lots"], 2, "not a power"),
    (["budget", "later"], 2, "not understood"),
    (["pause", "--for", "soon"], 2, "--for"),
    (["pause", "--for", "1h", "--until", "18:00"], 2, "exclude"),
    (["rm"], 2, "rm needs"),
    (["frobnicate"], 2, "frobnicate"),
    (["stauts"], 2, "did you mean carbontui status?"),
    (["cap"], 2, "WATTS is missing: carbontui cap [OPTIONS] WATTS [JOB]"),
    (["run", "--deadline", "fri", "--", "true"], 2, 'no option --deadline; did you mean --budget "fri 09:00"?'),
    (["run", "--utilisation", "much", "--", "true"], 2, "--utilisation: 'much' is not a number"),
    (["run", "--steps", "1e99", "--", "true"], 2, "--steps: "),
    (["submit", "missing.sbatch"], 2, "missing.sbatch: no such file"),
    (["kill", "x"], 2, "no command 'kill'; did you mean carbontui stop?"),
    (["site", "--cap", "1W"], 2, "no job can run on 1 W"),
    (["run", "./train.py"], 126, "write python ./train.py"),
]


@pytest.mark.parametrize(("arguments", "code", "word"), WRONG, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_wrong_use_is_one_line_and_its_exit_code(house, arguments, code, word):
    house.script.chmod(0o644)
    done = house.cli(*arguments)
    assert done.returncode == code, done.stderr
    assert word in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and done.stdout == ""


def test_help_says_what_every_verb_does_in_words_that_are_not_cut_off(house):
    text = house.cli("--help", "--all", check=True).stdout
    assert "carbontui demo" in text
    assert not [line for line in text.splitlines()[1:] if line.endswith(("...", "…"))]
    assert [verb for verb in VERBS if f"\n  {verb} " not in text] == [*ALIASES, *BETWEEN]


def test_the_first_help_shows_sixteen_verbs_and_ten_options_of_run(house):
    text = house.cli("--help", check=True).stdout
    assert len(re.findall(r"(?m)^  [a-z]+  +[A-Z]", text)) == 16 and "--help --all" in text
    usual, whole = (house.cli("run", "--help", *more, check=True).stdout for more in ([], ["--all"]))
    assert len(re.findall("(?m)^  --[a-z]", usual)) == 10 and len(re.findall("(?m)^  (-q, )?--", whole)) > 40
    assert house.cli("run", "--help", "--", "--all", check=True).stdout == usual


def test_settings_that_cannot_be_used_name_their_place(house):
    house.home.mkdir(parents=True)
    for value in ("0.5", "1e308", "nan"):
        (house.home / "config.toml").write_text(f"pue = {value}\n")
        done = house.cli("run", "--", "true")
        assert done.returncode == 2 and "config.toml" in done.stderr and "pue" in done.stderr, value
    (house.home / "config.toml").write_text("")
    house.env["CARBONTUI_HOST_W"] = "many"
    done = house.cli("run", "--", "true")
    assert done.returncode == 2 and "CARBONTUI_HOST_W" in done.stderr


def test_no_network_no_key_no_gpu_still_plans_on_typical_days_and_says_so(house):
    job = house.start("--zone", "DE", "--work", "8h", "--budget", "2x")
    status = until(lambda: (s := job.status()).get("certificate") and s, 60, "a plan")
    assert status["intensity"]["zone"] == "DE"
    assert status["provenance"]["intensity"]["how"] == "default"
    assert "typical days" in status["provenance"]["intensity"]["source"]
    assert status["budget"]["factor"] == pytest.approx(2.0)
    printed = json.loads(house.cli("status", job.id, "--json", check=True).stdout)
    assert printed.keys() == status.keys() | {"avoided_split"} and printed["certificate"]
    assert status["gpus"] == [] and status["provenance"]["power_w"]["how"] == "estimated"
    plan = json.loads(house.cli("plan", job.id, "--json", check=True).stdout)
    assert sum(count for _, count in plan["levels"]) > 0


def test_a_start_that_may_wait_begins_when_the_plan_says_or_when_a_person_does(house):
    now = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
    # every day is dirty at this hour and for five more
    rows = [(now + timedelta(hours=h), 900 if h % 24 < 6 or h % 24 > 21 else 100) for h in range(-480, 48)]
    text = "".join(f"{t:%Y-%m-%dT%H:%M:%SZ},{v}\n" for t, v in rows)
    (house.root / "dirty_now.csv").write_text("time_utc,carbon_g_per_kwh\n" + text)
    job = house.start("--grid", "dirty_now.csv", "--zone", "DE", "--work", "1h", "--budget", "20x")
    status = job.until_state("waiting", timeout=60)
    assert status["reason"]["code"] in ("plan_wait", "plan") and job.steps() == 0
    status = until(lambda: (s := job.status()).get("next") and s, what="the planned start")
    assert status["pids"]["child"] is None and status["next"]["level"] == "full"
    house.cli("boost", job.id, "--until", "next", check=True)
    assert job.status()["override"]["until"] == status["next"]["at"]
    job.until_steps()


def test_the_output_of_a_job_that_waits_is_awaited_and_its_absence_explained(house):
    job = house.start(*house.dirty_now(), "--work", "1h", "--budget", "20x", steps=10)
    job.until_state("waiting")
    done = house.cli("log", job.id)
    assert done.returncode == 3 and "Errno" not in done.stderr
    assert re.search("written nothing yet: (not started yet|starts at)", done.stderr)
    follow = subprocess.Popen(
        [sys.executable, "-m", "carbontui.cli", "log", "-f", job.id], env=house.env, stdout=subprocess.PIPE, text=True
    )
    house.cli("boost", job.id, check=True)
    job.until_exit()
    assert follow.communicate(timeout=60)[0] == "finished\n" and follow.returncode == 0


def test_a_second_run_of_a_script_has_a_name_of_its_own(house):
    first = house.cli(
        "run", "--detach", "--", sys.executable, house.script, 100_000, 0.01, 0, house.root / "a", check=True
    )
    second = house.cli(
        "run", "--detach", "--", sys.executable, house.script, 100_000, 0.01, 0, house.root / "b", check=True
    )
    listed = {job["job"]: job["name"] for job in json.loads(house.cli("ls", "--json", check=True).stdout)}
    assert (listed[first.stdout.strip()], listed[second.stdout.strip()]) == ("train.py", "train.py-2")
    asked = house.cli("run", "--detach", "--name", "train.py", "--", "true")
    assert asked.returncode == 2 and "choose another --name" in asked.stderr


def test_of_several_that_take_one_name_at_the_same_moment_one_has_it(house):
    command = [sys.executable, "-m", "carbontui.cli", "run", "--detach", "--name", "same", "--", "sleep", "60"]
    how = {"env": house.env, "cwd": house.root, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    some = [subprocess.Popen(command, **how) for _ in range(4)]
    told = [(one.communicate(timeout=60)[1], one.returncode) for one in some]
    assert sorted(code for _, code in told) == [0, 2, 2, 2]
    assert all("choose another --name" in said for said, code in told if code)
    assert [job["name"] for job in json.loads(house.cli("ls", "--json", check=True).stdout)] == ["same"]


def test_a_job_whose_file_says_what_cannot_be_hides_none_of_the_others(house):
    job = house.start(steps=5)
    job.until_over()
    for n, wrong in enumerate(({"started": 1e308}, {"started": "soon"}, {"argv": None}, {"socket": []})):
        other = house.home / "jobs" / f"wrong{n}"
        other.mkdir()
        (other / "job.json").write_text(json.dumps(json.loads((job.dir / "job.json").read_text()) | wrong))
    assert [found["job"] for found in json.loads(house.cli("ls", "--json", check=True).stdout)] == [job.id]


def test_an_unknown_zone_is_never_guessed_silently(house):
    house.env["TZ"] = "UTC"
    job = house.start("--work", "8h", "--budget", "2x")
    status = until(lambda: (s := job.status()).get("reason", {}).get("code") == "no_zone" and s, 70, "the reason")
    assert status["state"] == "running"
    assert status["reason"]["text"].startswith("at full speed: the grid zone is not known; set it with --zone")


def test_a_budget_is_changed_while_the_job_runs(house):
    job = house.start("--zone", "DE", "--work", "8h", "--budget", "1x")
    job.until_steps()
    said = house.cli("budget", "3x", job.id, check=True).stdout
    assert said.startswith("budget 3x") and f" {time.tzname[time.localtime().tm_isdst]}; in force\n" in said, (
        "whose clock"
    )
    until(lambda: job.status()["budget"]["factor"] == pytest.approx(3.0), what="the new budget")


def test_an_override_expires_by_itself_and_everyone_sees_who_decided(house):
    job = house.start()
    job.until_steps()
    assert ", until " in house.cli("pause", job.id, "--for", "3s", check=True).stdout
    status = job.until_state("paused")
    assert "@" in status["override"]["by"] and status["override"]["until"]
    until(lambda: job.status()["override"] is None, 60, "the end of the override")
    job.until_steps()


def test_a_finished_job_is_remembered_shown_and_forgotten(house):
    job = house.start(steps=20, name="short")
    job.until_exit()
    until(lambda: "leaving" in (job.dir / "carbontui.log").read_text(), what="the keeper's leaving")
    assert house.cli("pause", job.id).returncode == 3
    assert "finished" in house.cli("log", job.id, check=True).stdout
    again = house.start(steps=100_000, name="short")
    refused = house.cli("run", "--detach", "--name", "short", "--", sys.executable, "-c", "0")
    assert refused.returncode == 2 and again.id in refused.stderr
    assert house.cli("rm", again.id).returncode == 2
    house.cli("rm", job.id, check=True)
    assert not job.dir.exists()
    listed = json.loads(house.cli("ls", "--json", check=True).stdout)
    assert [entry["job"] for entry in listed] == [again.id]


def test_doctor_says_what_is_here_as_lines_and_as_data(house):
    assert house.cli("doctor").returncode == 1 and not house.home.exists(), "the zone is missing; nothing is written"
    house.env["CARBONTUI_ZONE"] = "DE"
    done = house.cli("doctor")
    assert done.returncode == 0 and "sockets" in done.stdout and "Traceback" not in done.stderr
    areas = {finding["area"] for finding in json.loads(house.cli("doctor", "--json", check=True).stdout)}
    assert {"carbontui", "state", "sockets", "logout", "settings", "grid"} <= areas


def test_serve_carries_the_protocol_over_stdin_and_stdout(house):
    import subprocess

    job = house.start()
    job.until_steps()
    talk = subprocess.Popen(
        [sys.executable, "-m", "carbontui.cli", "serve", "--stdio", job.id],
        env=house.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    talk.stdin.write(b'{"t":"hello","v":1,"version":"0","role":"viewer"}\n{"t":"status","id":5}\n')
    talk.stdin.flush()
    assert json.loads(talk.stdout.readline())["t"] == "welcome"
    answer = json.loads(talk.stdout.readline())
    assert answer["id"] == 5 and answer["status"]["job"] == job.id
    talk.stdin.close()
    talk.wait(20)


def test_a_restricted_key_may_look_and_nothing_else(house):
    job = house.start()
    job.until_steps()
    peer = subprocess.Popen(
        [sys.executable, "-m", "carbontui.cli", "serve", "--stdio", "--readonly", job.id],
        env=house.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def ask(line):
        peer.stdin.write(line + b"\n")
        peer.stdin.flush()
        return json.loads(peer.stdout.readline())

    assert ask(b'{"t":"hello","v":1,"version":"0","role":"rank"}')["t"] == "refused"
    assert ask(b'{"t":"hello","v":1,"version":"0","role":"viewer"}')["t"] == "welcome"
    for verb in ("pause", "boost", "cap", "resume", "budget", "stop", "calibrate"):
        line = json.dumps({"t": "cmd", "id": 7, "verb": verb, "args": {"value_w": 300, "budget": "9h"}}).encode()
        answer = ask(line)
        assert (answer["t"], answer["id"], answer["ok"], answer["exit_code"]) == ("result", 7, False, 4)
        assert verb in answer["error"] and "read-only" in answer["error"] and "\n" not in answer["error"]
    for line in (b'{"t":"obs","step":1,"state":"running","want_gen":0}', b'{"t":"order of a later version"}', b"{"):
        assert ask(line)["t"] == "refused"
    status = ask(b'{"t":"status","id":5}')["status"]
    assert status["state"] == "running" and status["override"] is None
    assert ask(b'{"t":"log.read","id":6,"offset":0,"max":100}')["t"] == "log.read"
    peer.stdin.write(b'{"t":"status","id":9}\n')
    peer.stdin.close()  # who asks and closes its end has the answer all the same
    assert json.loads(peer.stdout.readline())["id"] == 9
    assert peer.wait(20) == 0
    assert job.served().override_gen == status["override_gen"]


def test_attach_after_an_upgrade_names_both_versions_and_the_restart(house, tmp_path):
    job = house.start()
    job.until_steps()
    newer = tmp_path / "newer"
    newer.mkdir()
    # as an upgrade would: this command line is of another version than the supervisor that runs
    (newer / "sitecustomize.py").write_text("import carbontui\ncarbontui.__version__ = '99.0'\n")
    first = job.pids()["supervisor"]
    house.env["PYTHONPATH"] = str(newer)
    command = [sys.executable, "-m", "carbontui.cli", "attach", job.id]
    screen = subprocess.Popen(
        command, env=house.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        line = screen.stderr.readline()
        assert "this is 99.0" in line and line.rstrip().endswith(f"kill {first}")
    finally:
        screen.kill()
        screen.wait()
        screen.stderr.close()


def test_output_as_objects_holds_every_line_and_says_where_it_lies(house):
    job = house.start("--name", "l", steps=3)
    job.until_exit()
    text = "α one\n\rstep 1\rstep 2\r\n\nlast ".encode() + b"\xff"
    (job.dir / "run.log").write_bytes(text)
    said = [json.loads(line) for line in house.cli("log", job.id, "--json", check=True).stdout.splitlines()]
    assert [line["text"] for line in said] == ["α one", "", "step 1", "step 2", "", "last �"]
    assert [text[line["offset"] :].startswith(line["text"][:4].encode()) for line in said] == [True] * 6
    assert house.cli("log", job.id, "--json", "-n", "2", check=True).stdout.splitlines()[1] == json.dumps(
        said[-1], ensure_ascii=False, separators=(",", ":")
    )


def test_output_followed_as_objects_ends_with_the_job_and_misses_nothing(house):
    command = [
        sys.executable,
        "-uc",
        "import time\nfor i in range(30): print(i); time.sleep(0.02)\nprint('end', end='')",
    ]
    job_id = house.cli("run", "--detach", "--", *command, check=True).stdout.strip()
    done = house.cli("log", "-f", "--json", job_id, check=True)
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == [*map(str, range(30)), "end"]
