"""What the site shows that lies outside docs/: the pictures of screenshots/, keys as bound and verbs as declared in the
code."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from carbontui import cli
from carbontui.tui.screens import jobs, log, plan
from carbontui.tui.terminal import keys

PICTURES = Path(__file__).parent.parent / "screenshots"
KEYS, VERBS = "<!-- keys", "<!-- verbs"
PAGES = {
    "The dashboard": keys.BINDINGS,
    "The table of all jobs": jobs.Jobs.BINDINGS,
    "The output": log.LogScreen.BINDINGS,
    "The plan": plan.PlanPage.BINDINGS,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for picture in sorted(PICTURES.glob("*.svg")):
        files.append(File.generated(config, f"screenshots/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    for mark, made in ((KEYS, of_keys), (VERBS, of_verbs)):
        head, found, _ = markdown.partition(mark)
        if found:
            return head + "\n".join(made())
    return markdown


def of_verbs() -> Iterator[str]:
    top = click.Context(cli.cli, info_name="carbontui", help_option_names=["-h", "--help"])
    for heading, verbs in cli.headings().items():
        yield f"\n## {heading}"
        for verb in verbs:
            command = cli.cli.get_command(top, verb)
            assert command is not None
            yield from of_verb(command, click.Context(command, info_name=verb, parent=top))


def of_verb(command: click.Command, ctx: click.Context) -> Iterator[str]:
    name = ctx.command_path.removeprefix("carbontui ")
    yield f"\n### {name}\n\n```\n{command.get_usage(ctx).removeprefix('Usage: ')}\n```\n"
    yield inspect.cleandoc(command.help or "").replace("\b", "").replace("<", "&lt;") + "\n"
    options = [one for one in command.get_params(ctx) if isinstance(one, click.Option) and "--help" not in one.opts]
    rows = [said for one in options if (said := one.get_help_record(ctx))]
    yield from ("| option | |", "|---|---|") if rows else ()
    yield from (f"| `{option}` | {text} |" for option, text in map(_cells, rows))
    if isinstance(command, click.Group):
        for part in command.list_commands(ctx):
            one = command.get_command(ctx, part)
            assert one is not None
            yield from of_verb(one, click.Context(one, info_name=part, parent=ctx))


def _cells(row: tuple[str, str]) -> tuple[str, str]:
    option, text = (cell.replace("|", "\\|") for cell in row)
    return option, text.replace("<", "&lt;")


def of_keys() -> Iterator[str]:
    for title, bindings in PAGES.items():
        yield from (f"\n## {title}\n", "| key | does |", "|---|---|")
        for one in bindings:
            yield f"| `{(one.key_display or one.key).replace('question_mark', '?')}` | {one.tooltip} |"
