"""Which optimizer of several counts the steps of a training."""

from __future__ import annotations

import weakref
from typing import Any, Callable, List

STALE_AFTER = 64
"""After this many boundaries of others without one of the leading optimizer, another one leads."""


class Leader:
    """The first optimizer that steps leads: its steps are the training's, those of a GAN's second one do not count.

    Successive trainings (trials, folds, pretraining and tuning) may keep their optimizers alive, so a stranger's steps
    count at once. If the leader steps again, the stranger was its companion: the steps counted for it are compensated
    by not counting as many of the leader's, and from then on the companion's steps do not count.
    """

    def __init__(self) -> None:
        self._ref: Callable[[], Any] = lambda: None
        self._companions: List[Callable[[], Any]] = []
        self._strangers: List[Callable[[], Any]] = []
        self._lent = 0
        """Strangers' steps counted since the leader's last."""
        self._owed = 0
        """Steps to be compensated by the leader, counted for strangers that were companions."""
        self._held_back = 0
        """Companions' steps not counted since the leader's last."""
        self._others = 0

    def worth(self, stepper: Any) -> int:
        """How many steps a boundary of this stepper counts: 0 for a companion of the leader, more than 1 if some were
        held back until it was clear that they count."""
        leader = self._ref()
        if leader is stepper:
            return self._returned() if self._others or self._owed else 1
        self._others += 1
        if leader is None or self._others > STALE_AFTER:
            held_back = self._held_back if leader is not None else 0
            self.__init__()  # type: ignore[misc]
            self._ref = weakref.ref(stepper)
            return 1 + held_back
        if _among(stepper, self._companions):
            self._held_back += 1
            return 0
        if not _among(stepper, self._strangers):
            self._strangers.append(weakref.ref(stepper))
        self._lent += 1
        return 1

    def _returned(self) -> int:
        if self._others:
            self._companions = [ref for ref in self._companions + self._strangers if ref() is not None]
            self._strangers = []
            self._owed += self._lent
            self._lent = self._held_back = self._others = 0
        if self._owed:
            self._owed -= 1
            return 0
        return 1


def _among(one: Any, refs: List[Callable[[], Any]]) -> bool:
    return any(ref() is one for ref in refs)
