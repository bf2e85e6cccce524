"""Whether the keeper itself was asleep: stopped by a signal, in a frozen cgroup, or held up by a disk.

Nobody was silent then: the keeper was deaf. Standard library only.
"""

from __future__ import annotations

LONGEST_S = 3.0
"""Twice the longest that the loop waits; more between two turns is a sleep."""

RENEWED_S = 5.0
"""A living supervisor renews what it has asked for within this."""
TURNS = 300
"""How often each peer is heard before the keeper goes on: more than a socket holds of short messages."""


SAID_EVERY_S = 60.0
"""The line in the log is a write, too, on the disk that may be slow."""


class OwnSleep:
    """Asked at every turn of the loop; times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._looked = now
        self._said = -SAID_EVERY_S

    def since_last(self, now: float) -> float:
        """The seconds since the last turn if that was too long ago, else 0."""
        gap_s, self._looked = now - self._looked, now
        return gap_s if gap_s > LONGEST_S else 0.0

    def to_say(self, now: float) -> bool:
        """Whether it is to be logged."""
        due = now - self._said >= SAID_EVERY_S
        self._said = now if due else self._said
        return due
