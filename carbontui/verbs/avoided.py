"""What each of carbontui's means gave to a job, for the verbs that tell it beside other things."""

from __future__ import annotations

import contextlib

from carbontui import protocol
from carbontui.account.split import Split
from carbontui.job import store
from carbontui.reports import story

JOURNAL_MOST_B = 64 << 20
"""A larger journal of a live job is not read for every look at it: that takes a second. The report reads any."""


def avoided_split(job: store.Job, status: protocol.Status) -> Split | None:
    """From the journal; None where it is not known, or another host's."""
    if status.avoided_g is None or job.foreign:
        return None
    with contextlib.suppress(story.NoStory, OSError):
        if status.state not in protocol.LIVE_STATES or (job.dir / "journal.db").stat().st_size <= JOURNAL_MOST_B:
            return story.build(job, status=status).split
    return None
