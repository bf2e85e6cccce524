"""The README points at what is there: every picture and file, every verb."""

from __future__ import annotations

import re
from pathlib import Path

from carbontui.cli import VERBS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_picture_and_folder_exists() -> None:
    named = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"`((?:tests|carbontui|screenshots)/[\w./-]+)`", README)
    assert any(name.endswith(".svg") for name in named)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_verb_exists() -> None:
    said = set(re.findall(r"carbontui ([a-z]+)\b", "\n".join(re.findall(r"`[^`]+`|```.*?```", README, re.DOTALL))))
    assert {"run", "attach", "demo"} <= said
    assert said - set(VERBS) == set()
