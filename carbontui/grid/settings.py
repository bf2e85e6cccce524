"""What a feed may use: keys, currency, where the providers are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class GridSettings:
    """Handed to a feed once; keys are never printed (`repr` leaves them out)."""

    offline: bool = False
    """Use no network: recorded and typical days only."""
    currency: str | None = None
    """ISO code a price must be in to be used; None: no price is fetched."""
    price_per_kwh: float | None = None
    """A flat price, used where no provider gives one."""
    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Provider keys by name, e.g. ELECTRICITYMAPS_TOKEN."""
    base_urls: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Provider name -> another base URL: a proxy of the site, or the test server."""
