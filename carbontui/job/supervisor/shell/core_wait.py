"""How long the training is ready and waits for a core, asked at every tick."""

from __future__ import annotations

import os

from carbontui import protocol
from carbontui.system import proc


class CoreWait:
    """Of one process at a time, on this machine."""

    def __init__(self) -> None:
        self._of: protocol.Hello | None = None
        self._told: int | None = None
        self._before_s: float | None = None

    def since(self, training: protocol.Hello | None) -> float:
        """Seconds that `training` has waited since the last call; 0 where that is not told."""
        if training is not self._of:
            self._turn_to(training)
        if self._told is None:
            return 0.0
        before_s, self._before_s = self._before_s, proc.core_wait_s(self._told)
        return 0.0 if before_s is None or self._before_s is None else max(0.0, self._before_s - before_s)

    def _turn_to(self, training: protocol.Hello | None) -> None:
        if self._told is not None:
            os.close(self._told)
        self._of, self._told, self._before_s = training, None, None
        if training is None:
            return
        self._told = proc.open_core_wait(training.pid)
        if self._told is not None and not proc.same_process(training.pid, training.start_time):
            os.close(self._told)  # it is a process of another machine or namespace, or another has the pid by now
            self._told = None
