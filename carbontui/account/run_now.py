"""Run-now: the same work with every lever undone, the counterfactual that a saving is measured against.

    seconds = A + C                     energy at the wall = E + P x C                    watts = energy / seconds

- A, E: seconds and metered energy of the job's own time at full speed (starting, running, pausing), as they were: its
  imports, its slow machine, its waiting for a core
- C: the work done under a cap or a duty cycle, in seconds at the reference speed measured on this job: steps / rate, or
  by the clock where no steps are reported
- P: watts at the wall at full speed, as measured
- held time (a start held back, paused, unloaded, going on again) is removed with its energy; so is what is excluded (a
  try, an estimate, a calibration)

It runs from the job's start without a break at those mean watts, on the realised intensity. Where no lever acted there
is no run-now beside the job: it is what it would be compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from carbontui.account.lived import Lived


class RunNow(NamedTuple):
    """`seconds` from the job's start at `watts` at the wall; `acted`: whether any lever did."""

    seconds: float
    watts: float
    acted: bool = True


def run_now(lived: Lived, *, pue: float, full_wall_w: float | None, rate: float | None) -> RunNow | None:
    """By the formula above; `rate` is the reference in steps per second. None where work was done under a cap and the
    watts at full speed are not known."""
    capped_work_s = lived.capped_steps / rate if rate and lived.capped_steps else lived.capped_work_s
    if capped_work_s > 0 and full_wall_w is None:
        return None
    seconds = lived.at_speed_s + capped_work_s
    joules = lived.at_speed_j * pue + (full_wall_w or 0.0) * capped_work_s
    return RunNow(seconds, joules / seconds if seconds > 0 else 0.0, lived.lever_acted)


def to_kept(run_now: RunNow | None) -> dict[str, object]:
    """As the journal keeps it, for those who read or revise the account later."""
    if run_now is None:
        return {"run_now_s": None, "run_now_w": None, "lever_acted": True}
    return {"run_now_s": run_now.seconds, "run_now_w": run_now.watts, "lever_acted": run_now.acted}


def kept(data: Mapping[str, Any]) -> RunNow | None:
    """From the journal."""
    seconds, watts = data["run_now_s"], data["run_now_w"]
    return None if seconds is None else RunNow(float(seconds), float(watts), bool(data["lever_acted"]))
