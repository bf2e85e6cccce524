"""From a fuel mix to an intensity: lifecycle medians of IPCC AR5 WG3 Annex III table A.III.2, gCO2eq/kWh.

Oil and unspecified sources are not in that table: 650 is the lower of the common lifecycle figures for oil, 700 a
cautious value for 'other'. Lignite counts as coal, so grids rich in lignite come out somewhat too clean.
"""

from __future__ import annotations

from collections.abc import Mapping

FACTORS_G = {
    "coal": 820.0,
    "gas": 490.0,
    "oil": 650.0,
    "biomass": 230.0,
    "solar": 45.0,
    "geothermal": 38.0,
    "hydro": 24.0,
    "nuclear": 12.0,
    "wind": 11.0,
    "other": 700.0,
}


def intensity_g_per_kwh(mix_mw: Mapping[str, float]) -> float | None:
    """Mean over what generates; storage is no source and is left out by the caller. None when nothing generates."""
    generating = {fuel: power for fuel, power in mix_mw.items() if power > 0}
    total = sum(generating.values())
    if total <= 0:
        return None
    return sum(FACTORS_G[fuel] * power for fuel, power in generating.items()) / total
