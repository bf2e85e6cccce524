"""Which processes use each board according to the driver, by memory and kernels, and the job's share of its watts."""

from __future__ import annotations

from carbontui.power import shares
from carbontui.power.devices import Backend, DeviceError, DeviceInfo, Look

MOVED_B = 64 << 20
"""A change of used memory by more than this may be a process that started or exited."""


class BoardUse:
    """Kept by the sampling thread of one agent."""

    def __init__(self, backend: Backend) -> None:
        self.shares: dict[str, float] = {}
        """The job's share of the watts of each board shared with others."""
        self._backend = backend
        self._memory_b: dict[str, dict[int, int]] = {}
        self._listed_at_b: dict[str, int | None] = {}
        self._idle_w: dict[str, float] = {}
        self._met: set[str] = set()

    def list(self, uuid: str, look: Look | None) -> tuple[int, ...] | None:
        """The processes on a board according to the driver; None if it does not report them (MIG)."""
        self._listed_at_b[uuid] = look.memory_used_b if look else None
        try:
            self._memory_b[uuid] = self._backend.processes(uuid)
        except DeviceError:
            self._memory_b.pop(uuid, None)
            return None
        return tuple(self._memory_b[uuid])

    def changed(self, uuid: str, look: Look) -> bool:
        """Whether the board's used memory has changed since the last listing enough for a process start or exit."""
        before = self._listed_at_b.get(uuid)
        return before is not None and look.memory_used_b is not None and abs(look.memory_used_b - before) > MOVED_B

    def split(self, info: DeviceInfo, look: Look, own: frozenset[int] | None, seeking: bool) -> None:
        """Compute the share of the processes `own` since the last call; None: the board is not split.

        If none of the job's processes was ever seen on the board, it may use it unseen (from its own container): then
        the whole board counts as its own, once the search has ended (`seeking`).
        """
        uuid, memory_b = info.uuid, self._memory_b.get(info.uuid, {})
        if memory_b and look.util == 0 and look.power_w is not None:
            self._idle_w[uuid] = min(self._idle_w.get(uuid, look.power_w), look.power_w)
        if own:
            self._met.add(uuid)
        if own is None or (not own and not seeking and uuid not in self._met):
            self.shares.pop(uuid, None)
            return
        try:
            kernels = self._backend.kernels(uuid)
        except DeviceError:
            self.shares.pop(uuid, None)
            return
        idle_w = self._idle_w.get(uuid, shares.IDLE_OF_LIMIT * (info.limit_max_mw or 0) / 1000)
        self.shares[uuid] = shares.board_share(look.power_w, idle_w, memory_b, kernels, own)
