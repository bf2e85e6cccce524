"""What machines run for a change and what people are asked: workflows, templates, pre-commit."""

from __future__ import annotations

import re
import subprocess
import sys
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
    assert all(re.search(r"@(v\d+|release/v\d+)$", name) for name in re.findall(r"uses: ([^.]\S+)", text))
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


def test_what_is_published_was_tested_and_built_as_it_is_checked() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert jobs["tests"]["uses"] == "./.github/workflows/tests.yml" and set(jobs["publish"]["needs"]) == {
        "tests",
        "build",
    }
    assert any(step.get("run", "").startswith(".ci/release ") for step in jobs["build"]["steps"])


def test_the_package_page_installs_by_name_and_every_link_of_it_is_whole(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml", "carbontui/client/version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    made = [sys.executable, ROOT / ".ci" / "package_page.py", "https://example.org/c/", tmp_path]
    missing = subprocess.run(made, capture_output=True, text=True)
    assert missing.returncode == 1 and "README.md links to screenshots/" in missing.stderr
    for name in ("screenshots", "docs", *(path.name for path in ROOT.glob("*.md") if path.name != "README.md")):
        (tmp_path / name).symlink_to(ROOT / name)
    subprocess.run(made, check=True)

    page = (tmp_path / "README.md").read_text()
    assert 'pip install "carbontui[demo]" && carbontui demo' in page and "`pip install .`" not in page
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) > 30 and all(link.startswith("https://example.org/c/") for link in links)
    assert all(re.search(r"/c/raw/v[\d.]+/screenshots/", link) for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page))
    urls = (tmp_path / "pyproject.toml").read_text().partition("[project.urls]")[2]
    assert 'Issues = "https://example.org/c/issues"' in urls.partition("[project.scripts]")[0]
