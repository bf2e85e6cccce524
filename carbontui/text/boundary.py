"""What the account of a job counts, and why: its boundary in words."""

from __future__ import annotations

from carbontui.text import figures
from carbontui.text.forms import Table

SIGNS = {
    "": "as given",
    "slurm": "in a Slurm allocation",
    "kubernetes": "in a Kubernetes pod",
    "cloud": "a cloud provider's machine",
    "rented": "a price per GPU hour is set",
    "workstation": "no scheduler and no provider was found",
    "host": "watts of the host are given",
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
    "held": "held: pauses and waits count",
    "always-on": "above idle: always on",
    "given-back": "while it has the boards",
}
"""What the account counts, beside its energy."""


def _sign(*, sign: str, now_s: float) -> str:
    return SIGNS.get(sign, sign)


def _host(watts: float, how: str, by: str, band_w: tuple[float, float] | None) -> str:
    if how == "none":
        return "the rest of the machine is not known and not counted"
    told = f"and {figures.watts(watts)} of the rest of the machine"
    if how == "default" and band_w is not None:
        return f"{told} (typical of servers with such boards, {band_w[0]:.0f} to {band_w[1]:.0f} W; --host-w)"
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
    embodied_g: float | None = 0.0,
    now_s: float,
) -> str:
    if kind == "always-on":
        said = "watts above idle: this machine is on with or without the job"
    else:
        parts = f"{'boards, ' if boards else ''}CPU and memory, {_host(host_w, how, by, band_w)}"
        until = "in every pause and wait, until the machine is released"
        if kind == "given-back":
            until = "not before the start, nor while it is unloaded"
        elif gives_back:
            until = "in every pause and wait, until an unload gives the machine back"
        said = f"{parts}; {until}"
    making = "; what making these boards emitted is not published: --embodied GRAMS" if embodied_g is None else ""
    if embodied_g:
        making = f"; plans weigh {figures.grams(embodied_g)} per hour held for making the hardware"
    return f"{said}; PUE {pue:g} ({PUES.get(pue_why, pue_why)}){making}"


BOUNDARY: Table = {
    "boundary_why": _sign,
    "boundary_counts": _counted,
}
