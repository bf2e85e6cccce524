"""What doctor says of boards that keep silent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from carbontui.commands import doctor


def test_a_driver_that_does_not_answer_is_no_missing_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CARBONTUI_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setattr(doctor, "FIRST_VIEW_S", 0.0)
    (finding,) = asyncio.run(doctor.power_findings(False))
    assert finding.verdict == "missing" and "has not answered" in finding.text
