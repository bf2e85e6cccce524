"""The loss so far, downsampled for the chart."""

from __future__ import annotations

POINTS = 240


class LossHistory:
    """At most `POINTS` values over the whole run: when full, every second one is dropped."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._last: float | None = None
        self._every = 1
        self._seen = 0

    def add(self, loss: float | None) -> None:
        """Add a newly reported loss; an unchanged one is ignored."""
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
