"""Embodied emissions of a run's boards, from the table of published figures."""

from __future__ import annotations

from carbontui.account.embodied import Embodied, embodied
from carbontui.reports import tables
from carbontui.reports.story import RunStory


def of(story: RunStory) -> Embodied | None:
    """Of the boards for as long as they were held; None where it is not known."""
    if not story.held_s:
        return None
    return embodied([gpu.name for gpu in story.status.gpus], story.held_s, tables.embodied())
