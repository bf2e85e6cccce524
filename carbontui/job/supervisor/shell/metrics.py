"""A job's figures as metric families: stable names with units; unknown values are omitted. Pure."""

from collections.abc import Callable, Mapping

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
    coverage = status.coverage
    covered_s = coverage.metered_s + coverage.gap_s if coverage else None
    energy_j = {"wall": status.energy_wall_kwh, "boards": status.energy_gpu_kwh}
    known = ("power_w", "energy_gpu_kwh", "energy_wall_kwh", "gco2_g", "intensity")

    def of_job(name: str, text: str, value: float | None, **labels: str) -> Family:
        return Family(f"carbontui_job_{name}", "gauge", text, (({**job, **labels}, value),))

    def of_boards(name: str, text: str, value: Callable[[protocol.Gpu], float | None]) -> Family:
        samples = tuple((labels, value(gpu)) for labels, gpu in boards)
        return Family(f"carbontui_board_{name}", "gauge", text, samples)

    return (
        of_job("info", "1, with the job's machine and grid zone.", 1.0, **about),
        of_job("state", "1 for the state the job is in.", 1.0, state=status.state),
        Family(
            "carbontui_job_provenance",
            "gauge",
            "1 for how a figure is known: measured, integrated, estimated, simulated, ...",
            tuple(({**ident, "figure": field, "how": how[field]}, 1.0) for field in known if field in how),
        ),
        of_job("power_watts", "What the job draws now: its part of GPUs, CPU and memory.", status.power_w),
        Family(
            JOULES,
            "counter",
            "Energy of the job so far: its part of the GPUs alone, and at the wall (CPU, host and PUE included).",
            tuple(
                ({**job, "scope": scope}, totals.at_least(f"{JOULES} {scope}", kwh * units.J_PER_KWH))
                for scope, kwh in energy_j.items()
            ),
        ),
        of_job(
            "metered_ratio",
            "Metered share of the time that the energy covers; the rest is gaps, booked from counters and last watts.",
            coverage.share if coverage else None,
        ),
        of_job("covered_seconds", "Time that the energy covers.", covered_s),
        of_job(
            "emissions_grams",
            "CO2 of the job so far. It falls where grid values come in lower than they were forecast.",
            status.gco2_g,
        ),
        of_job(
            "avoided_grams", "CO2 avoided so far against the same work at full speed from the start.", status.avoided_g
        ),
        Family("carbontui_job_steps", "counter", "Optimizer steps done.", ((job, float(status.step or 0)),)),
        Family(
            "carbontui_job_intensity_grams_per_kwh",
            "gauge",
            "Carbon intensity of the grid now, gCO2 per kWh.",
            (({**ident, "zone": zone}, intensity.value_g_per_kwh if intensity else None),),
        ),
        of_boards("power_watts", "What the whole GPU draws now.", lambda gpu: gpu.power_w),
        of_boards("own_power_watts", "What the GPU draws now for this job's processes.", _own_w),
        of_boards("share_ratio", "This job's share of the GPU's watts; 1 if nobody else uses it.", _share),
        Family(
            BOARD_JOULES,
            "counter",
            "What the GPU has drawn for this job so far.",
            tuple((labels, totals.at_least(gpu.uuid, joules.get(gpu.uuid))) for labels, gpu in boards),
        ),
        of_boards("limit_watts", "The power limit in force.", lambda gpu: gpu.limit_w),
    )


def _own_w(gpu: protocol.Gpu) -> float | None:
    return gpu.power_w if gpu.own_w is None else gpu.own_w


def _share(gpu: protocol.Gpu) -> float | None:
    if gpu.power_w is None:
        return None
    return 1.0 if gpu.own_w is None else gpu.own_w / gpu.power_w if gpu.power_w else 0.0
