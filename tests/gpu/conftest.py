"""The guard of every test here: the power limit after it is the one before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from client_fixtures import finish, hook, launch, supervisor
from gpu_machine import NAME, UUID

from carbontui.power.backends.base import DeviceError
from carbontui.power.backends.nvml import NvmlBackend

__all__ = ["finish", "hook", "launch", "supervisor", "untouched"]


def limit_mw(backend: NvmlBackend) -> int | None:
    try:
        return backend.limit_mw(UUID)
    except DeviceError:
        return None  # a board without one: nothing to change


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    if not NAME:
        yield
        return
    backend = NvmlBackend()
    backend.open()
    before = limit_mw(backend)
    yield
    after = limit_mw(backend)
    backend.close()
    assert after == before
