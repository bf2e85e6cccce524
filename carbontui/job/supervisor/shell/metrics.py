"""A job's figures as metric families: stable names with units; unknown values are omitted. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from carbontui import protocol, units
from carbontui.system.openmetrics import Family, MonotonicCounter, counters

JOULES = "carbontui_job_energy_joules"
BOARD_JOULES = "carbontui_board_energy_joules"
JOB = "carbontui_job"
"""The label with the job's id: `job` is Prometheus's own."""


def resume(totals: MonotonicCounter, exposition: str) -> None:
    """Continue from the counters of an earlier supervisor of this job: a counter that fell would count twice."""
    for (name, labels), value in counters(exposition).items():
        if name == JOULES:
            scope = "wall" if 'scope="wall"' in labels else "boards"
            totals.at_least(f"{JOULES} {scope}", value)
        elif name == BOARD_JOULES:
            totals.at_least(labels.partition('gpu="')[2].partition('"')[0], value)


def families(status: protocol.Status, joules: Mapping[str, float], totals: MonotonicCounter) -> tuple[Family, ...]:
    """Metrics of one job. `joules` are the job's own so far, by board."""
    ident = {JOB: status.job}
    job = {**ident, "name": status.name}
    boards = [({**ident, "gpu": gpu.uuid}, gpu) for gpu in status.gpus]
    how = {field: found.how for field, found in status.provenance.items()}
    intensity = status.intensity
    zone = intensity.zone if intensity else ""
    about = {"host": status.host, "zone": zone, "signal": intensity.signal if intensity else ""}
    energy_j = {"wall": status.energy_wall_kwh, "boards": status.energy_gpu_kwh}
    return (
        Family(
            "carbontui_job_info", "gauge", "", "1, with the job's machine and grid zone.", (({**job, **about}, 1.0),)
        ),
        Family(
            "carbontui_job_state",
            "gauge",
            "",
            "1 for the state the job is in.",
            (({**job, "state": status.state}, 1.0),),
        ),
        Family(
            "carbontui_job_provenance",
            "gauge",
            "",
            "1 for how a figure is known: measured, integrated, estimated, simulated, ...",
            tuple(
                ({**ident, "figure": field, "how": how[field]}, 1.0)
                for field in ("power_w", "energy_gpu_kwh", "energy_wall_kwh", "gco2_g", "intensity")
                if field in how
            ),
        ),
        Family(
            "carbontui_job_power_watts",
            "gauge",
            "watts",
            "What the job draws now: its part of boards, CPU and memory.",
            ((job, status.power_w),),
        ),
        Family(
            JOULES,
            "counter",
            "joules",
            "Energy of the job so far: its part of the boards alone, and at the wall (CPU, host and PUE included).",
            tuple(
                ({**job, "scope": scope}, totals.at_least(f"{JOULES} {scope}", kwh * units.J_PER_KWH))
                for scope, kwh in energy_j.items()
            ),
        ),
        Family(
            "carbontui_job_emissions_grams",
            "gauge",
            "grams",
            "CO2 of the job so far. It falls where grid values come in lower than they were forecast.",
            ((job, status.gco2_g),),
        ),
        Family(
            "carbontui_job_avoided_grams",
            "gauge",
            "grams",
            "CO2 avoided so far against the same work with nothing held back.",
            ((job, status.avoided_g),),
        ),
        Family("carbontui_job_steps", "counter", "", "Optimizer steps done.", ((job, float(status.step)),)),
        Family(
            "carbontui_job_intensity_grams_per_kwh",
            "gauge",
            "",
            "Carbon intensity of the grid now, gCO2 per kWh.",
            (({**ident, "zone": zone}, intensity.value_g_per_kwh if intensity else None),),
        ),
        Family(
            "carbontui_board_power_watts",
            "gauge",
            "watts",
            "What the whole board draws now.",
            tuple((labels, gpu.power_w) for labels, gpu in boards),
        ),
        Family(
            "carbontui_board_own_power_watts",
            "gauge",
            "watts",
            "What the board draws now for this job's processes.",
            tuple((labels, gpu.power_w if gpu.own_w is None else gpu.own_w) for labels, gpu in boards),
        ),
        Family(
            "carbontui_board_share_ratio",
            "gauge",
            "ratio",
            "This job's share of the board's watts; 1 if nobody else uses it.",
            tuple((labels, _share(gpu)) for labels, gpu in boards),
        ),
        Family(
            BOARD_JOULES,
            "counter",
            "joules",
            "What the board has drawn for this job so far.",
            tuple((labels, totals.at_least(gpu.uuid, joules.get(gpu.uuid))) for labels, gpu in boards),
        ),
        Family(
            "carbontui_board_limit_watts",
            "gauge",
            "watts",
            "The power limit in force.",
            tuple((labels, gpu.limit_w) for labels, gpu in boards),
        ),
    )


def _share(gpu: protocol.Gpu) -> float | None:
    if gpu.power_w is None:
        return None
    return 1.0 if gpu.own_w is None else gpu.own_w / gpu.power_w if gpu.power_w else 0.0
