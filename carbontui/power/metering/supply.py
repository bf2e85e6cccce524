"""Watts at the machine's own supply, where a file or a command gives them, and what they leave besides boards, CPU and
memory.

An ACPI power meter is a hwmon device named `power_meter` (Linux acpi_power_meter documentation: power1_average in
microwatts); a management controller answers `ipmitool dcmi power reading` (IPMI DCMI 1.5), mostly to root alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

from msgspec import structs

from carbontui.power.messages import HostReading
from carbontui.power.metering import witness
from carbontui.power.metering.witness import Parts, SameSeconds
from carbontui.system import bounded_command

HWMON = Path("/sys/class/hwmon")
PCI = Path("/sys/bus/pci/devices")
ACCELERATORS = (("0x10de", "0x03"), ("0x1002", "0x0380"), ("0x1002", "0x1200"))
"""PCI vendor and class of what drivers show as boards: NVIDIA's displays and 3D controllers, AMD's without a screen."""
IPMI = ("ipmitool", "dcmi", "power", "reading")
IPMI_DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
IPMI_S, IPMI_WITHIN_S = 15.0, 10.0
"""How often the controller is asked, and how long it may take."""


def acpi_meter(root: Path) -> Path | None:
    """The file of an ACPI power meter; None without one."""
    for folder in sorted(root.glob("hwmon*")):
        try:
            if (folder / "name").read_text().strip() == "power_meter":
                names = (folder / "power1_average", folder / "power1_input")
                return next(file for file in names if file.exists() and int(file.read_text()) > 0)
        except (OSError, ValueError, StopIteration):
            continue
    return None


def dcmi_w(said: str) -> tuple[float | None, str]:
    """The watts that `ipmitool dcmi power reading` prints, or why it has none."""
    found = re.search(r"Instantaneous power reading:\s*(\d+) Watts", said)
    state = re.search(r"Power reading state is:\s*(\S+)", said)
    if state is not None and state[1].lower() != "activated":
        return None, f"the controller's power reading is {state[1]}"
    return (float(found[1]), "") if found and float(found[1]) > 0 else (None, "the controller names no watts")


def boards_present(root: Path = PCI) -> int:
    """How many GPUs the machine has, whatever a driver shows to us: PCI devices are seen in a job's cgroup and in a
    container too."""
    count = 0
    for folder in root.glob("*"):
        try:
            vendor, kind = ((folder / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        count += any(vendor == maker and kind.startswith(of) for maker, of in ACCELERATORS)
    return count


class Supply:
    """The machine's supply; `beside` never raises and never waits."""

    def __init__(self, root: Path = HWMON, pci: Path = PCI) -> None:
        self._file = acpi_meter(root)
        known = shutil.which(IPMI[0]) and any(map(os.path.exists, IPMI_DEVICES))
        self.by = "ACPI power meter" if self._file else "ipmitool dcmi" if known else ""
        """What gives the watts; '' if nothing does."""
        self._last: tuple[float | None, str, int] = (None, "not read yet", 0)
        self._present = boards_present(pci)
        self._same, self._taken = SameSeconds(), 0
        self._at_s: float | None = None
        if self.by and self._file is None:
            threading.Thread(target=self._ask, name="ipmi", daemon=True).start()

    def _read(self) -> tuple[float | None, str, int]:
        """The whole machine's watts or why there are none, and how many readings there have been."""
        if self._file is not None:
            try:
                self._last = int(self._file.read_text()) / 1e6, "", self._last[2] + 1
            except (OSError, ValueError) as error:
                self._last = None, f"it cannot be read ({type(error).__name__})", self._last[2]
        return self._last

    def beside(
        self, host: HostReading, whole_w: float | None, drawn_w: float | None, parts: Parts, mine: int, mono_s: float
    ) -> HostReading:
        """The reading with the job's part of what all of the machine's boards (`drawn_w`, `mine` of them allotted to
        the job), its CPU and its memory (`whole_w`) leave of the supply's watts, once they have been compared."""
        if not self.by:
            return host
        now_w, why, count = self._read()
        parts = parts._replace(hidden=max(0, self._present - parts.boards))
        new = count > self._taken and now_w is not None and not witness.impossible(now_w, parts)
        if new and now_w is not None and whole_w is not None and drawn_w is not None:
            dt_s = 0.0 if self._at_s is None else mono_s - self._at_s
            self._same, self._at_s, self._taken = self._same.add(now_w, drawn_w + whole_w, dt_s), mono_s, count
        made = witness.supply(self.by, now_w, why, self._same, parts)
        host = structs.replace(host, witnesses=(*host.witnesses, made))
        if made.verdict != "believed" or whole_w is None or drawn_w is None:
            return host
        share, rule = witness.allotted(mine, parts, len(os.sched_getaffinity(0)), host.jobs)
        left_w = max(0.0, self._same.supply_w - self._same.drawn_w)
        return structs.replace(host, beside_w=left_w * share, beside_by=f"{self.by}, {rule}")

    def _ask(self) -> None:
        """The thread that asks the controller, until it refuses."""
        while True:
            try:
                said = bounded_command.answer(IPMI, within_s=IPMI_WITHIN_S, most_b=1 << 16)
            except (OSError, OverflowError, subprocess.TimeoutExpired):
                said = None
            if said is None or said.returncode != 0:
                self._last = None, "the controller refuses", self._last[2]
                return
            self._last = *dcmi_w(said.stdout.decode(errors="replace")), self._last[2] + 1
            time.sleep(IPMI_S)
