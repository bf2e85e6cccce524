"""constraints.txt pins what pyproject.toml allows, with hashes, and names no place to fetch it from."""

from __future__ import annotations

import ast
import re
import sys
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


def direct(*extras: str) -> list[Requirement]:
    """What an installation with these extras asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    more = (text for extra in extras for text in project["optional-dependencies"][extra])
    return [Requirement(text) for text in (*project["dependencies"], *more)]


def test_every_direct_dependency_has_a_pin_that_its_range_allows():
    locked = pins()
    for one in direct("test"):
        if one.name in NOT_PINNED:
            assert one.name not in locked
            continue
        versions = [spec.version for pin in locked[canonicalize_name(one.name)] for spec in pin.specifier]
        assert versions and all(one.specifier.contains(version) for version in versions), f"{one}: run .ci/lock"


def test_every_package_that_is_imported_is_declared():
    declared = {one.name for one in direct("amd", "torch", "web", "mcp", "notebook")}
    package = ROOT / "carbontui"
    files = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in ("client", "train.py")]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    names = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    foreign = {name.split(".")[0] for name in names} - {*sys.stdlib_module_names, "carbontui"}
    assert {"nvidia-ml-py" if name == "pynvml" else name.replace("_", "-").lower() for name in foreign} <= declared


def test_the_click_that_takes_no_answer_for_a_refusal_is_not_allowed():
    (click,) = (one for one in direct() if one.name == "click")
    assert not click.specifier.contains("8.2.2") and click.specifier.contains("8.2.1")


def test_only_textual_has_an_upper_bound_beside_torch():
    bounded = {one.name for one in direct() if any("<" in s.operator for s in one.specifier)}
    assert bounded == {"textual"}


def test_the_lock_names_no_host():
    assert not re.search(r"https?://|--index|--find-links|@ ", (ROOT / "constraints.txt").read_text())
