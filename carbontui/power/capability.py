"""What can be measured and done here, why the better option is unavailable, and the command that fixes it."""

from __future__ import annotations

from msgspec import Struct

from carbontui.power.messages import Capability, Reading, Readings, Support

SAYS: dict[Support, str] = {
    "yes": "supported",
    "no_permission": "no permission",
    "not_supported": "not supported",
    "no_effect": "no effect",
    "unknown": "unknown",
    "lost": "lost",
}
ASPECTS = {"energy": "energy counter", "power": "power", "limit": "power limit", "clocks": "clock lock"}


class CapabilityRow(Struct, frozen=True):
    """One line: device, aspect, support, reason, and an exact command or ""."""

    device: str
    aspect: str
    support: Support
    why: str
    fix: str

    def text(self) -> str:
        fix = f"; fix: {self.fix}" if self.fix else ""
        return f"{self.device}  {self.aspect:<16} {SAYS[self.support]:<14} {self.why}{fix}"


def table(readings: Readings) -> tuple[CapabilityRow, ...]:
    """All rows: each GPU, then CPU and memory. Without a GPU the first row says so."""
    rows: list[CapabilityRow] = []
    if not readings.devices and not readings.absent:
        why = next(iter(readings.notices), "no NVIDIA driver on this machine")
        rows.append(CapabilityRow("GPU", "any", "not_supported", f"{why}: CPU and host are counted alone", ""))
    for reading in readings.devices:
        rows += _gpu(reading)
    for index, why in readings.absent:
        rows.append(CapabilityRow(f"GPU {index}", "any", "lost", f"it does not answer: {why}", "reboot or reset it"))
    for kind, label in (("cpu", "CPU packages"), ("dram", "memory")):
        cap = readings.host.caps.get(kind, Capability("unknown", "not read yet"))
        why = cap.why if cap.support == "yes" else f"{cap.why}; estimated ({readings.host.source})"
        rows.append(CapabilityRow("host", label, cap.support, why, cap.fix))
    return tuple(rows)


def _gpu(reading: Reading) -> list[CapabilityRow]:
    device = f"{reading.label} {reading.name}" + (" (simulated)" if reading.simulated else "")
    rows = []
    for key, label in ASPECTS.items():
        cap = reading.caps.get(key, Capability("unknown", "not read yet"))
        if key == "limit":
            cap = reading.caps.get("power_limit", cap)
        why = cap.why
        if key == "limit" and cap.support == "yes" and reading.limit_w is not None:
            why = f"{cap.why}, now {reading.limit_w:.0f} W"
        if key == "limit" and reading.foreign_pids:
            pids = ", ".join(str(pid) for pid in reading.foreign_pids[:3])
            why = f"{why}; left alone while other processes use it (pid {pids})"
        rows.append(CapabilityRow(device, label, cap.support, why, cap.fix))
    return rows
