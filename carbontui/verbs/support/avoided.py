"""The avoided CO2 of a job split by lever (caps, shifting ...), for verbs that print it beside other figures."""

from __future__ import annotations

import contextlib

from carbontui import protocol
from carbontui.account.split import Split
from carbontui.job import store
from carbontui.reports import story

JOURNAL_MOST_B = 64 << 20
"""A live job's journal above this size is not read at every look: that takes a second. `report` reads any size."""


def avoided_split(job: store.Job, status: protocol.Status) -> Split | None:
    """The split, from the journal; None where it is unknown or the job is another host's."""
    if status.avoided_g is None or job.foreign:
        return None
    with contextlib.suppress(story.NoStory, OSError):
        if status.state not in protocol.LIVE_STATES or (job.dir / "journal.db").stat().st_size <= JOURNAL_MOST_B:
            return story.build(job, status=status).split
    return None
