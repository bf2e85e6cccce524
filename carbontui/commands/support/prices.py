"""Prices and weights as `solve` and `backtest` take them."""

from __future__ import annotations

from carbontui.commands.support.command import Failure
from carbontui.grid import recorded, tariff
from carbontui.grid.types import Series

PRICE_HELP = "Prices: CSV time_utc,price_usd_per_mwh, or a tariff: days,from_utc,to_utc,price_usd_per_kwh."
WEIGHT_HELP = "Weigh grams and money, like carbon=0.7,cost=0.3 (each as a share of its mean)."


def price_series(path: str, start_s: float, end_s: float) -> tuple[Series, bool]:
    """The prices of a file, and whether it is a tariff, known for all time. Raises ValueError or Failure."""
    if tariff.is_one(path):
        return tariff.load(path, start_s, end_s), True
    series = recorded.load_price(path)
    if series is None:
        raise Failure(f"--price: {path} has no column like price_usd_per_mwh", 2)
    return series, False
