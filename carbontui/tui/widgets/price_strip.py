"""The price of electricity on the time axis of the neighbouring charts: one row, and its trend."""

from __future__ import annotations

from datetime import datetime, timedelta

from carbontui import protocol, units
from carbontui.tui import glyphs
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow, Ink, PictureCells
from carbontui.tui.widgets.scale import GUTTER, means, window

TREND_S = 3 * 3600.0
"""How far ahead the trend looks."""
SAME = 0.05
"""Share of the day's spread below which a change is no trend."""


class PriceStrip(PictureCells):
    """The axis starts at the lowest price, so zero lies within it if prices are negative."""

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        prices = picture.series.price
        if prices is None:
            return []
        now = value_at(prices, picture.now_s)
        left = "price" if now is None else f"price  {now:.3f} {prices.currency}/kWh"
        view = window(picture, width - GUTTER)
        shown = means(prices.mean, units.from_iso(prices.start), prices.step_s, view)
        known = [value for value in shown if value is not None]
        low, high = min([0.0, *known]), max(known, default=1.0)
        at = view.column(picture.now_s)
        cells: list[tuple[str, Ink]] = []
        for x, value in enumerate(shown):
            tall = 0 if value is None else 1 + round((value - low) / ((high - low) or 1.0) * 7)
            below = value is not None and value < 0
            ink = "past" if x < at else "unloaded" if below else "warning"
            cells.append((glyphs.NOW, "now") if x == at else (glyphs.BAR[tall], ink))
        told = self.heading(width, left, trend_words(prices, picture.now_s))
        return [told, [(f"{high:>{GUTTER - 1}.2f} ", "dim"), *cells]]


def value_at(prices: protocol.PriceSlots, at_s: float) -> float | None:
    index = int((at_s - units.from_iso(prices.start)) // prices.step_s)
    return prices.mean[index] if 0 <= index < len(prices.mean) else None


def trend_words(prices: protocol.PriceSlots, now_s: float) -> str:
    """'0.081 to 0.352 today, rising': the spread of the local day, and the next hours against now."""
    midnight = datetime.fromtimestamp(now_s).replace(hour=0, minute=0, second=0, microsecond=0)
    start_s, end_s = midnight.timestamp(), (midnight + timedelta(days=1)).timestamp()
    begun, step = units.from_iso(prices.start), prices.step_s
    today = [v for i, v in enumerate(prices.mean) if v is not None and start_s <= begun + i * step < end_s]
    now = value_at(prices, now_s)
    soon = [value_at(prices, now_s + i * step) for i in range(1, round(TREND_S / step) + 1)]
    ahead = [value for value in soon if value is not None]
    if not today or now is None:
        return ""
    told = f"{min(today):.3f} to {max(today):.3f} today"
    if not ahead:
        return told
    change = sum(ahead) / len(ahead) - now
    same = abs(change) <= SAME * ((max(today) - min(today)) or abs(now))
    return f"{told}, {'steady' if same else 'rising' if change > 0 else 'falling'}"
