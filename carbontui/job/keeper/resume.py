"""What an unloaded command has left behind, and what it is started again with."""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping
from typing import Any

from carbontui.client import inject
from carbontui.job.keeper import files


def not_before(marker: str) -> float | None:
    """When a resume marker asks to be started again (epoch seconds; 0 when it does not say); None without a marker."""
    facts = files.read_json(marker)
    if not facts:
        return None
    whole, dot, rest = str(facts.get("not_before")).removesuffix("Z").partition(".")
    try:
        moment = time.strptime(whole, "%Y-%m-%dT%H:%M:%S")
        return calendar.timegm(moment) + float(f"0{dot}{rest}")
    except ValueError:
        return 0.0


def environment(spec: Mapping[str, Any], base: Mapping[str, str], marker: str, *, resume: bool) -> dict[str, str]:
    """The command's environment, as `base` is the caller's."""
    return inject.environment(
        base,
        hook_dir=f"{spec['job_dir']}/hook",
        socket=spec["socket"],
        job=spec["job"],
        marker=marker,
        log=spec["log"],
        resume=resume,
    )
