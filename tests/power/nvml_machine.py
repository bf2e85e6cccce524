"""Fixtures: the simulated NVML, compiled once per run. Tests that need it skip where there is no C compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nvmlsim"))
from nvmlsim import Sim, built


@pytest.fixture
def machine_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sim]:
    """make(devices, frozen=...) -> Sim; agents started afterwards see it, with leases of their own."""

    library = built()
    if library is None:
        pytest.skip("no C compiler (cc): the simulated NVML cannot be built")

    def make(devices: int = 1, *, frozen: bool = False) -> Sim:
        sim = Sim(library, tmp_path / "nvml.state", devices, frozen=frozen)
        for key, value in sim.env().items():
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("CARBONTUI_LEASE_DIR", str(tmp_path / "leases"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return sim

    return make
