"""The Situation of a state: what is decided, in force and to come, each from one place."""

from __future__ import annotations

import itertools

from carbontui import protocol, units
from carbontui.job import situation
from carbontui.job.supervisor.core.course import CourseAhead
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.state import JobState


def of(state: JobState, seen: Inputs, ahead: CourseAhead, watts: float | None) -> protocol.Situation:
    """`ahead` is the state's course, `watts` its power now."""
    decided = state.decision
    if not state.live:
        ended_s = seen.child.ended_s(state.clock)
        return situation.over(None if ended_s is None else units.iso(ended_s))
    since_s = state.asked.since_s
    return protocol.Situation(
        decided=decided.level.name,
        applied=decided.applied.name,
        refused=None if decided.refused is None else protocol.Refusal(decided.refused, decided.level.cap_w),
        held_by=decided.held_by,
        since=None if since_s is None else units.iso(since_s),
        until=None if decided.until_s is None else units.iso(decided.until_s),
        watts=watts,
        ahead=changes(ahead),
    )


def changes(ahead: CourseAhead) -> tuple[protocol.Next, ...]:
    """The next changes of level on a course; its end is none."""
    pairs = itertools.pairwise(ahead.segments)
    found = (protocol.Next(units.iso(b.start_s), b.level.name) for a, b in pairs if a.level.name != b.level.name)
    return tuple(itertools.islice(found, protocol.MOST_AHEAD))
