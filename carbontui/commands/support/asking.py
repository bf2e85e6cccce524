"""What `run` asks on a terminal where nobody has said it: the grid zone, once, and the budget, with what each gives.
Enter takes the default; no answer for a minute, none."""

import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from carbontui import config, paths, units
from carbontui.commands.support.command import refused
from carbontui.grid import zones
from carbontui.job.terms import budget as budgets
from carbontui.system import streams
from carbontui.text import first_run

DEFAULT = 2.0
PATIENCE_S = 60.0
"""For all answers together."""
ASSUMED_WORK_S = 8 * 3600.0
"""Work that the offered budgets are shown for where its amount is not known."""


def answers(given: dict[str, Any], loaded: config.Loaded) -> dict[str, Any]:
    """The options with what was asked for. Raises Abort at the end of input."""
    kept = signal.signal(signal.SIGHUP, signal.default_int_handler)  # a closed terminal is not an answer
    due_s = time.monotonic() + PATIENCE_S
    try:
        settings, asked = loaded.settings, dict(given)
        own_grid = given.get("grid_file") is not None or settings.intensity is not None
        if settings.zone is None and not own_grid and (zone := _zone(due_s)) is not None:
            asked["zone"] = zone
        free = settings.objective == "time"
        zone = asked.get("zone") or settings.zone
        if loaded.origin["budget"] == "default" and not free and (zone or own_grid):  # nothing waits without a grid
            asked["budget"] = _budget(None if own_grid else zone, asked, settings, due_s) or given.get("budget")
        return asked
    finally:
        signal.signal(signal.SIGHUP, kept)


def _zone(due_s: float) -> str | None:
    candidates, confidence = zones.guess(zones.local_time_zone())
    likely = candidates[0].key if confidence == "high" else ""

    def read(text: str) -> str:
        return zones.resolve(text).key if text else ""

    key = _ask(first_run.zone([one.key for one in candidates[: zones.NAMED]], likely), likely, read, due_s)
    if key:
        with refused(f"{paths.config_file()}: ", OSError, code=4):
            config.keep("zone", key)
    return key or None


def _budget(zone: str | None, given: dict[str, Any], settings: config.Settings, due_s: float) -> str | None:
    work = given.get("work")
    with refused("--work: "):
        work_s = units.parse_duration(work) if work else None
    wanted_s = work_s or ASSUMED_WORK_S
    found = []
    if zone:
        from carbontui.commands.support.offers import gives, of_this_machine

        job, _ = of_this_machine(settings, may_cap=not given.get("no_cap"), resubmit=bool(given.get("resubmit")))
        found = gives(job, zone, wanted_s, time.time())
    for line in first_run.offers(zone or "", wanted_s, found, known=work_s is not None):
        click.echo(line, err=True)

    def read(text: str) -> str:
        budgets.parse(text, time.time())
        return text

    return _ask(first_run.BUDGET, f"{DEFAULT:g}x", read, due_s)


def _ask(question: str, default: str, read: Callable[[str], str], due_s: float) -> str | None:
    """The answer, asked again until it can be read; None where nobody answers: a training waits for no one."""
    while True:
        click.echo(f"{streams.folded(question)}{f' [{default}]' if default else ''}: ", nl=False, err=True)
        if not select.select([sys.stdin], [], [], max(0.0, due_s - time.monotonic()))[0]:
            click.echo(f"\ncarbontui: {first_run.NO_ANSWER}", err=True)
            return None
        if not (said := sys.stdin.readline()):
            raise click.Abort
        try:
            return read(said.strip() or default)
        except ValueError as error:
            click.echo(f"carbontui: {error}", err=True)
