"""Which sources a zone has, in the order they are tried. One signal: average never falls back to marginal.

First the keyless sources with an open forecast: NESO, Energi Data Service, Energy-Charts; then Electricity Maps, with a
key; then the operators' own fuel mix, live and keyless but without a forecast; then sources with a key that are hours
late: ENTSO-E, EIA; then typical days.
"""

from carbontui.grid import zones
from carbontui.grid.http import Http
from carbontui.grid.providers.base import Provider
from carbontui.grid.providers.caiso import Caiso, CaisoPrice
from carbontui.grid.providers.daily import Ieso, Nyiso, Ree
from carbontui.grid.providers.entsoe import Entsoe, EntsoePrice
from carbontui.grid.providers.europe import EnergiDataPrice, EnergiDataService, EnergyCharts, EnergyChartsPrice
from carbontui.grid.providers.japan import Japan
from carbontui.grid.providers.keyed import Eia, ElectricityMaps, WattTime
from carbontui.grid.providers.latest import Ercot, HydroQuebec, Miso, Ons, Spp, Taipower, Transpower
from carbontui.grid.providers.neso import Neso, OctopusAgile
from carbontui.grid.providers.operators import Eco2mix, Eirgrid
from carbontui.grid.settings import GridSettings
from carbontui.grid.types import HOUR_S

OPERATORS: tuple[type[Provider], ...] = (
    Caiso, Nyiso, Ercot, Miso, Spp, Ieso, HydroQuebec, Eco2mix, Ree, Eirgrid, Ons, Transpower, Taipower, Japan,
)  # fmt: skip
AVERAGE: tuple[type[Provider], ...] = (
    Neso, EnergiDataService, EnergyCharts, ElectricityMaps, *OPERATORS, Entsoe, Eia,
)  # fmt: skip
MARGINAL: tuple[type[Provider], ...] = (WattTime,)
PRICE: tuple[type[Provider], ...] = (EnergiDataPrice, EnergyChartsPrice, OctopusAgile, CaisoPrice, EntsoePrice)
EVERY = AVERAGE + MARGINAL + PRICE


def carbon(zone: str, http: Http, settings: GridSettings) -> list[Provider]:
    """Providers of the zone's intensity in the requested signal, best first, including those whose key is missing;
    none where the user has given a value."""
    if settings.intensity_g_per_kwh is not None:
        return []
    kinds = MARGINAL if settings.marginal else AVERAGE
    return [kind(http, settings) for kind in kinds if kind.covers(zone)]


def lateness(zone: str) -> tuple[float, str]:
    """How old the newest value of the zone's first source usually is (s), one that needs no key before the others, and
    its title; an hour and '' where there is none, as for the zone ''."""
    kinds = sorted((kind for kind in AVERAGE if zone and kind.covers(zone)), key=lambda kind: bool(kind.keys))
    return (kinds[0].lateness_s, kinds[0].title) if kinds else (HOUR_S, "")


def prices(zone: str, http: Http, settings: GridSettings) -> list[Provider]:
    """Providers of a price in the requested currency; none when no currency is set."""
    found = [kind(http, settings) for kind in PRICE if kind.covers(zone)]
    return [provider for provider in found if settings.currency and provider.currency == settings.currency]


def price_zones(zone: str, settings: GridSettings) -> tuple[str, ...]:
    """Parts of the zone that have prices in the requested currency, where the zone as a whole has none."""
    if not settings.currency or any(kind.covers(zone) for kind in PRICE):
        return ()
    parts = [part for part in zones.every() if part.startswith(f"{zone}-")]
    return tuple(
        part for part in parts if any(kind.covers(part) and kind.currency == settings.currency for kind in PRICE)
    )


def usable(provider: Provider, settings: GridSettings) -> bool:
    """Whether all its keys are set."""
    return all(settings.keys.get(name) for name in provider.keys)
