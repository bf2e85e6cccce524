"""Modules that are slow to load, loaded where they are first used: every worker collects every file, few run it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


def together(name: str) -> pytest.MarkDecorator:
    """One worker runs the tests of this name: what they load or work out in its process, no other needs."""
    return pytest.mark.xdist_group(name)


IN_PROCESS = together("torch")
"""Of what uses torch in the process of the test."""


class Later:
    """Stands for a module; loads it with the first attribute that is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pytest asks everything it finds whether it is a test
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")
