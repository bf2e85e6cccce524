"""Surroundings that are against us: one clear line and a documented exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

REFUSED = [
    (["run", "--carbon-price", "nan", "--objective", "cost", "--currency", "EUR", "--", "true"], "is not a price"),
    (["run", "--work", "9" * 400 + "d", "--", "true"], "longer than ten years"),
    (["run", "--work", "0h", "--", "true"], "must be longer than zero"),
    (["run", "--max-pause", "soon", "--", "true"], "--max-pause"),
    (["run", "--weight", "green", "--currency", "EUR", "--", "true"], "carbon=0.7,cost=0.3"),
    (["run", "--weight", "carbon=1", "--", "true"], "--weight needs --currency"),
    (["run", "--name", "two\nlines", "--", "true"], "--name"),
    (["run", "--log", "/no/such/folder/run.log", "--", "true"], "--log"),
    (["solve", "--zone", "DE", "--work", "8h", "--watts", "nan"], "is not a power"),
    (["solve", "/dev/zero"], "more than"),
    (["pause", "--for", "0s"], "is not longer than zero"),
    (["--readonly", "pause"], "--readonly"),
]


@pytest.mark.parametrize(("arguments", "word"), REFUSED, ids=[" ".join(a)[:40] for a, _ in REFUSED])
def test_refused_in_one_line_and_nothing_of_a_job_is_left(house, arguments, word):
    done = house.cli(*arguments)
    assert done.returncode == 2 and word in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and done.stdout == ""
    assert not list(house.home.glob("jobs/*"))


@pytest.mark.parametrize(
    ("content", "word"), [(b"\xff\xfe", "TOML"), (b"host_w = inf", "host_w"), (b"zone = [", "TOML")]
)
def test_a_broken_settings_file_is_named(house, content, word):
    house.home.mkdir(parents=True)
    (house.home / "config.toml").write_bytes(content)
    done = house.cli("run", "--detach", "--", "true")
    assert done.returncode == 2 and word in done.stderr and "config.toml" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_state_directory_that_cannot_be_is_a_finding_of_the_doctor(house):
    house.env["CARBONTUI_HOME"] = "/proc/nowhere"
    done = house.cli("doctor")
    assert done.returncode == 1 and "missing  state" in done.stdout and "Traceback" not in done.stderr


def test_letters_the_locale_lacks_become_question_marks(house):
    house.env |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = house.cli("solve", "--zone", "DE", "--work", "2h", "--start", "2030-01-01T00:00:00Z")
    assert done.returncode == 0 and done.stderr == "" and "Certificate" in done.stdout


def test_streams_that_are_closed_or_full_are_no_crash(house):
    def shell(line: str) -> subprocess.CompletedProcess[str]:
        command = f"{sys.executable} -m carbontui.cli {line}"
        return subprocess.run(["sh", "-c", command], env=house.env, capture_output=True, text=True, check=False)

    assert shell("ls >&- 2>&- <&-").returncode == 0
    begun = "import sys; from carbontui.__main__ import main; sys.argv[1:] = ['line']; main()"
    line = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-c", begun], env=house.env, stderr=subprocess.PIPE, check=False
    )
    assert (line.returncode, line.stderr) == (0, b"")
    doctor = shell("doctor >&- <&-")  # which starts an agent
    assert doctor.stderr == ""
    if os.path.exists("/dev/full"):
        full = shell("zones >/dev/full")
        assert full.returncode == 1 and full.stderr.strip() == "carbontui: No space left on device"


def test_bare_without_a_terminal_asks_nobody(house):
    assert house.cli().returncode == 3
    house.start(name="one")
    house.start(name="two")
    done = house.cli()
    assert done.returncode == 2 and "one" in done.stderr and "two" in done.stderr


def test_until_next_needs_a_change_and_a_time_that_is_over_is_refused(house):
    job = house.start()
    done = house.cli("pause", job.id, "--until", "next")
    assert done.returncode == 2 and "no next change" in done.stderr
    done = house.cli("pause", job.id, "--until", "2020-01-01T00:00:00Z")
    assert done.returncode == 2 and "in the past" in done.stderr
