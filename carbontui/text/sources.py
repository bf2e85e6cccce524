"""Where a figure comes from, in words: the sources in the provenance of a Status, and what slows a board down."""

from collections.abc import Sequence
from typing import Any

from carbontui import units
from carbontui.protocol import Intensity
from carbontui.text import figures
from carbontui.text.forms import Table, wordings

SENSOR_BOUND = "sensor ±5 %; bursts under 0.3 s may be 20 % off"
"""The error bound behind every label of joules: on some boards the counter sums a sensor that is active a quarter of
the time, invisibly in the readings (arXiv 2312.02741; bursts of 250 ms on such a simulated board: -16 %)."""
SLOWS = {
    0x4: "its power limit",
    0x8: "the hardware (slowdown)",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "the power supply (brake)",
}
"""NVML's clock-event reasons that hold a board's clock down (nvmlClocksEventReason*, NVML reference)."""


def slowed(reasons: int | None) -> str:
    """Why a board's clock is held down; '' if it is not, or not reported."""
    return ", ".join(text for bit, text in SLOWS.items() if (reasons or 0) & bit)


def accuracy(leads: Sequence[Any]) -> str:
    """How good forecasts were, by lead (`ForecastError`): 'off by 3, 7 % at 1, 6 h ahead (the same hour of the
    last known day: 9, 11 %); the 80 % band held 79 % of 300 hours'; '' without any data."""
    if not leads:
        return ""
    errors = ", ".join(f"{100 * lead.error:.0f}" for lead in leads)
    hours = ", ".join(f"{lead.lead_h}" for lead in leads)
    line = f"off by {errors} % at {hours} h ahead"
    if all(lead.naive is not None for lead in leads):
        line += f" (the same hour of the last known day: {', '.join(f'{100 * (x.naive or 0.0):.0f}' for x in leads)} %)"
    bands = [lead.coverage for lead in leads if lead.coverage is not None]
    if bands:
        line += f"; the 80 % band held {figures.percent(sum(bands) / len(bands))}"
    return f"{line} of {max(lead.hours for lead in leads)} hours"


def age(intensity: Intensity | None, now_s: float) -> str:
    """'DE until 14:00, 3 h ago; forecast since': how old the grid's newest value is; '' for one that is not a minute
    old, and where none was measured."""
    until_s = units.from_iso(intensity.known_until) if intensity and intensity.known_until else now_s
    if intensity is None or now_s - until_s < 60.0:
        return ""
    ago = f"{(now_s - until_s) / 3600:.0f} h" if now_s - until_s >= 5400 else figures.duration(now_s - until_s)
    return f"{intensity.zone} until {figures.clock(until_s, now_s)}, {ago} ago; forecast since"


def _yours(*, tdp_w: float, utilisation: float | None, now_s: float) -> str:
    share = "utilisation (1 if none is reported)" if utilisation is None else f"{utilisation:g}"
    return f"yours: {tdp_w:g} W x {share}"


def _power(*, boards: Sequence[str], host: str, now_s: float) -> str:
    return "; ".join((*boards, f"CPU and memory {host}"))


def _energy(*, shares: Sequence[tuple[str, float]], sensed: bool, unreadable: bool, now_s: float) -> str:
    told = ", ".join(f"{figures.percent(share)} {'shared, split' if how == 'split' else how}" for how, share in shares)
    bound = f" ({SENSOR_BOUND})" if sensed else ""
    return (told or "nothing metered yet") + bound + ("; a GPU that cannot be read is not in it" if unreadable else "")


def _wall(*, shares: Sequence[tuple[str, float]], sensed: bool, unreadable: bool, now_s: float) -> str:
    parts = _energy(shares=shares, sensed=sensed, unreadable=unreadable, now_s=now_s)
    return f"all that counts, with PUE: {parts}"


def _avoided(*, watts: str, signal: str, now_s: float) -> str:
    whose = {"yours": "your own"}.get(signal, signal)
    return f"the same work at full speed from the start, capped work at {watts} full watts, {whose} intensity"


def _at_end(
    *, planned: bool, grid: str | None, parked_assumed: bool, full_assumed: bool, capped: bool, now_s: float
) -> str:
    follows = "the plan in force" if planned else "at full speed"
    assumed = "; watts while paused assumed" * parked_assumed + "; full watts assumed" * full_assumed
    band = f"80 % band of the forecast's error{' and of the speeds under caps' if capped else ' alone'}"
    return f"metered so far, then {follows} on {grid or 'no grid source'}{assumed}; {band}"


SOURCES: Table = wordings("sources") | {
    "source_yours": _yours,
    "source_power": _power,
    "source_energy": _energy,
    "source_energy_wall": _wall,
    "source_accuracy": lambda *, leads, now_s: accuracy(leads),
    "source_avoided": _avoided,
    "source_guess": lambda *, guess, agreed, now_s: f"guessed from {guess}{', accepted by a user' if agreed else ''}",
    "source_at_end": _at_end,
}


# --- what the account counts ---

SIGNS = {
    "": "as given",
    "slurm": "in a Slurm allocation",
    "kubernetes": "in a Kubernetes pod",
    "cloud": "a cloud provider's machine",
    "rented": "a price per GPU hour is set",
    "workstation": "no Slurm or cloud found",
}
"""Why a boundary was chosen."""
PUES = {
    "": "as given",
    "workstation": "a workstation",
    "centre": "a data centre, as Jean Zay: arXiv 2211.02001",
    "google": "Google's fleet, 2024",
    "aws": "AWS, 2024",
    "azure": "Microsoft, FY25",
}
"""Where a PUE comes from."""

COUNTS = {
    "held": "reserved: pauses and waits count",
    "always-on": "above idle: on anyway",
    "given-back": "while it has the GPUs",
}
"""What the account counts, beside its energy."""
OTHERWISE = {
    "held": "waits and pauses too; --boundary given-back: only while it has the GPUs",
    "always-on": "what it draws above idle; --boundary given-back: all that it draws",
    "given-back": "all that it draws while it has the GPUs",
}
"""What is counted under a boundary that was guessed, and the switch that changes it."""


def called(kind: str) -> str:
    """What an energy of a boundary is called: what is above idle was never at the wall."""
    return "above idle" if kind == "always-on" else "at the wall"


def _host(watts: float, how: str, by: str, band_w: tuple[float, float] | None) -> str:
    if how == "none":
        return "the rest of the machine is not known and not counted"
    told = f"and {figures.watts(watts)} of the rest of the machine"
    if how == "default" and band_w is not None:
        return f"{told} (typical of servers with such GPUs, {band_w[0]:.0f} to {band_w[1]:.0f} W; --host-w)"
    return f"{told} ({f'measured: {by}' if how == 'measured' else 'as given'})"


def _counted(
    *,
    kind: str,
    gives_back: bool,
    host_w: float,
    how: str,
    by: str,
    band_w: tuple[float, float] | None,
    pue: float,
    pue_why: str,
    boards: bool = True,
    idle: tuple[float, bool] = (0.0, True),
    embodied_g: float | None = 0.0,
    now_s: float,
) -> str:
    if kind == "always-on":
        known = "as seen here" if idle[1] else "typical: not seen idle yet"
        of_boards = f" (GPUs {figures.watts(idle[0])}, {known})" if boards and idle[0] else ""
        said = f"watts above idle{of_boards}: this machine is on with or without the job"
    else:
        parts = f"{'GPUs, ' if boards else ''}CPU and memory, {_host(host_w, how, by, band_w)}"
        until = "in every pause and wait, until the machine is released"
        if kind == "given-back":
            until = "not before the start, nor while it is unloaded"
        elif gives_back:
            until = "in every pause and wait, until an unload gives the machine back"
        said = f"{parts}; {until}"
    making = "; what making these GPUs emitted is not published: --embodied GRAMS" if embodied_g is None else ""
    if embodied_g:
        making = f"; plans weigh {figures.grams(embodied_g)} per hour held for making the hardware"
    return f"{said}; PUE {pue:g} ({PUES.get(pue_why, pue_why)}){making}"


BOUNDARY: Table = {"boundary_why": lambda *, sign, now_s: str(SIGNS.get(sign, sign)), "boundary_counts": _counted}
