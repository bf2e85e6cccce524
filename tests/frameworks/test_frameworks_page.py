"""docs/frameworks.md shows lines of examples that are run, not lines of its own."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "frameworks.md").read_text()


def bare(text: str) -> str:
    """Without indentation and empty lines, which a formatter sets."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_every_recipe_is_part_of_an_example():
    examples = [bare(path.read_text()) for path in ROOT.glob("examples/**/*.py")]
    recipes = [bare(recipe) for recipe in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)]
    assert len(recipes) >= 5
    assert [recipe for recipe in recipes if not any(recipe in example for example in examples)] == []


def test_every_file_it_names_is_there():
    named = re.findall(r"`(examples/[\w./]+)`", PAGE) + [f"docs/{path}" for path in re.findall(r"\]\(([^)]+)\)", PAGE)]
    assert named and [path for path in named if not (ROOT / path).exists()] == []
