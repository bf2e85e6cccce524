"""Base class of price sources: one query, `between`, serves both the day ahead and the past."""

from __future__ import annotations

from typing import ClassVar

from carbontui.grid.providers.base import HOUR_S, Provider
from carbontui.grid.types import Series, Signal

SEEN_S = 12 * HOUR_S
"""How far back the forecast query starts: accounts need the prices of the last hours."""


class PriceProvider(Provider):
    """A market's prices in currency per kWh: final once published, possibly negative."""

    signal: ClassVar[Signal] = "price"
    currency: str | None = "EUR"

    async def between(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        """Prices of the stretch as far as published. Raises GridError."""
        raise NotImplementedError

    async def forecast(self, zone: str, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        return await self.between(zone, now_s - SEEN_S, end_s, now_s)

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        return await self.between(zone, start_s, end_s, now_s)
