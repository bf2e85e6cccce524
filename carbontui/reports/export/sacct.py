"""A run as a row that joins `sacct --parsable2` on JobIDRaw, with Slurm's field names where Slurm has the field.

sacct -P -o JobIDRaw,JobName,Elapsed > a;  carbontui report JOB --sacct b;  join the two on JobIDRaw
"""

from __future__ import annotations

from carbontui import units
from carbontui.reports.story import RunStory

COLUMNS = (
    "JobIDRaw", "JobName", "Start", "End", "ElapsedRaw", "State", "ConsumedEnergyRaw", "CarbontuiJob", "EnergyWallkWh",
    "GPUkWh", "gCO2", "AvoidedgCO2", "GridZone",
)  # fmt: skip
STATES = {"done": "COMPLETED", "failed": "FAILED", "stopped": "CANCELLED", "lost": "NODE_FAIL"}
"""Slurm's state for each way a run ends; while it runs: RUNNING."""


def text(story: RunStory) -> str:
    """Header and row, fields separated by "|". Times are UTC; ConsumedEnergyRaw is joules at the wall. JobIDRaw is
    empty for a run that Slurm did not start."""
    told = [
        story.options.slurm_job or "",
        story.status.name,
        units.iso(story.start_s)[:19],
        units.iso(story.end_s)[:19] if story.over else "Unknown",
        str(round(story.elapsed_s)),
        STATES.get(story.status.state, "RUNNING"),
        str(round(story.energy_wall_kwh * units.J_PER_KWH)),
        story.status.job,
        f"{story.energy_wall_kwh:.9f}",
        f"{story.energy_gpu_kwh:.9f}",
        "" if story.gco2_g is None else f"{story.gco2_g:.6f}",
        "" if story.avoided_g is None else f"{story.avoided_g:.6f}",
        story.options.zone or "",
    ]
    return "|".join(COLUMNS) + "\n" + "|".join(field.replace("|", "/").replace("\n", " ") for field in told) + "\n"
