"""Converts a fuel mix to an intensity: one table of direct and lifecycle factors by fuel, each with its source.

AR5: IPCC AR5 WG3 (2014), Annex III, table A.III.2, medians: coal is pulverised coal, gas is combined cycle.
2006: IPCC 2006 Guidelines, volume 2, table 2.2 (kg CO2 per TJ of fuel) at the net efficiency named. Carbon of biomass
is counted where it grows (2006, volume 2, chapter 2), so it is not a direct emission.
Imports are not in the mix: the intensity is that of the zone's own generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from carbontui.grid.types import Signal


class Factor(NamedTuple):
    """gCO2/kWh at the stack, gCO2eq/kWh over the life cycle, and their source."""

    direct_g: float
    lifecycle_g: float
    source: str


FACTORS: Mapping[str, Factor] = {
    "coal": Factor(760.0, 820.0, "AR5"),
    "lignite": Factor(1010.0, 1070.0, "2006: 101 t/TJ at 36 %; life cycle: plus the 60 g that AR5 adds to coal"),
    "gas": Factor(370.0, 490.0, "AR5"),
    "oil": Factor(733.0, 650.0, "2006: residual fuel oil 77.4 t/TJ at 38 %; life cycle: a common lower figure"),
    "biomass": Factor(0.0, 230.0, "2006; AR5, dedicated crops and residues"),
    "solar": Factor(0.0, 45.0, "AR5, between rooftop and utility"),
    "geothermal": Factor(0.0, 38.0, "AR5"),
    "hydro": Factor(0.0, 24.0, "AR5"),
    "nuclear": Factor(0.0, 12.0, "AR5"),
    "wind": Factor(0.0, 11.0, "AR5"),
    "other": Factor(660.0, 700.0, "2006: waste 91.7 t/TJ, half of it fossil, at 25 %; life cycle: a cautious figure"),
}


def intensity_g_per_kwh(mix_mw: Mapping[str, float], signal: Signal = "average_lifecycle") -> float | None:
    """Mean weighted by generation, gCO2/kWh; the caller leaves out storage. None without any generation."""
    generating = {fuel: power for fuel, power in mix_mw.items() if power > 0}
    total = sum(generating.values())
    if total <= 0:
        return None
    direct = signal == "average_direct"
    factors = {fuel: FACTORS[fuel].direct_g if direct else FACTORS[fuel].lifecycle_g for fuel in generating}
    return sum(factors[fuel] * power for fuel, power in generating.items()) / total
