"""Fuels: their emission factors, the intensity of a mix, and which of them changed it ('coal +2.1 GW, wind -3.0 GW').

AR5: IPCC AR5 WG3 (2014), Annex III, table A.III.2, medians: coal is pulverised coal, gas is combined cycle.
2006: IPCC 2006 Guidelines, volume 2, table 2.2 (kg CO2 per TJ of fuel) at the net efficiency named. Carbon of biomass
is counted where it grows (2006, volume 2, chapter 2), so it is not a direct emission.
Imports are not in the mix: the intensity is that of the zone's own generation. Pure functions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from carbontui.grid.types import Mix, Signal
from carbontui.text import figures


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


WINDOW_S = 12 * 3600.0
LEAST_S = 3600.0
"""Changes over a shorter time are noise."""
SMOOTH_S = 1800.0
OLD_S = 3 * 3600.0
LEAST_SHARE = 0.1
"""Smallest change of the intensity worth reporting; fuels that caused less than this share of it are left out."""
NAMED = 3


class Moved(NamedTuple):
    """The intensity of generation changed by `change_g` since `since_s`, mainly through these fuels (change in MW)."""

    since_s: float
    change_g: float
    fuels: tuple[tuple[str, float], ...]


def moved(mixes: Sequence[Mix], now_s: float) -> Moved | None:
    """The change since the half hour that differs most from now, with the fuels that caused it, largest first.

    None where the recent mix is unknown or little has changed. `mixes` are sorted by start.
    """
    known = [mix for mix in mixes if now_s - WINDOW_S - SMOOTH_S <= mix.start_s <= now_s]
    if not known or known[-1].start_s < now_s - OLD_S:
        return None
    last_s = known[-1].start_s
    here = _mean(known, last_s - SMOOTH_S)
    here_g = intensity_g_per_kwh(here, "average_direct")
    steps = range(1, int(WINDOW_S / SMOOTH_S))
    before = [(since_s, _mean(known, since_s)) for k in steps if (since_s := last_s - LEAST_S - k * SMOOTH_S)]
    rated = [
        (since_s, mix, g) for since_s, mix in before if (g := intensity_g_per_kwh(mix, "average_direct")) is not None
    ]
    if here_g is None or not rated:
        return None
    since_s, there, there_g = max(rated, key=lambda one: abs(one[2] - here_g))
    change_g = here_g - there_g
    if abs(change_g) < LEAST_SHARE * max(here_g, there_g):
        return None
    made = {fuel: here.get(fuel, 0.0) - there.get(fuel, 0.0) for fuel in here.keys() | there.keys()}
    # more of a fuel dirtier than the mix raises the intensity, and so does less of a cleaner one
    middle_g = (here_g + there_g) / 2
    pull = {fuel: megawatts * (FACTORS[fuel].direct_g - middle_g) for fuel, megawatts in made.items()}
    total = sum(value for value in pull.values() if value * change_g > 0)
    causes = sorted((f for f in pull if pull[f] / total >= LEAST_SHARE), key=lambda f: -abs(pull[f])) if total else []
    return Moved(since_s, change_g, tuple((fuel, made[fuel]) for fuel in causes[:NAMED])) if causes else None


def words(moved: Moved | None, now_s: float) -> str:
    """'coal +2.1 GW, wind -3.0 GW since 16:00'; '' for None."""
    if moved is None:
        return ""
    told = ", ".join(f"{fuel} {_power(megawatts)}" for fuel, megawatts in moved.fuels)
    return f"{told} since {figures.clock(moved.since_s, now_s)}"


def _power(megawatts: float) -> str:
    return figures.signed(megawatts, lambda mw: f"{mw / 1000:.1f} GW" if mw >= 950 else f"{mw:.0f} MW")


def _mean(mixes: Sequence[Mix], start_s: float) -> dict[str, float]:
    """Mean megawatts by fuel of the intervals that begin in the half hour from `start_s` on."""
    inside: list[Mapping[str, float]] = [m.megawatts for m in mixes if start_s <= m.start_s < start_s + SMOOTH_S + 1.0]
    fuels = {fuel for mix in inside for fuel in mix}
    return {fuel: sum(max(0.0, mix.get(fuel, 0.0)) for mix in inside) / len(inside) for fuel in fuels}
