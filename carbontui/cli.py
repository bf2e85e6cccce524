"""The command line: one verb per action, each imported only when it is called.

Exit codes: 0 ok, 1 the job or command failed, 2 wrong use, 3 nothing there, 4 not permitted, 5 a budget stopped the
job, 85 unloaded under --requeue, 86 left running; `run` otherwise ends with the command's own code or signal, with 126
or 127 where it cannot be started.
"""

import contextlib
import importlib
import os
import sys
from typing import NoReturn

from carbontui import hooks, units
from carbontui.system import isolation

isolation.forget_pythonpath()  # before anything else is imported: `module load` may have put another click there

import click  # noqa: E402
from click.shell_completion import CompletionItem  # noqa: E402

from carbontui.commands.support.command import UTC, WHOLE_HELP, Failure, in_utc, say_version, whole_help  # noqa: E402
from carbontui.system import streams  # noqa: E402

DAY = {
    "Start": {
        "demo": "Train a small model under a plan, in 45 s, to see it work.",
        "doctor": "What was found here, and the command that fixes what is missing.",
        "estimate": "Run a training for up to 90 s and estimate the whole run.",
        "run": "Start a training command under a plan.",
    },
    "Look": {
        "attach": "Open the screen of a job, here or on another machine.",
        "ls": "List jobs.",
        "status": "Show one job, sampled now.",
        "plan": "Show the plan in force.",
        "log": "Print the command's output.",
    },
    "Overrule": {
        "pause": "Hold the training at its next step; the model stays in memory.",
        "boost": "Run at full speed, whatever the plan says.",
        "cap": "Cap every GPU of the job: carbontui cap 300W",
        "resume": "Back to the plan: clear the override.",
        "budget": "Change the budget of a running job.",
        "stop": "End the training: INT, TERM after 30 s, KILL after 30 s more.",
    },
    "Afterwards": {"report": "Report a run: energy, CO2, and what saved it."},
}
"""The verbs of a day and what each does, under the headings of the help."""
MORE = {
    "Jobs": {
        "line": "Print one job in a few words, for a status bar.",
        "rm": "Forget finished jobs; a live one is refused.",
        "forbid": "Set hours in which the training must not run, or clear them.",
        "learn": "Learn of a running job: speed by watts, total, whether it unloads.",
        "restart": "Resume a job whose processes are gone.",
    },
    "Grid and plans": {
        "grid": "The grid's carbon intensity now, and which source answers.",
        "zones": "List the known grid zones, and the data available for each.",
        "solve": "Plan without running: --work on a --zone, or a problem file.",
        "compare": "Show what the same work would take elsewhere, or later.",
    },
    "Machine and cluster": {
        "hook": "Install the hook into a Python environment, or remove it.",
        "capd": "Power limits for users without root.",
        "serve": "The socket's protocol on stdin and stdout, for ssh.",
    },
}
"""What `--help --all` shows besides."""
ALIASES = ("auto", "allow", "receipt", "explain", "history", "calibrate", "guess", "rehearse")
"""Older names: of resume, forbid --clear, and forms of report and of learn."""
BETWEEN = ("begin",)
"""What our own processes say to each other."""
TOGETHER = {
    "status": ("ls", "status", "plan", "log", "line", "rm"),
    "override": (*DAY["Overrule"], "auto", "forbid", "allow", "guess"),
    "report": ("receipt", "explain", "history"),
    "grid": ("zones",),
    "calibrate": ("learn", "rehearse"),
    "restart": ("begin",),
}
"""Modules of carbontui.commands with several; every other command has the module of its name. Each is a click command
of that name there."""
VERBS = {verb: verb for verbs in (*DAY.values(), *MORE.values(), ALIASES, BETWEEN) for verb in verbs}
VERBS |= {verb: module for module, verbs in TOGETHER.items() for verb in verbs}


MEANT = {"kill": "stop", "ps": "ls", "start": "run", "top": "attach", "logs": "log"}
MEANT |= {"help": "--help", "version": "--version"}
"""What other programs call it."""
MEANT_OPTIONS = {"--deadline": '--budget "fri 09:00"', "--until": '--budget "fri 09:00"', "--gpus": "--boards"}
"""The same, of options."""
DAILY = {verb for verbs in DAY.values() for verb in verbs}
ZONELESS = {"run", "begin", "estimate", "demo", "restart", "serve", "receive", "capd", "hook", "learn", "rm", "submit"}
"""Commands without --utc: they hand their environment on, or print no time."""


def headings() -> dict[str, dict[str, str]]:
    """What each command does, under the headings of the whole help; those of our own extensions under one."""
    ours = {
        command.name: command.help
        for extension, command in hooks.commands(hooks.own().values())
        if command.help and hooks.is_on(extension)
    }
    return DAY | MORE | ({"Extensions": ours} if ours else {})


def extension_command(name: str) -> click.Command | None:
    """The command of an extension. Raises UsageError for one that is switched off."""
    for extension, command in hooks.commands(hooks.every()):
        if command.name == name and not hooks.is_on(extension):
            raise click.UsageError(f"{name} is of the extension {extension.name}, off by {hooks.SWITCH}")
        if command.name == name:
            found = hooks.load(command.target)
            assert isinstance(found, click.Command)
            return found
    return None


class Verbs(click.Group):
    """A group whose commands live in carbontui.commands and are loaded on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verbs in headings().values() for verb in verbs]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, whole_help(ctx, args) if args[:1] and args[0].startswith("-") else args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole = ctx.meta.get(WHOLE_HELP, False)
        for heading, verbs in (headings() if whole else DAY).items():
            with formatter.section(heading):
                formatter.write_dl(list(verbs.items()))
        if not whole:
            more = ", ".join(verb for verbs in headings().values() for verb in verbs if verb not in DAILY)
            formatter.write_paragraph()
            formatter.write_text(f"More (--help --all): {more}.")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module, command = VERBS.get(cmd_name), None
        if module is None:
            command = extension_command(cmd_name)
        else:
            command = getattr(importlib.import_module(f"carbontui.commands.{module}"), cmd_name.replace("-", "_"))
            assert isinstance(command, click.Command)
        if command is not None and cmd_name not in ZONELESS and UTC not in command.params:
            command.params.append(UTC)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs by name, without importing any."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(verb) for verb in sorted(self.list_commands(ctx)) if verb.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            import difflib

            near = MEANT.get(args[0]) or next(iter(difflib.get_close_matches(args[0], self.list_commands(ctx), 1)), "")
            meant = f"did you mean carbontui {near}?" if near else "see carbontui --help"
            raise click.UsageError(f"no command {args[0]!r}; {meant}")
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=say_version,
    help="Show the version and exit.",
)
@click.option("--readonly", is_flag=True, help="Look only: no key can change anything.")
@click.option("--hosts", metavar="A,B", help="Also show the jobs of these machines, over your own ssh.")
@click.option("--there", default="carbontui", metavar="COMMAND", help="carbontui on those, if not on the PATH.")
@click.option("--utc", is_flag=True, help="All times of the screen in UTC.")
@click.pass_context
def cli(ctx: click.Context, readonly: bool, hosts: str | None, there: str, utc: bool) -> None:
    """Train inside your time budget with the least CO2; watch and overrule it from one screen.

    Without a command: the screen of the only live job, else the table of all jobs, with the GPUs and the grid.

    \b
    See it work:        carbontui demo
    Start a training:   carbontui run --zone DE --budget 2x --work 8h -- python train.py
    """
    if hosts and ctx.invoked_subcommand is not None:
        raise click.UsageError("--hosts is for the table: carbontui --hosts a,b")
    if utc and ctx.invoked_subcommand is not None:
        raise click.UsageError("--utc is for the screen: carbontui --utc; else it follows the command")
    in_utc(utc)
    if hosts:
        from carbontui.commands.attach import open_hosts

        ctx.exit(open_hosts(units.listed(hosts), there, readonly=readonly))
    if ctx.invoked_subcommand is None:
        from carbontui.commands.attach import open_default

        ctx.exit(open_default(there, readonly=readonly))
    if readonly and ctx.invoked_subcommand != "attach":
        raise click.UsageError("--readonly is for the screen: carbontui --readonly, or carbontui attach --readonly")


def _hint(error: click.BadParameter) -> str:
    return error.param.get_error_hint(error.ctx).replace("'", "") if error.param and error.ctx else ""


def repaired(error: click.ClickException) -> str:
    """What click says of wrong use, with the repair: what a missing option is, which one was meant."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        usage = " ".join(error.ctx.get_usage().split()[1:]) if error.ctx else ""
        what = (isinstance(error.param, click.Option) and error.param.help) or usage
        return f"{_hint(error)} is missing: {what}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_hint(error)}: {error.message}"
    if isinstance(error, click.NoSuchOption):
        import difflib

        near = difflib.get_close_matches(error.option_name, error.possibilities or (), 1, 0.7)
        meant = MEANT_OPTIONS.get(error.option_name) or next(iter(near), "")
        return f"no option {error.option_name}; " + (f"did you mean {meant}?" if meant else "see --help --all")
    return error.format_message()


def main() -> NoReturn:
    """Entry point: wrong use is one line and exit 2, never a traceback."""
    streams.repair()
    code: int | str | None = 0
    try:
        try:
            cli.main(prog_name="carbontui", standalone_mode=False)
        except click.exceptions.Exit as end:
            code = end.exit_code
        except SystemExit as end:
            code = end.code
        except Failure as error:
            error.show()
            code = error.code
        except click.ClickException as error:
            click.echo(f"carbontui: {repaired(error)}", err=True)
            code = 2
        except (click.Abort, KeyboardInterrupt):
            code = 130
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader of stdout is gone
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"carbontui: {where}{error.strerror or error}", err=True)
        code = 4 if isinstance(error, PermissionError) else 1
    try:
        sys.stdout.flush()
    except OSError:
        # give the interpreter somewhere to flush its buffer to: it would end with an error and code of its own
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
