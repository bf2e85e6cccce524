"""The job's claim in the machine's ledger, renewed at every tick while there is a budget, and the resulting share."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from carbontui.job.supervisor.core.advance import SiteShare
from carbontui.job.supervisor.core.rules import site_claim
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.shell.door import Door
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle
from carbontui.site.ledger import Ledger, LedgerEntry, LedgerError
from carbontui.site.sharing import Share
from carbontui.system import proc


@dataclass(eq=False)
class SiteClaim:
    """The claim of one supervisor. If the ledger cannot be read, `fault` says why and the share stays unchanged."""

    door: Door
    keeper: KeeperHandle
    ledger: Ledger
    _me: tuple[int, int] | None = field(default_factory=lambda: _who(os.getpid()))
    fault: str = ""

    def renew(self, inputs: Inputs) -> None:
        claim = site_claim.claim(self.door.state, inputs)
        if claim is None or self._me is None:
            self.leave()
            return
        entry = LedgerEntry(
            claim=claim,
            boot_id=proc.boot_id(),
            beat_mono_s=inputs.mono_s,
            supervisor=self._me,
            keeper=_who(self.keeper.keeper_pid),
            child=_who(inputs.child_pid),
            pidns=self.ledger.pidns,
        )
        try:
            share = self.ledger.exchange(entry, time.time())
        except LedgerError as error:
            self.fault = f"the site budget is not followed: {error}"
        else:
            self.fault = ""
            self._hold(share)

    def leave(self) -> None:
        """Withdraw the claim: the job no longer draws power."""
        if self.door.state.site is not None:
            self._hold(None)
            self.ledger.forget(self.door.state.spec.job)

    def _hold(self, share: Share | None) -> None:
        if share is not self.door.state.site:
            self.door.take(SiteShare(share))


def _who(pid: int | None) -> tuple[int, int] | None:
    started = proc.start_time(pid) if pid else None
    return (pid, started) if pid and started else None
