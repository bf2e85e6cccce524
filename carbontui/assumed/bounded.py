"""An assumed job within a stated boundary: what its levels and switches draw of what counts."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from carbontui.account.boundary import Draw, Kind, Place, charged_w, counted
from carbontui.assumed.job import AssumedJob, assumed, load_job
from carbontui.plan.problem import ProblemLevel

IDLE = 0.1
"""Share of the full watts that a board without a process draws; assumed (70 W of 700 W)."""


def bounded(
    job: AssumedJob,
    kind: Kind,
    *,
    host_w: float | None = None,
    idle_w: float | None = None,
    embodied: float | None = None,
) -> AssumedJob:
    """The job, whose levels are watts of boards, with all that counts: `host_w` beside them, and `idle_w` of the boards
    without a process (None: a tenth of the highest level), which levels named off or unload stand for; what making the
    hardware emitted, `embodied` grams per hour that it is held, is added to that of the levels."""
    shape, rest_w, made_g = job.shape, host_w or 0.0, embodied or 0.0
    bare_w = IDLE * max(level.power_w for level in shape.levels) if idle_w is None else idle_w

    def level_of(level: ProblemLevel) -> ProblemLevel:
        place: Place = "off" if level.name == "off" else "unload" if level.name == "unload" else "here"
        how, drawn_w = counted(kind, place), bare_w if place != "here" else level.power_w
        share = 0.0 if how == "nothing" else 1.0
        return structs.replace(
            level,
            power_w=charged_w(how, Draw(drawn_w, 0.0, rest_w), Draw(bare_w)),
            rent_per_h=share * level.rent_per_h,
            embodied_g_per_h=share * (level.embodied_g_per_h + made_g),
        )

    def switch(watts: float) -> float:
        return charged_w(counted(kind, "here"), Draw(watts, 0.0, rest_w), Draw(bare_w))

    levels = tuple(map(level_of, shape.levels))
    switch_w = tuple(tuple(map(switch, row)) for row in shape.switch_w)
    return replace(job, shape=replace(shape, levels=levels, switch_w=switch_w))


def stated(
    levels_file: str | None, watts: float, boundary: Kind | None, *, caps: bool, **counts: float | None
) -> AssumedJob:
    """The job that options state: of a file of levels, else a board of `watts` at full speed, with `caps` or without;
    `counts` as of `bounded`. Raises ProblemError."""
    job = load_job(levels_file) if levels_file else assumed(watts, caps=caps, running=False)
    return bounded(job, boundary or "given-back", **counts)
