"""What every command shares: its one error, finite numbers, completion of jobs and zones, overriding options."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from carbontui.account import boundary

SAFE_WORD = re.compile(r"[\w.,:@%+][\w.,:@%+/-]*")
"""A shell takes it as it stands."""


def live_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs that accept commands."""
    return _jobs(incomplete, live=True)


def any_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs that can be viewed, finished ones included."""
    return _jobs(incomplete, live=False)


def zone_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Grid zones by their keys."""
    from carbontui.grid.zones import every

    return [CompletionItem(key, help=zone.name) for key, zone in sorted(every().items()) if _fits(key, incomplete)]


def _jobs(incomplete: str, *, live: bool) -> list[CompletionItem]:
    """By name; by id where another job has the same name, or the name would need quoting in a shell."""
    from carbontui.job import store

    found: dict[str, CompletionItem] = {}
    for job in store.jobs():
        if live and not job.live:
            continue
        word = job.name if job.name not in found and SAFE_WORD.fullmatch(job.name) else job.id
        found[word] = CompletionItem(word, help="live" if job.live else "over")
    return [item for word, item in found.items() if _fits(word, incomplete)]


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


class Finite(click.FloatRange):
    """A number within a range; 'nan' and 'inf' are refused, which a FloatRange alone lets pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number is not None and not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


F = TypeVar("F", bound=Callable[..., Any])

boundary_option = click.option(
    "--boundary",
    type=click.Choice(boundary.KINDS),
    help="Who pays for an idle machine: held until released, always-on anyway, or given-back.",
)

_OPTIONS = (
    click.option("--intensity", type=Finite(0), help="Your own carbon intensity at all hours, gCO2/kWh."),
    click.option("--price-per-kwh", type=Finite(0), help="A flat electricity price, where no source gives one."),
    click.option("--gpu", metavar="NAME", help="Name of the board, if its power cannot be read: its TDP is used."),
    click.option("--boards", type=int, help="Number of boards, if no driver reports any (default 1)."),
    click.option("--board-w", type=Finite(0), help="TDP of one board, if its power cannot be read."),
    click.option("--utilisation", type=Finite(0), help="Share of the TDP that it draws under load, like 0.8."),
    click.option("--pue", type=Finite(1), help="Power usage effectiveness (default: 1 for a workstation, else 1.2)."),
    click.option(
        "--host-w", type=Finite(0), help="Watts besides GPU, CPU and memory (default: measured, or a typical)."
    ),
    boundary_option,
)


def overrides(command: F) -> F:
    """Add the options to a command, which takes them as keywords and hands them to `run_values.settings_for`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
