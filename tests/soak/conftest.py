"""Long forms run only with `-m soak`; the fixtures are those of tests/client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from client_fixtures import finish, hook, launch, supervisor

__all__ = ["finish", "hook", "launch", "supervisor"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "soak" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("soak") and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="the long form: run it with -m soak"))
