"""What every command shares: its one error, finite numbers, completion of jobs and zones, overriding options."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from carbontui import units
from carbontui.account import boundary

if TYPE_CHECKING:
    from carbontui.system import ssh

SAFE_WORD = re.compile(r"[\w.,:@%+][\w.,:@%+/-]*")
"""A shell takes it as it stands."""


def zone_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Grid zones by their keys."""
    from carbontui.grid.zones import every

    return [CompletionItem(key, help=zone.name) for key, zone in sorted(every().items()) if _fits(key, incomplete)]


def any_jobs(
    ctx: click.Context, param: click.Parameter, incomplete: str, *, live: bool = False
) -> list[CompletionItem]:
    """Jobs that can be viewed, finished ones included unless they are to be `live`: by name; by id where another job
    has the same name, or the name would need quoting in a shell."""
    from carbontui.job.files import store

    found: dict[str, CompletionItem] = {}
    for job in store.jobs():
        if live and not job.live:
            continue
        word = job.name if job.name not in found and SAFE_WORD.fullmatch(job.name) else job.id
        found[word] = CompletionItem(word, help="live" if job.live else "over")
    return [item for word, item in found.items() if _fits(word, incomplete)]


live_jobs = functools.partial(any_jobs, live=True)
"""Jobs that accept commands."""


def _fits(word: str, incomplete: str) -> bool:
    return word.lower().startswith(incomplete.lower())


class Failure(click.ClickException):
    """One clear line on stderr and a documented exit code (see carbontui.cli)."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.code = exit_code

    def show(self, file: object = None) -> None:
        click.echo(f"carbontui: {self.message}", err=True)


Kinds = type[Exception] | tuple[type[Exception], ...]


@contextlib.contextmanager
def refused(said: str = "", kinds: Kinds = ValueError, *, code: int = 2) -> Iterator[None]:
    """An error of these kinds as a Failure: `said`, and what the error says."""
    try:
        yield
    except kinds as error:
        why = error.strerror or error if isinstance(error, OSError) else error
        raise Failure(f"{said}{why}", code) from None


there_option = click.option(
    "--there",
    default="carbontui",
    envvar="CARBONTUI_THERE",
    metavar="COMMAND",
    help="carbontui on the other machine, if it is not on its PATH.",
)


def host_of(text: str, there: str) -> ssh.SshHost:
    """The machine of `user@host[:job]`. Raises Failure (2)."""
    from carbontui.system import ssh

    with refused():
        return ssh.SshHost(ssh.place(text).host, carbontui=there)


def in_utc(given: bool) -> None:
    """Make UTC the zone of this process, and of what it starts."""
    if given:
        os.environ["TZ"] = "UTC"
        time.tzset()


UTC = click.Option(
    ["--utc"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda _, __, given: in_utc(given),
    help="All times in UTC.",
)
"""For every command that prints a time: the zone is this process's, which is the reader's."""


class Count(click.IntRange):
    """A whole number within a range, as `units.parse_count` reads it."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            value = units.parse_count(value) if isinstance(value, str) and not value.startswith("-") else value
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


class WithUnit(click.ParamType):  # type: ignore[type-arg]  # generic in its stubs, not at run time
    """A value with its unit, as one of the readers of `units` takes it."""

    name = "text"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            return self.fail(str(error), param, ctx)


class Finite(click.FloatRange):
    """A number within a range; 'nan', 'inf' and digits of other scripts are refused, which a FloatRange alone lets
    pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            if not math.isfinite(float(value)):
                raise ValueError
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if isinstance(value, str) and not value.isascii():
            self.fail(f"{value!r} is not a number in ASCII digits.", param, ctx)
        return super().convert(value, param, ctx)


class Brief(click.Command):
    """A command whose help names its usual options; `--help --all` shows all. `usual` names parameters."""

    def __init__(self, *given: Any, usual: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(*given, **more)
        self._usual = usual

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, whole_help(ctx, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        every = [option for option in self.get_params(ctx) if isinstance(option, click.Option) and not option.hidden]
        usual = [option for option in every if option.name in self._usual or "--help" in option.opts]
        whole = ctx.meta.get(WHOLE_HELP, False)
        with formatter.section("Options"):
            formatter.write_dl([said for one in (every if whole else usual) if (said := one.get_help_record(ctx))])
        if not whole:
            formatter.write(f"\n{ctx.command_path} --help --all shows all {len(every)}.\n")


WHOLE_HELP = "carbontui.whole_help"


def say_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """The version with its commit, which only this asks for."""
    if wanted:
        from carbontui.client import version

        click.echo(f"carbontui, version {version.full()}")
        ctx.exit()


def whole_help(ctx: click.Context, args: list[str]) -> list[str]:
    """The arguments without an `--all` beside `--help`, which is noted in the context's meta."""
    ours = args[: args.index("--")] if "--" in args else args
    if "--all" not in ours or not {"-h", "--help"} & set(ours):
        return args
    ctx.meta[WHOLE_HELP] = True
    return [one for one in ours if one != "--all"]


boundary_option = click.option(
    "--boundary",
    type=click.Choice(boundary.KINDS),
    help="Whether idle counts: held (reserved: yes), always-on (on anyway: no), given-back (released).",
)

F = TypeVar("F", bound=Callable[..., Any])


def _adding(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """A decorator that adds these options to a command, in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


overrides = _adding(
    click.option("--intensity", help="Your own carbon intensity at all hours, gCO2/kWh."),
    click.option("--price-per-kwh", help="A flat electricity price, where no source gives one."),
    click.option("--gpu", metavar="NAME", help="Name of the GPU, if its power cannot be read: its TDP is used."),
    click.option("--boards", type=Count(1, 1024), help="Number of GPUs, if no driver reports any (default 1)."),
    click.option("--board-w", help="TDP of one GPU, like 250W, if its power cannot be read."),
    click.option("--utilisation", type=Finite(0), help="Share of the TDP that it draws under load, like 0.8."),
    click.option("--pue", type=Finite(1), help="Power usage effectiveness (default: 1 for a workstation, else 1.2)."),
    click.option("--host-w", help="Watts besides GPU, CPU and memory (default: measured, or a typical)."),
    boundary_option,
)
"""Options of a command that takes them as keywords and hands them to `run_values.settings_for`."""


patience_option = click.option(
    "--patience", help="What an hour of later finish must save of an hour at full speed (default 2%)."
)

price_option = click.option(
    "--price",
    "price_file",
    help="Prices: CSV time_utc,price_usd_per_mwh, or a tariff: days,from_utc,to_utc,price_usd_per_kwh.",
)


def _weight(text: str) -> Any:
    from carbontui.plan.problem import parse_weight

    return parse_weight(text)


weight_option = click.option(
    "--weight",
    type=WithUnit(_weight),
    help="Weigh grams and money, like carbon=0.7,cost=0.3 (each as a share of its mean).",
)


_idle = WithUnit(units.parse_idle_power)
assumptions = _adding(
    boundary_option,
    click.option("--host-w", type=_idle, help="Watts of the machine besides the GPU (default 0)."),
    click.option("--idle-w", type=_idle, help="Watts of the GPU without a process (default: a tenth)."),
)
"""Options for what counts of an assumed machine."""
