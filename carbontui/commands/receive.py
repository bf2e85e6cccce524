"""`receive`: what `move` runs on the machine that is to take a job, over ssh; for no one else."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from carbontui.commands.support.command import refused
from carbontui.commands.support.run_values import here, settings_for
from carbontui.job.life import receiving


@click.command(hidden=True)
@click.argument("step", type=click.Choice(["check", "stage", "hold"]))
@click.argument("job")
def receive(step: str, job: str) -> None:
    """The other end of `move`: JSON lines on stdin and stdout."""
    if step == "hold":
        receiving.converse(job, _hear, _say)
        return
    asked = _hear()
    with refused("", (receiving.NotTaken, OSError, KeyError), code=1):
        loaded = settings_for()
        own = {
            **here(loaded, None),
            "price_zone": loaded.settings.price_zone,
        }
        if step == "check":
            zone = {"zone": own["zone"] or "", "zone_why": own["zone_why"]}
            _say({**receiving.check(job, asked), **zone})
        else:
            receiving.stage(job, asked, own)
            _say({"ready": True})


def _hear() -> Mapping[str, Any]:
    line = sys.stdin.buffer.readline()
    with refused("what was sent cannot be read: ", code=1):
        asked = json.loads(line or b"{}")
        if not isinstance(asked, dict):
            raise ValueError("not an object")
    return asked


def _say(message: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()
