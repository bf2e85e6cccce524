"""What machines run for a change and what people are asked: workflows, templates, pre-commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = sorted(path for path in (ROOT / ".github").rglob("*.yml"))


@pytest.mark.parametrize("path", [*GITHUB, ROOT / ".pre-commit-config.yaml"], ids=lambda path: path.name)
def test_what_github_reads_is_whole_and_asks_for_no_secret(path: Path) -> None:
    text = path.read_text()
    read = yaml.safe_load(text)
    assert "secrets." not in text and "${{ github.event" not in text, "a stranger's text in a shell"
    assert all(re.search(r"@(v\d+|release/v\d+)$", name) for name in re.findall(r"uses: (\S+)", text))
    if path.parent.name == "ISSUE_TEMPLATE" and "body" in read:
        asked = read["body"]
        assert read["name"] and read["description"] and len({one["id"] for one in asked}) == len(asked)
        assert all(one["type"] in ("input", "textarea") and one["attributes"]["label"] for one in asked)


def test_every_supported_python_is_tested_and_the_lowest_versions_and_the_core_alone() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert set(named) <= set(jobs["tests"]["strategy"]["matrix"]["python"])
    ran = {name: " ".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    assert {"ruff check .", "ruff format --check .", "mypy"} <= {step.get("run") for step in jobs["lint"]["steps"]}
    assert "lowest-direct" in ran["lowest"] and "carbontui/extensions/*/" in ran["core"]
    assert all("pytest" in ran[name] for name in ("tests", "lowest", "core"))
