"""Starts that may fail: a try before the start for good, and a resume that nobody has seen hold.

A command that fails in either is not over: after a try it waits for its start, and a resume that fails is begun again,
from an earlier checkpoint where there is one, else without. Decides only; the keeper starts and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carbontui.job.keeper.messages import FallBack, Retry

TRY_MOST_S = 300.0
"""The supervisor ends a try; without one it ends by itself after this."""
TRY_OVER = "the try was ended here on purpose, by an interrupt; the start for good comes later"
"""Said in the command's output: what it answers to an interrupt looks like a crash. `tui/loglines.py` knows it."""


class Trial:
    """What the running start of the command is worth."""

    def __init__(self, *, trying: bool) -> None:
        self.trying = trying
        """The running start is a try."""
        self.over = False
        """The try is being ended."""
        self.retry = False
        """A resume that fails is begun again, without a checkpoint at last."""
        self.retried = ""
        """How the last one failed that was."""
        self.fall_back = False
        """A resume that fails is begun again as long as there is an earlier checkpoint."""
        self.fell_back = ""
        """How the last one failed that was."""
        self.anew = False
        """The next start begins without the checkpoint."""
        self.resumed = False
        """The running start goes on from a checkpoint."""
        self.rehearsing = False
        """A rehearsal was asked for since the running start."""

    def facts(self) -> dict[str, Any]:
        """What the supervisor is told."""
        names = ("retry", "retried", "fall_back", "fell_back", "trying")
        return {name: getattr(self, name) for name in names}

    @property
    def kept(self) -> bool:
        """An unload is ours to bring back, whatever a scheduler would do."""
        return self.trying or self.retry

    @property
    def asked(self) -> bool:
        """An unload is one that was asked for on trial: no child that leaves at every start, and has to rest."""
        return self.trying or self.rehearsing

    def ends(self) -> bool:
        """The running start is to end: whether it is one that may."""
        if self.over or self.anew or not (self.trying or (self.retry and self.resumed)):
            return False
        self.over, self.anew = self.trying, not self.trying
        return True

    def started(self, *, resumed: bool) -> None:
        self.resumed, self.anew, self.rehearsing = resumed, False, False

    def left(self) -> None:
        """It has written a checkpoint and left: what resumes from that of a try may fail, and is begun again."""
        self.retry = self.retry or self.trying
        self.trying = self.over = False
        self.retried = self.fell_back = ""

    def waits_again(self) -> bool:
        """It has ended: whether it was a try that was to, and the start for good is still to come."""
        ended = self.trying and self.over
        self.trying = self.over = False
        return ended

    def obey(self, order: Retry | FallBack) -> None:
        if isinstance(order, Retry):
            # a new supervisor repeats the order of the one before: what was asked for once is no second rehearsal
            self.rehearsing = self.rehearsing or (order.on and not self.retry)
            self.retry = order.on
        else:
            self.fall_back = order.on

    def begins_again(self, code: int, earlier: Callable[[], str]) -> str:
        """It has ended with exit code `code` (negative: of a signal): why it begins again, '' where it does not.

        From the checkpoint that `earlier` finds, else `anew`.
        """
        if not ((self.retry or self.fall_back) and self.resumed and (code != 0 or self.anew)):
            return ""
        how = "no step" if self.anew else f"exit code {code}" if code >= 0 else f"signal {-code}"
        if path := earlier():
            self.fell_back, self.anew = how, False
            return f"the resume has failed ({how}): it goes on from {path}"
        if not self.retry:
            return ""
        self.retry, self.retried, self.anew = False, how, True
        return f"the resume has failed ({how}): it begins without its checkpoint"
