"""The site's side of the hook `exchange`: a job's claim and processes as an entry of the machine's ledger."""

from __future__ import annotations

import os
from functools import cached_property

from carbontui.extensions.site.ledger import Ledger, LedgerEntry
from carbontui.headroom import Claim, Headroom
from carbontui.system import proc


class SiteExchange:
    """The ledger of this machine, for one supervisor: the process that asks."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()

    @cached_property
    def _me(self) -> tuple[int, int] | None:
        return _who(os.getpid())

    def exchange(
        self, claim: Claim, now_s: float, mono_s: float, keeper_pid: int | None, child_pid: int | None
    ) -> Headroom | None:
        """Renew the claim. Raises LedgerError."""
        if self._me is None:
            return None
        entry = LedgerEntry(
            claim=claim,
            boot_id=proc.boot_id(),
            beat_mono_s=mono_s,
            supervisor=self._me,
            keeper=_who(keeper_pid),
            child=_who(child_pid),
            pidns=self.ledger.pidns,
        )
        return self.ledger.exchange(entry, now_s)

    def withdraw(self, job: str) -> None:
        self.ledger.forget(job)


def _who(pid: int | None) -> tuple[int, int] | None:
    started = proc.start_time(pid) if pid else None
    return (pid, started) if pid and started else None
