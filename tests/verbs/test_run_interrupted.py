"""Ctrl-C while the screen is still being loaded: the job has begun, and whoever pressed it must be told."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from carbontui.commands import attach, run
from carbontui.commands.support import trying
from carbontui.job.files import store
from carbontui.job.life import launch


@pytest.mark.parametrize("live", [True, False])
def test_a_job_that_goes_on_is_named(
    live: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(job: str, **_: Any) -> int:
        raise KeyboardInterrupt

    (tmp_path / "environment.json").touch()
    job: Any = SimpleNamespace(job="k7q2mz", name="train.py", dir=str(tmp_path), spool=True, work_s=None, budget="1x")
    job.reads_once = False
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(launch, "start", lambda job, **_: 1)
    monkeypatch.setattr(attach, "open_screen", interrupted)
    monkeypatch.setattr(store, "load", lambda directory: SimpleNamespace(live=live))
    with pytest.raises(KeyboardInterrupt):
        run.start_and_follow(job, detach=False)
    said = capsys.readouterr().err
    assert ("train.py goes on; look: carbontui attach k7q2mz, end it: carbontui stop k7q2mz" in said) is live


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_who_leaves_at_the_question_before_the_start_leaves_no_job_behind(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "k7q2mz"
    folder.mkdir()
    monkeypatch.setattr(launch, "waits", lambda job: True)
    monkeypatch.setattr(click, "confirm", lambda text, **_: os.kill(os.getpid(), number))
    before = signal.getsignal(signal.SIGHUP)
    job: Any = SimpleNamespace(dir=str(folder))
    with pytest.raises(KeyboardInterrupt):
        trying.try_wanted(job)
    assert not folder.exists() and signal.getsignal(signal.SIGHUP) is before
