"""A machine with AMD boards: the stand-in for amdsmi beside this file, and its truth."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "amd"


def board(place: int, **fields: Any) -> dict[str, Any]:
    """A MI300X at rest."""
    now = time.monotonic()
    return {
        "name": "AMD Instinct MI300X",
        "serial": f"0x{0xCF1182F2988C0A4C + place:016X}",
        "bdf": f"0000:{0xC1 + place:02x}:00.0",
        "idle_w": 140.0,
        "full_w": 720.0,
        "level": 1.0,
        "cap_uw": 750_000_000,
        "default_uw": 750_000_000,
        "range_uw": [100_000_000, 750_000_000],
        "cap_works": True,
        "lock_mhz": 0,
        "max_mhz": 2100,
        "at_s": now,
        "begun_s": now,
        "true_j": 0.0,
        "counted_j": 12_345.0,
        **fields,
    }


class AmdMachine:
    """The file that the stand-in's processes share; a frozen one has its own clock."""

    def __init__(self, path: Path, boards: list[dict[str, Any]], *, frozen: bool = False) -> None:
        self.path = path
        state: dict[str, Any] = {"boards": boards}
        if frozen:
            state["clock_s"] = 1000.0
            for one in boards:
                one["at_s"] = one["begun_s"] = 1000.0
        path.write_text(json.dumps(state))

    @contextlib.contextmanager
    def state(self) -> Iterator[dict[str, Any]]:
        """Everything, to be changed; joules are booked first."""
        import amdsmi

        with amdsmi.machine(write=True) as state:
            amdsmi.settle(state)
            yield state

    def set(self, place: int = 0, **fields: Any) -> None:
        with self.state() as state:
            state["boards"][place].update(fields)

    def get(self, key: str, place: int = 0) -> Any:
        with open(f"{self.path}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return json.loads(self.path.read_text())["boards"][place].get(key)

    def true_j(self, place: int = 0) -> float:
        with self.state() as state:
            return float(state["boards"][place]["true_j"])

    def advance(self, seconds: float) -> None:
        with self.state() as state:
            state["clock_s"] += seconds
        with self.state():
            pass

    def cap_w(self, place: int = 0) -> float:
        return float(self.get("cap_uw", place)) / 1e6


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AmdMachine]:
    """make(board(0), board(1), frozen=...) -> AmdMachine; agents started afterwards see it, without NVIDIA boards."""
    path = tmp_path / "amd.json"
    monkeypatch.setenv("AMDSMI_STATE", str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH")))))
    monkeypatch.setenv("CARBONTUI_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("CARBONTUI_CAPD", str(tmp_path / "no-capd.sock"))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)

    def make(*boards: dict[str, Any], frozen: bool = False) -> AmdMachine:
        return AmdMachine(path, list(boards) or [board(0)], frozen=frozen)

    return make
