"""Starts that may fail: a try before the real start, and a resume that has not been shown to work.

A command that fails in either has not ended: after a try it waits for its start, and a failed resume is restarted,
from an earlier checkpoint if there is one, else without. This only decides; the keeper starts and ends processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carbontui.job.keeper.messages import FallBack, Retry

TRY_MOST_S = 300.0
"""The supervisor ends a try; without a supervisor the keeper ends it after this."""
TRY_OVER = "the try was ended here on purpose; the real start comes later"
ESTIMATE_OVER = "the estimate was ended here on purpose"
INTERRUPTED = " (anything it said to the interrupt is above)"


def over(said: str, code: int) -> str:
    """The line that closes the command's output: with an exit code, its reaction may look like a crash."""
    return said + (INTERRUPTED if code else "")


class Trial:
    """Whether the running start is a try or a resume on trial, and what follows if it fails."""

    def __init__(self, *, trying: bool) -> None:
        self.trying = trying
        """The running process is a try."""
        self.over = False
        """The try is being ended."""
        self.retry = False
        """A failed resume is restarted, finally without a checkpoint."""
        self.retried = ""
        """How the last restarted resume failed."""
        self.fall_back = False
        """A failed resume is restarted as long as there is an earlier checkpoint."""
        self.fell_back = ""
        """How the last resume restarted that way failed."""
        self.anew = False
        """The next start ignores the checkpoint."""
        self.resumed = False
        """The running process resumed from a checkpoint."""
        self.rehearsing = False
        """A rehearsal was requested since the last start."""

    def facts(self) -> dict[str, Any]:
        """The facts reported to the supervisor."""
        names = ("retry", "retried", "fall_back", "fell_back", "trying")
        return {name: getattr(self, name) for name in names}

    @property
    def kept(self) -> bool:
        """Whether the keeper itself resumes after an unload, instead of leaving that to the scheduler."""
        return self.trying or self.retry

    @property
    def asked(self) -> bool:
        """Whether the unload was requested on trial, so that the restart back-off does not apply."""
        return self.trying or self.rehearsing

    def ends(self) -> bool:
        """End the running process; returns whether that is allowed."""
        if self.over or self.anew or not (self.trying or (self.retry and self.resumed)):
            return False
        self.over, self.anew = self.trying, not self.trying
        return True

    def started(self, *, resumed: bool) -> None:
        self.resumed, self.anew, self.rehearsing = resumed, False, False

    def left(self) -> None:
        """It has written a checkpoint and exited. A resume from a try's checkpoint may fail and is then restarted."""
        self.retry = self.retry or self.trying
        self.trying = self.over = False
        self.retried = self.fell_back = ""

    def waits_again(self) -> bool:
        """It has ended: whether it was a try being ended, with the real start still to come."""
        ended = self.trying and self.over
        self.trying = self.over = False
        return ended

    def obey(self, order: Retry | FallBack) -> None:
        if isinstance(order, Retry):
            # a new supervisor repeats its predecessor's order: that is not a second rehearsal
            self.rehearsing = self.rehearsing or (order.on and not self.retry)
            self.retry = order.on
        else:
            self.fall_back = order.on

    def begins_again(self, code: int, earlier: Callable[[], str], forget: Callable[[], None] = lambda: None) -> str:
        """It has ended with exit code `code` (negative: by a signal): why it is restarted, '' if it is not.

        From the checkpoint that `earlier` finds, else `anew`, which `forget` makes sure of.
        """
        if not ((self.retry or self.fall_back) and self.resumed and (code != 0 or self.anew)):
            return ""
        how = "no step" if self.anew else f"exit code {code}" if code >= 0 else f"signal {-code}"
        if path := earlier():
            self.fell_back, self.anew = how, False
            return f"the resume failed ({how}): continuing from {path}"
        if not self.retry:
            return ""
        self.retry, self.retried, self.anew = False, how, True
        forget()
        return f"the resume has failed ({how}): it begins without its checkpoint"
