"""constraints.txt pins what pyproject.toml allows, with hashes, and names no place to fetch it from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
NOT_PINNED = {"torch"}
"""Its builds for CUDA and for the CPU have one version and many hashes."""

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML by itself")


def pins() -> dict[str, list[Requirement]]:
    """Name -> its pins (one per range of Python versions)."""
    found: dict[str, list[Requirement]] = {}
    text = (ROOT / "constraints.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            what, *hashes = re.split(r"\s+--hash=", line.strip())
            assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), what
            pin = Requirement(what)
            found.setdefault(canonicalize_name(pin.name), []).append(pin)
    return found


def test_every_direct_dependency_has_a_pin_that_its_range_allows():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(text) for text in project["dependencies"] + project["optional-dependencies"]["test"]]
    locked = pins()
    for one in wanted:
        if one.name in NOT_PINNED:
            assert one.name not in locked
            continue
        versions = [spec.version for pin in locked[canonicalize_name(one.name)] for spec in pin.specifier]
        assert versions and all(one.specifier.contains(version) for version in versions), f"{one}: run .ci/lock"


def test_only_textual_has_an_upper_bound_beside_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounded = {
        one.name for one in map(Requirement, project["dependencies"]) if any("<" in s.operator for s in one.specifier)
    }
    assert bounded == {"textual"}


def test_the_lock_names_no_host():
    assert not re.search(r"https?://|--index|--find-links|@ ", (ROOT / "constraints.txt").read_text())
