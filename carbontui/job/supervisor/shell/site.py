"""The job's claim of a shared power budget, renewed at every tick, and what is left to it."""

import time
from dataclasses import dataclass

from carbontui import hooks
from carbontui.headroom import Exchange, ExchangeError, Headroom
from carbontui.job.supervisor.core.advance import SiteShare
from carbontui.job.supervisor.core.rules import site_claim
from carbontui.job.supervisor.core.state.inputs import Inputs
from carbontui.job.supervisor.shell.door import Door
from carbontui.job.supervisor.shell.keeper_handle import KeeperHandle


@dataclass(eq=False)
class SiteClaim:
    """The claim of one supervisor. If it cannot be exchanged, `fault` says why and the headroom stays unchanged."""

    door: Door
    keeper: KeeperHandle
    fault: str = ""

    def __post_init__(self) -> None:
        # the first extension that divides a budget
        self.shared: Exchange | None = next((made() for _, made in hooks.offered("exchange")), None)

    def renew(self, inputs: Inputs) -> None:
        claim = site_claim.claim(self.door.state, inputs) if self.shared else None
        if claim is None or self.shared is None:
            self.leave()
            return
        try:
            left = self.shared.exchange(claim, time.time(), inputs.mono_s, self.keeper.keeper_pid, inputs.child_pid)
            self.fault = ""
            self._hold(left)
        except ExchangeError as error:
            self.fault = f"the site budget is not followed: {error}"

    def leave(self) -> None:
        """Withdraw the claim: the job no longer draws power."""
        if self.door.state.site is not None and self.shared is not None:
            self._hold(None)
            self.shared.withdraw(self.door.state.spec.job)

    def _hold(self, left: Headroom | None) -> None:
        if left is not self.door.state.site:
            self.door.dispatch(SiteShare(left))
