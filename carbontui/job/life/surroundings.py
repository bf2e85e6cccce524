"""Who pays for the machine of a job, guessed by where `run` is called: boundary, longest stillness, PUE.

PUE by source: Google's fleet 1.09 (environmental report 2024), AWS 1.15 (sustainability page 2024), Microsoft 1.16
(datacenter page, FY25); another centre 1.2, as measured at Jean Zay (Luccioni et al., arXiv 2211.02001); a workstation
1.0, as nobody cools it apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carbontui import units
from carbontui.config import Settings

IDLE_LIMIT_S = 1800.0
"""The longest stillness under a scheduler: sites cancel jobs whose GPUs idle for one hour (Northeastern) or two
(Princeton, University of Florida)."""
CENTRE_PUE = 1.2
CLOUDS = {
    "Amazon EC2": ("aws", 1.15),
    "Google": ("google", 1.09),
    "Google Compute Engine": ("google", 1.09),
    "Microsoft Corporation Virtual Machine": ("azure", 1.16),
}
"""By maker, or maker and product, as the firmware tells: the provider, and its PUE."""
DMI = Path("/sys/class/dmi/id")


def cloud(root: Path = DMI) -> tuple[str, float] | None:
    """The provider whose machine this is, and its PUE; None: none that is known."""
    try:
        maker, product = ((root / name).read_text().strip() for name in ("sys_vendor", "product_name"))
    except (OSError, ValueError):
        return None
    return CLOUDS.get(maker) or CLOUDS.get(f"{maker} {product}")


def terms(settings: Settings, environment: Mapping[str, str], *, resubmit: bool, dmi: Path = DMI) -> dict[str, Any]:
    """The fields of a job's options that say what its account counts. Raises ValueError naming the setting."""
    provider = cloud(dmi)
    scheduler = "SLURM_JOB_ID" in environment or "KUBERNETES_SERVICE_HOST" in environment
    kind, why = settings.boundary, ""
    if kind is None:
        kind = "held" if scheduler or provider or settings.gpu_price else "always-on"
        why = "slurm" if "SLURM_JOB_ID" in environment else "kubernetes" if scheduler else ""
        why = why or ("cloud" if provider else "rented" if settings.gpu_price else "workstation")
        if why == "workstation" and settings.host_w:
            kind, why = "given-back", "host"  # who gives its watts wants them counted
    pue, pue_why = settings.pue, ""
    if pue is None:
        own = kind == "always-on" or not (scheduler or provider)
        pue_why, pue = ("workstation", 1.0) if own else provider or ("centre", CENTRE_PUE)
    limit_s = IDLE_LIMIT_S if scheduler else None
    if settings.idle_limit is not None:
        try:
            limit_s = None if settings.idle_limit == "none" else units.parse_duration(settings.idle_limit)
        except ValueError as error:
            raise ValueError(f"--idle-limit: {error} (or none)") from None
    return {
        "boundary": kind,
        "boundary_why": why,
        "gives_back": resubmit,
        "idle_limit_s": limit_s if kind == "held" else None,
        "host_w": settings.host_w,
        "pue": pue,
        "pue_why": pue_why,
    }
