"""Fixtures of the grid tests: the local provider, and retries that do not wait."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import stamina
from grid_site import site

from carbontui.grid.providers.caiso import Caiso

__all__ = ["no_waiting", "site"]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stamina.set_testing(True, attempts=2)
    monkeypatch.setattr(Caiso, "pause_s", 0.0)
    # httpcore looks for it several times a request, all along the path where it is not installed
    monkeypatch.setitem(sys.modules, "sniffio", None)
    yield
    stamina.set_testing(False)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "soak" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("soak") and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="the long form: run it with -m soak"))
