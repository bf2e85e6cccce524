"""Fixtures every area shares."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from house import House


@pytest.fixture
def house(tmp_path):
    runtime = Path(tempfile.mkdtemp(prefix="ct-"))
    made = House(tmp_path, runtime)
    yield made
    made.end()
    shutil.rmtree(runtime, ignore_errors=True)
