"""Real frameworks: each test skips where its own is not installed (the extra `frameworks`)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from client_fixtures import hook, supervisor

__all__ = ["hook", "supervisor"]

if importlib.util.find_spec("transformers") is None:  # minutes of it belong into the environment of the frameworks
    collect_ignore = ["test_frameworks.py"]
