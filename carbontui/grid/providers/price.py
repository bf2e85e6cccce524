"""The frame of every source of prices: one question, `between`, answers for the day ahead and for the past alike."""

from __future__ import annotations

from typing import ClassVar

from carbontui.grid.providers.base import HOUR_S, Provider
from carbontui.grid.types import Series, Signal

SEEN_S = 12 * HOUR_S
"""How far back the question for what is ahead looks: accounts want the prices of the hours just gone."""


class PriceProvider(Provider):
    """A market's prices in currency per kWh: exact once published, negative ones included."""

    signal: ClassVar[Signal] = "price"
    currency: str | None = "EUR"

    async def between(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        """Prices of the stretch as far as they are known. Raises GridError."""
        raise NotImplementedError

    async def forecast(self, zone: str, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        return await self.between(zone, now_s - SEEN_S, end_s, now_s)

    async def history(self, zone: str, start_s: float, end_s: float, now_s: float) -> tuple[Series, tuple[str, ...]]:
        return await self.between(zone, start_s, end_s, now_s)
