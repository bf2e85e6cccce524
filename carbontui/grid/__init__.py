"""Carbon intensity and prices: providers, cleaning, forecast, typical days, cache.

`Forecaster`, `Forecast` and `Issue` need numpy and are imported on first use, so that the supervisor, which holds a
`Feed`, never loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carbontui.grid.types import Outlook, Row, Series

if TYPE_CHECKING:
    from carbontui.grid.forecast import Forecast, Forecaster, Issue

__all__ = ["Forecast", "Forecaster", "Issue", "Outlook", "Row", "Series"]


def __getattr__(name: str) -> Any:
    if name in ("Forecast", "Forecaster", "Issue"):
        from carbontui.grid import forecast

        return getattr(forecast, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
