"""Writes carbontui.1 to stdout, from the command line's own declarations: python docs/man.py > docs/carbontui.1"""

import inspect
from collections.abc import Iterator

import click

from carbontui import __version__, cli

SEE = "Exit codes, settings, files and the wire are described in docs/, or by mkdocs serve."


def escaped(text: str) -> str:
    """Text that roff does not read as a request or an escape."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in plain.splitlines())


def page() -> Iterator[str]:
    top = click.Context(cli.cli, info_name="carbontui", help_option_names=["-h", "--help"], terminal_width=200)
    yield f'.TH CARBONTUI 1 "" "carbontui {__version__}" "User Commands"'
    yield ".SH NAME\ncarbontui \\- train inside a time budget with the least CO2, on one terminal screen"
    yield ".SH SYNOPSIS\n.B carbontui\n[OPTIONS] [VERB] [VALUE] [JOB]\n.SH DESCRIPTION"
    yield escaped(inspect.cleandoc(cli.cli.help or "").split("\b")[0].strip())
    yield from options(cli.cli, top)
    for heading, verbs in cli.headings().items():
        yield f".SH {heading.upper()}"
        for verb in verbs:
            command = cli.cli.get_command(top, verb)
            assert command is not None
            yield from section(command, click.Context(command, info_name=verb, parent=top, terminal_width=200))
    yield f".SH SEE ALSO\n{escaped(SEE)}"


def section(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield f".SS {escaped(command.get_usage(ctx).removeprefix('Usage: ').replace(chr(10), ' '))}"
    yield escaped(inspect.cleandoc(command.help or "").replace("\b", ""))
    yield from options(command, ctx)
    for name, part in command.commands.items() if isinstance(command, click.Group) else ():
        yield from section(part, click.Context(part, info_name=name, parent=ctx, terminal_width=200))


def options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    for one in command.get_params(ctx):
        if isinstance(one, click.Option) and (said := one.get_help_record(ctx)) is not None:
            yield f".TP\n.B {escaped(said[0])}\n{escaped(said[1])}"


if __name__ == "__main__":
    print("\n".join(page()))
