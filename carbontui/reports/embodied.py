"""Embodied emissions of a run's boards, from the table of published figures."""

from __future__ import annotations

import csv
import functools
from importlib import resources

from carbontui.account.embodied import Embodied, Manufactured, embodied
from carbontui.reports.story import RunStory

FILE = "embodied.csv"


@functools.cache
def table() -> tuple[Manufactured, ...]:
    text = resources.files("carbontui.data").joinpath(FILE).read_text(encoding="utf-8")
    return tuple(
        Manufactured(
            row["kind"], row["name"], float(row["kgco2e"]), int(row["boards"]), float(row["hours"]), row["source"]
        )
        for row in csv.DictReader(text.splitlines())
    )


def of(story: RunStory) -> Embodied | None:
    """Of the boards for as long as they were held; None where it is not known."""
    if not story.held_s:
        return None
    return embodied([gpu.name for gpu in story.status.gpus], story.held_s, table())
