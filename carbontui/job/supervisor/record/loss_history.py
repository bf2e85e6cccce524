"""The loss so far, thinned for the chart."""

from __future__ import annotations

POINTS = 240


class LossHistory:
    """At most `POINTS` values over the whole run: when they are full every second one goes."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._last: float | None = None
        self._every = 1
        self._seen = 0

    def add(self, loss: float | None) -> None:
        """A newly reported loss; one that did not change is no news."""
        if loss is None or loss == self._last:
            return
        self._last = loss
        self._seen += 1
        if self._seen % self._every == 0:
            self._values.append(round(loss, 5))
        if len(self._values) > POINTS:
            del self._values[1::2]
            self._every *= 2

    def values(self) -> tuple[float, ...]:
        return tuple(self._values)
