"""Fixtures every area shares."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import NOBODY, House
from hypothesis import settings

# the same examples in every run: a failure must be the change's, not the dice's
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# the workers of the suite share the cores: threads of a numerical library would spin for each other's
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# an installed package comes compiled: where nothing may be written, every command would compile this tree anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# a runner started in the background, or under nohup, ignores signals that what we start must feel
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_sessionstart() -> None:
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits longest begins first: at the end no worker waits for it."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no garbage collection of a test walks it."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """pytest collects garbage five times at its end, for what nobody closed; once finds it all."""
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers() -> int:
    """Three more than there are cores: most tests wait for processes, few compute."""
    return len(os.sched_getaffinity(0)) + 3


@pytest.fixture
def ordinary_folder() -> Iterator[Path]:
    """An empty folder that belongs to the ordinary user of `house.ordinary_user`, and whose parents are open to it."""
    with tempfile.TemporaryDirectory(prefix="ct-") as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@pytest.fixture
def house(tmp_path):
    runtime = Path(tempfile.mkdtemp(prefix="ct-"))
    made = House(tmp_path, runtime)
    yield made
    made.end()
    shutil.rmtree(runtime, ignore_errors=True)
