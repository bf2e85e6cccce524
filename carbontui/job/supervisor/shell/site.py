"""The job's claim in the machine's ledger, renewed at every tick while there is a budget, and the resulting share."""

from __future__ import annotations

import os
import time

from carbontui import proc
from carbontui.job.supervisor.core import site_claim
from carbontui.job.supervisor.core.observation import Inputs
from carbontui.job.supervisor.core.state import JobState
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.site.ledger import Ledger, LedgerEntry, LedgerError
from carbontui.site.sharing import Share


class SiteClaim:
    """The claim of one supervisor. If the ledger cannot be read, `fault` says why and the share stays unchanged."""

    def __init__(self, keeper: KeeperHandle, ledger: Ledger) -> None:
        self._keeper = keeper
        self._ledger = ledger
        self._me = _who(os.getpid())
        self.share: Share | None = None
        self.fault = ""

    def renew(self, state: JobState, seen: Inputs) -> None:
        claim = site_claim.claim(state, seen)
        if claim is None or self._me is None:
            self.leave(state.spec.job)
            return
        entry = LedgerEntry(
            claim=claim,
            boot_id=proc.boot_id(),
            beat_mono_s=seen.mono_s,
            supervisor=self._me,
            keeper=_who(self._keeper.keeper_pid),
            child=_who(seen.child_pid),
        )
        try:
            self.share = self._ledger.exchange(entry, time.time())
        except LedgerError as error:
            self.fault = f"the site budget is not followed: {error}"
        else:
            self.fault = ""

    def leave(self, job: str) -> None:
        """Withdraw the claim: the job no longer draws power."""
        if self.share is not None:
            self.share = None
            self._ledger.forget(job)


def _who(pid: int | None) -> tuple[int, int] | None:
    started = proc.start_time(pid) if pid else None
    return (pid, started) if pid and started else None
