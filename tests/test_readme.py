"""The README and the pages for contributors point at what is there: every picture and file, every verb."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from carbontui.cli import VERBS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_picture_and_folder_exists() -> None:
    named = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"`((?:tests|carbontui|screenshots)/[\w./-]+)`", README)
    assert any(name.endswith(".svg") for name in named)
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_for_contributors_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [name for name in links if not (ROOT / name).exists()] == []
    parts = ("carbontui", "tests", "screenshots")
    files = [f"/{path.relative_to(ROOT)}" for part in parts for path in (ROOT / part).rglob("*.py")]
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", text))
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []
    folders = set(re.findall(r"`((?:[a-z_]+/)+)`", text))
    held = {str(path.parent) + "/" for path in map(Path, files)}
    assert [name for name in sorted(folders) if not any(file.endswith(f"/{name}") for file in held)] == []


def test_every_verb_exists() -> None:
    said = set(re.findall(r"carbontui ([a-z]+)\b", "\n".join(re.findall(r"`[^`]+`|```.*?```", README, re.DOTALL))))
    assert {"run", "attach", "demo"} <= said
    assert said - set(VERBS) == set()
