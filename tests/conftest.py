"""Fixtures every area shares."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from house import House
from hypothesis import settings

# the same examples in every run: a failure must be the change's, not the dice's
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# a runner started in the background, or under nohup, ignores signals that what we start must feel
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def house(tmp_path):
    runtime = Path(tempfile.mkdtemp(prefix="ct-"))
    made = House(tmp_path, runtime)
    yield made
    made.end()
    shutil.rmtree(runtime, ignore_errors=True)
