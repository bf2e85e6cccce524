"""Options with which a user overrides what is detected; each is also a setting of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from carbontui.verbs.failure import Finite

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--intensity", type=Finite(0), help="Your own carbon intensity at all hours, gCO2/kWh."),
    click.option("--price-per-kwh", type=Finite(0), help="A flat electricity price, where no source gives one."),
    click.option("--gpu", metavar="NAME", help="Name of the board, if its power cannot be read: its TDP is used."),
    click.option("--boards", type=int, help="Number of boards, if no driver reports any (default 1)."),
    click.option("--board-w", type=Finite(0), help="TDP of one board, if its power cannot be read."),
    click.option("--utilisation", type=Finite(0), help="Share of the TDP that it draws under load, like 0.8."),
    click.option("--pue", type=Finite(1), help="Power usage effectiveness of the data centre (default 1)."),
    click.option("--host-w", type=Finite(0), help="Watts of the machine besides GPU and CPU."),
)


def overrides(command: F) -> F:
    """Add the options to a command, which takes them as keywords and hands them to `run_values.settings_for`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
