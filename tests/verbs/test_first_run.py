"""The first run without a flag: what is asked on a terminal, what Enter takes, what is kept, what is said."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from house import until

ASKED = ("Grid zone", "How long may it take")


class Typed:
    """A person at a terminal in front of `carbontui`."""

    def __init__(self, house, *words):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            env = {**house.env, "TERM": "xterm", "TZ": "Europe/Berlin"}
            os.chdir(house.root)
            os.execve(sys.executable, [sys.executable, "-m", "carbontui.cli", *map(str, words)], env)
        self.seen = ""

    def read(self, text, timeout=40.0):
        due = time.monotonic() + timeout
        while text not in self.seen:
            assert select.select([self.master], [], [], due - time.monotonic())[0], self.seen
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        return self.seen

    def answer(self, text):
        os.write(self.master, text.encode() + b"\n")


@contextmanager
def typed(house, *words):
    person = Typed(house, *words)
    try:
        yield person
    finally:
        os.close(person.master)
        os.waitpid(person.pid, 0)


def command(house, steps=100_000):
    return "--", sys.executable, house.script, steps, 0.01, 0, house.root / "t.steps"


def the_job(house):
    (job,) = until(lambda: list(house.home.glob("jobs/*/spec.json")), what="a job")
    return job.read_text()


def test_two_enters_take_the_zone_of_the_clock_which_is_kept_and_twice_the_time(house):
    with typed(house, "run", *command(house)) as person:
        assert "[DE]" in person.read("settings) [DE]: ")
        person.answer("")
        offered = person.read("[2x]: ")
        assert "typical days of DE" in offered and "1x (no waiting)" in offered
        assert "CO2" in offered or "saves nothing" in offered, "by the hour"
        person.answer("")
        until(lambda: (house.root / "t.steps").exists(), what="the first step")
    assert (house.home / "config.toml").read_text() == 'zone = "DE"\n'
    assert '"zone": "DE"' in the_job(house) and '"budget": "2x"' in the_job(house)


def test_an_answer_that_cannot_be_read_is_asked_for_again(house):
    house.env["CARBONTUI_ZONE"] = "FR"
    with typed(house, "run", "--work", "4h", *command(house)) as person:
        assert "ends" in person.read("[2x]: ") and "Grid zone" not in person.seen
        person.answer("soon")
        person.read("is not understood")
        person.answer("1.5x")
        person.read("Try the command now")
        person.answer("n")
        until(lambda: list(house.home.glob("jobs/*/spec.json")), what="a job")
    assert '"budget": "1.5x"' in the_job(house)


@pytest.mark.parametrize("words", [("--zone", "DE", "--budget", "1x"), ("--wait",), ("-q",), ("--detach",)], ids=str)
def test_who_has_said_it_or_is_a_script_is_asked_nothing(house, words):
    with typed(house, "run", *words, *command(house, steps=3)) as person:
        until(lambda: (house.root / "t.steps").exists(), what="the first step")
        assert not any(question in person.seen for question in ASKED)


def test_a_headless_run_says_what_it_assumed_and_what_would_save_more(house):
    house.env["TZ"] = "Europe/Berlin"
    done = house.cli("run", "--steps", "3", *command(house, steps=3), check=True)
    said = done.stderr.splitlines()
    assert len(said) <= 5 and "zone DE by the time zone, budget 1.0x: nothing waits" in said[1]
    assert said[2].startswith("carbontui: counts what it draws above idle; --boundary given-back: all that it draws")
    told = house.cli("run", "--zone", "DE", "--budget", "2x", *command(house, steps=3), check=True).stderr
    assert "by the time zone" not in told


def test_a_question_that_nobody_answers_ends_with_the_terminal_and_no_job(house):
    with typed(house, "run", *command(house)) as person:
        person.read("[DE]: ")
    assert not list(house.home.glob("jobs/*"))


def test_a_setting_is_kept_in_front_of_those_that_are_there(tmp_path, monkeypatch):
    from carbontui import config

    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text("pue = 1.5  # mine\n")
    config.keep("zone", "FR")
    loaded = config.load()
    assert (loaded.settings.zone, loaded.settings.pue, loaded.origin["zone"]) == ("FR", 1.5, "config.toml")
    assert subprocess.run(["grep", "-c", "mine", tmp_path / "config.toml"], check=True, capture_output=True).stdout
