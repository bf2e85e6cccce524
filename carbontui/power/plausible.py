"""Which readings of a board are plausible: checked once, where they are read.

Drivers report 0 W for boards that train, thousands of watts for boards of hundreds, and limits outside their own range.
Such a reading would corrupt the account, mislead the plan, or make a working cap look ineffective. An implausible
field is None in the look, with the reason as text in `doubts`.
"""

from __future__ import annotations

from msgspec import structs

from carbontui.power.devices import DeviceInfo, Look
from carbontui.power.messages import PowerKind
from carbontui.text import figures

LOWEST_W = 0.5
"""No powered board draws less: the smallest mobile parts idle at 1..2 W while a driver holds them open."""
EXCESS: dict[PowerKind, float] = {"avg1s": 1.25, "instant": 1.5, "unspecified": 1.5, "module": 2.0, "model": 1.5}
"""Highest plausible reading as a multiple of the highest limit. Boards overshoot for milliseconds, which a 1 s average
hardly shows; a module's watts include its CPU, which the board's limit does not cover."""
MAX_LIMIT_W = 1500.0
"""Highest limit assumed for a board that names none; the largest of 2025 take 1,200 W (NVIDIA GB200)."""
LIMIT_SLACK = 1.5
"""A limit in force may lie outside the settable range, in laptops for instance, but not by this factor."""
HOTTEST_C = 150.0


def judged(info: DeviceInfo, look: Look) -> Look:
    """`look` without fields that are implausible for this board; the reasons are in `doubts`, as (field, text)."""
    doubts: list[tuple[str, str]] = []
    changes: dict[str, object] = {}
    if look.power_w is not None and (why := _power_doubt(info, look.power_w, look.kind)):
        doubts.append(("power_w", why))
        changes["power_w"] = None
    if look.limit_mw is not None and (why := limit_doubt(info, look.limit_mw)):
        doubts.append(("limit_w", why))
        changes["limit_mw"] = None
    if look.util is not None and not 0 <= look.util <= 1:
        doubts.append(("util", f"the driver reports {figures.percent(look.util)}"))
        changes["util"] = None
    if look.temp_c is not None and not 0 <= look.temp_c <= HOTTEST_C:
        doubts.append(("temp_c", f"the driver reports {look.temp_c:.0f} °C"))
        changes["temp_c"] = None
    top_mhz = info.clock_max_mhz
    if look.sm_mhz is not None and top_mhz and not 0 <= look.sm_mhz <= 2 * top_mhz:
        doubts.append(("sm_mhz", f"the driver reports {look.sm_mhz:.0f} MHz, the board's clock ends at {top_mhz} MHz"))
        changes["sm_mhz"] = None
    if look.memory_used_b is not None and info.memory_total_b and look.memory_used_b > info.memory_total_b:
        doubts.append(("memory_used_b", "the driver reports more memory in use than the board has"))
        changes["memory_used_b"] = None
    return structs.replace(look, doubts=tuple(doubts), **changes) if doubts else look


def limit_doubt(info: DeviceInfo, limit_mw: int) -> str:
    """Why this cannot be the board's limit; "" if it can."""
    low, high = info.limit_min_mw or 0, info.limit_max_mw or MAX_LIMIT_W * 1000
    if limit_mw > 0 and low / LIMIT_SLACK <= limit_mw <= high * LIMIT_SLACK:
        return ""
    return (
        f"the driver reports a limit of {limit_mw / 1000:.0f} W, the board takes {low / 1000:.0f}-{high / 1000:.0f} W"
    )


def _power_doubt(info: DeviceInfo, power_w: float, kind: PowerKind | None) -> str:
    if power_w < LOWEST_W:
        return f"the driver reports {power_w:.0f} W, which no powered board draws"
    top_w = info.limit_max_mw / 1000 if info.limit_max_mw else MAX_LIMIT_W
    if power_w > EXCESS[kind or "unspecified"] * top_w:
        return f"the driver reports {power_w:.0f} W, more than a board of {top_w:.0f} W can draw"
    return ""
