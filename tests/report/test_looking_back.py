"""Verbs that look take the last job where none runs and none is named; those that steer never do."""

from __future__ import annotations

import os
import pty
import sys

import msgspec
import pytest
import runs
from click.testing import CliRunner

from carbontui.commands import override, report
from carbontui.commands import status as status_command
from carbontui.system import streams


@pytest.fixture
def two_jobs(tmp_path, monkeypatch):
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    monkeypatch.delenv("CARBONTUI_JOB", raising=False)
    for name, job, created_s in (("old.py", "aaaaaa", 1.7e9), ("train.py", "bbbbbb", 1.8e9)):
        monkeypatch.setattr(runs, "START_S", created_s)
        made = runs.make(tmp_path, name, job=job, phases=runs.DAY[:2])
        (made.dir / "run.log").write_text(f"last words of {name}\n")


def test_the_output_and_the_state_of_the_last_job_need_no_name(two_jobs):
    found = CliRunner().invoke(status_command.log, [])
    assert (found.exit_code, found.output) == (0, "last words of train.py\n")
    told = CliRunner().invoke(status_command.status, [])
    assert told.exit_code == 0 and "train.py" in told.output.splitlines()[0]
    refused = CliRunner().invoke(override.pause, [])
    assert refused.exit_code != 0 and "no job is running; these are over" in refused.output


def test_a_long_finding_is_folded_between_words_on_a_terminal_and_whole_in_a_pipe(monkeypatch):
    text = "estimated (cpu: 4 W per thread by utilisation of the whole machine; docs/frameworks.md says how)"
    monkeypatch.setenv("COLUMNS", "60")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal, os.fdopen(master):
        monkeypatch.setattr(sys, "stdout", terminal)
        told = streams.folded(text, indent=20)
        monkeypatch.undo()
    assert " ".join(told.split()) == text and max(map(len, told.splitlines())) < 60
    assert all(line.startswith(" " * 20) for line in told.splitlines()[1:])


def test_explain_names_the_error_that_a_failed_run_ended_with(tmp_path, monkeypatch):
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    job = runs.make(tmp_path, phases=runs.DAY[:2])
    status = msgspec.json.decode((job.dir / "snapshot.json").read_bytes())
    (job.dir / "snapshot.json").write_bytes(msgspec.json.encode({**status, "state": "failed"}))
    (job.dir / "run.log").write_text("step 60\nTraceback (most recent call last):\nRuntimeError: out of memory\n")
    told = CliRunner().invoke(report.explain, [])
    assert "Its last error: RuntimeError: out of memory (all of it: carbontui log abcdef)" in told.output
