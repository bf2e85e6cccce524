"""The error that verbs raise, and the number check they share."""

from __future__ import annotations

import math
from typing import Any

import click


class Failure(click.ClickException):
    """One clear line on stderr and a documented exit code (see carbontui.cli)."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.code = exit_code

    def show(self, file: object = None) -> None:
        click.echo(f"carbontui: {self.message}", err=True)


class Finite(click.FloatRange):
    """A number within a range; 'nan' and 'inf' are refused, which a FloatRange alone lets pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number is not None and not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
