"""Grid events and their receipts in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from carbontui import units
from carbontui.text import figures


class AskedOfSite(Protocol):
    """What of an event is told."""

    @property
    def id(self) -> str: ...
    @property
    def start_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...
    @property
    def asked_w(self) -> float | None: ...
    @property
    def target_w(self) -> float | None: ...
    def state(self, now_s: float) -> str: ...


def event(
    asked: AskedOfSite, can_shed_w: float | None, expected_w: float, tight: Sequence[str], now_s: float
) -> list[str]:
    """What is asked and what of it can be had; `tight`: jobs whose deadlines leave no more."""
    watts = asked.asked_w
    if watts is None and asked.target_w is not None:
        watts = max(0.0, expected_w - asked.target_w)
    span = f"{figures.named_clock(asked.start_s, now_s)} to {figures.named_clock(asked.end_s, now_s)}"
    state = {"pending": "to come", "active": "in force"}.get(asked.state(now_s), "ending")
    lines = [f"grid event {asked.id}, {state}: {figures.watts(watts or 0.0)} fewer, {span}"]
    if can_shed_w is None:
        lines.append("  no job here has said yet what it can leave")
    elif watts is not None and can_shed_w < watts - 1.0:
        who = f": {', '.join(map(units.printable, tight))} would miss a deadline" if tight else ""
        who = who or ": boards at rest or at their lowest limit draw the rest"
        lines.append(f"  only {figures.watts(can_shed_w)} of it can be shed{who}")
    else:
        lines.append(f"  all of it can be shed, of {figures.watts(can_shed_w)} at most")
    return lines


def receipt(facts: Mapping[str, Any]) -> list[str]:
    base, asked = facts["baseline_w"], facts["asked_w"]
    lines = [f"grid event {facts['id']}, {facts['state']}: {facts['start']} to {facts['end']}"]
    if base is None or asked is None:
        return [*lines, "  no job was there to ask"]
    lines.append(f"  asked      {figures.watts(asked)} fewer than {figures.watts(base)} ({facts['baseline_method']})")
    known_s = sum(one["duration_s"] for one in facts["delivered"] if one["w"] is not None)
    if known_s and facts["delivered_wh"] is not None:
        mean = figures.watts(facts["delivered_wh"] * 3600.0 / known_s)
        lines.append(f"  delivered  {mean} on average, {figures.kwh(facts['delivered_wh'] / 1000.0)} in all")
    if facts["unmetered_s"]:
        lines.append(f"  not known  {figures.duration(facts['unmetered_s'])}, nobody metered all boards")
    if facts["unread"]:
        lines.append(f"  not known  the journals of {', '.join(facts['unread'])} cannot be read")
        return lines
    reached = facts["reached_s"]
    when = "never" if reached is None else f"{reached:.0f} s after its start"
    lines += [f"  reached    {when}", f"  steps lost {facts['steps_lost']}"]
    for job in facts["jobs"]:
        late = "not known" if job["delay_s"] is None else figures.duration(job["delay_s"])
        spent = f"capped {figures.duration(job['capped_s'])}, held {figures.duration(job['held_s'])}"
        lines.append(f"  {job['job']}  {units.printable(job['name']):<24} {spent}, delay {late}")
    return [*lines, f"  sha256     {facts['sha256']}"]
