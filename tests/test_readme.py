"""README, docs, pages for contributors: what they point at is there, every command that they show is understood."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from carbontui import hooks
from carbontui.cli import VERBS, cli

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
CONTRIBUTORS = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
NAMES = [str(page.relative_to(ROOT)) for page in (README, *PAGES)]
BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
OF_EXTENSIONS = {
    "backtest": "evaluation",
    "evaluate": "evaluation",
    "submit": "fleet",
    "fleet": "fleet",
    "move": "moves",
    "site": "site",
    "web": "web",
    "mcp": "mcp",
}
"""Commands that pages show although an extension brings them, which may be deleted."""
GONE = {command for command, extension in {**OF_EXTENSIONS, "--at": "moves"}.items() if extension not in hooks.own()}
ENDS = {"|", "&&", ";", "<", ">", "<<E", "&"}


def commands(text: str) -> list[str]:
    """Lines of code blocks, and inline code, that call carbontui."""
    text = text.replace("\\\n", " ")
    inline = [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text))]
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    said = [re.sub(r"\s#\s.*", "", line).strip() for line in (*inline, *lines)]
    return [one for one in said if re.match(r"(\w+=\S+ |sudo |ssh host |srun .*|.*&& )?carbontui( |$)", one)]


def arguments(command: str) -> list[str]:
    """What the shell would hand to carbontui."""
    words = shlex.split(command)
    words = words[words.index("carbontui") + 1 :]
    end = next((i for i, word in enumerate(words) if word in ENDS), len(words))
    return [word for word in words[:end] if word != "..."]


def understood(words: list[str]) -> None:
    """Parsed by the command line's own parser. Raises click.UsageError for a verb or option that is not there."""
    group, ctx = cli, click.Context(cli, info_name="carbontui")
    while words and not words[0].startswith("-"):
        name, command, words = group.resolve_command(ctx, words)
        ctx = click.Context(command, info_name=name, parent=ctx)
        if not isinstance(command, click.Group):
            command.make_parser(ctx).parse_args([word for word in words if word != "--all" or "--help" not in words])
            return
        group = command
    if not words or words[0] not in ("--help", "-h"):
        group.make_parser(ctx).parse_args(words)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_that_a_page_shows_is_understood(name: str) -> None:
    refused = []
    for command in commands((ROOT / name).read_text()):
        if GONE.intersection(arguments(command)):
            continue
        try:
            understood(arguments(command))
        except (click.ClickException, ValueError) as error:
            refused.append((command, str(error)))
    assert refused == []


def test_the_readme_is_short_and_shows_how_to_begin() -> None:
    text = README.read_text()
    assert len(text.split()) <= 900
    shown = {words[0] for one in commands(text) if (words := arguments(one))}
    assert {"run", "demo", "report"} <= shown <= {*VERBS, *OF_EXTENSIONS, "--help"}
    assert 'pip install ".[demo]" && carbontui demo' in text and 'pip install -e ".[test]" && pytest' in text


@pytest.mark.parametrize("page", [README, *PAGES, *CONTRIBUTORS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_links_to_exists(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    links = [link for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text) if not link.startswith("screenshots/")]
    links += re.findall(r"`((?:tests|carbontui|examples)/(?![\w./-]*NAME)[\w./-]+)`", text) if page not in PAGES else []
    at = [page.parent / link if f"]({link}" in text else ROOT / link for link in links]
    assert [str(one) for one in at if not one.exists()] == []
    pictures = re.findall(r"\]\((screenshots/[^)]+)\)", text)
    assert [name for name in pictures if not (ROOT / name).exists()] == []


def test_every_page_is_in_the_site_and_the_site_has_no_other() -> None:
    nav = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(nav) == [str(page.relative_to(ROOT / "docs")) for page in PAGES]
    assert yaml.safe_load((ROOT / "mkdocs.yml").read_text())["strict"] is True


def test_the_page_of_verbs_names_each_also_where_nothing_builds_it() -> None:
    from carbontui.cli import DAY, MORE

    page = (ROOT / "docs" / "reference" / "verbs.md").read_text()
    rows = [f"| `{verb}` | {text} |" for verbs in (DAY | MORE).values() for verb, text in verbs.items()]
    assert [row for row in rows if row not in page] == []


@pytest.mark.parametrize("page", CONTRIBUTORS[:2], ids=lambda page: page.name)
def test_every_file_that_a_page_for_contributors_names_exists(page: Path) -> None:
    text = page.read_text()
    parts = ("carbontui", "tests", "screenshots")
    files = [f"/{path.relative_to(ROOT)}" for part in parts for path in (ROOT / part).rglob("*.py")]
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", text))
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []
    folders = set(re.findall(r"`((?:[a-z_]+/)+)`", text))
    held = {str(path.parent) + "/" for path in map(Path, files)}
    assert [name for name in sorted(folders) if not any(file.endswith(f"/{name}") for file in held)] == []


def test_the_man_page_is_what_the_command_line_declares() -> None:
    made = subprocess.run([sys.executable, ROOT / "docs" / "man.py"], capture_output=True, text=True, check=True).stdout
    kept, named = (
        (ROOT / "docs" / "carbontui.1").read_text(),
        re.compile(r"\\-\\-[a-z\\-]+|^\.SS \S+ \S+", re.MULTILINE),
    )
    assert GONE or named.findall(made) == named.findall(kept), "run: python docs/man.py > docs/carbontui.1"
