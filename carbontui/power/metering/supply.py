"""Watts at the machine's own supply, where a file or a command gives them, and what they leave besides boards, CPU and
memory.

An ACPI power meter is a hwmon device named `power_meter` (Linux acpi_power_meter documentation: power1_average in
microwatts); a management controller answers `ipmitool dcmi power reading` (IPMI DCMI 1.5), mostly to root alone.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from carbontui.power.messages import HostReading
from carbontui.system import bounded_command

HWMON = Path("/sys/class/hwmon")
IPMI = ("ipmitool", "dcmi", "power", "reading")
IPMI_DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
IPMI_S, IPMI_WITHIN_S = 15.0, 10.0
"""How often the controller is asked, and how long it may take."""
FADE_S = 120.0
"""The supply's meter averages over other times than the boards' sensors do: their difference is a mean that forgets
with this time constant."""
WATTS_MOST = 1e5


def acpi_meter(root: Path) -> Path | None:
    """The file of an ACPI power meter that can be read; None without one."""
    for folder in sorted(root.glob("hwmon*")):
        try:
            if (folder / "name").read_text().strip() != "power_meter":
                continue
            for name in ("power1_average", "power1_input"):
                if (folder / name).exists() and int((folder / name).read_text()) > 0:
                    return folder / name
        except (OSError, ValueError):
            continue
    return None


def dcmi_w(said: str) -> float | None:
    """The watts that `ipmitool dcmi power reading` prints; None where it has none."""
    found = re.search(r"Instantaneous power reading:\s*(\d+) Watts", said)
    return float(found[1]) if found and float(found[1]) > 0 else None


class Supply:
    """The machine's supply; `beside` never raises and never waits."""

    def __init__(self, root: Path = HWMON) -> None:
        self._file = acpi_meter(root)
        known = shutil.which(IPMI[0]) and any(map(os.path.exists, IPMI_DEVICES))
        self._command: tuple[str, ...] = IPMI if self._file is None and known else ()
        self._last_w: float | None = None
        self._mean: tuple[float, float] | None = None
        if self._command:
            threading.Thread(target=self._ask, name="ipmi", daemon=True).start()

    @property
    def by(self) -> str:
        """What gives the watts; '' if nothing does."""
        return "ACPI power meter" if self._file else "ipmitool dcmi" if self._command else ""

    def watts(self) -> float | None:
        """The whole machine's, at its supply; None while not known."""
        if self._file is None:
            return self._last_w
        try:
            return int(self._file.read_text()) / 1e6
        except (OSError, ValueError):
            return None

    def beside(
        self, host: HostReading, whole_w: float | None, boards_w: Callable[[], float | None], mono_s: float
    ) -> HostReading:
        """The reading with the job's part of what all of the machine's boards, its CPU and its memory (`whole_w`) leave
        of the supply's watts."""
        if not self.by or whole_w is None or (supply_w := self.watts()) is None or (drawn_w := boards_w()) is None:
            return host
        now_w = max(0.0, min(WATTS_MOST, supply_w) - drawn_w - whole_w)
        if self._mean is not None:
            kept = math.exp(-(mono_s - self._mean[0]) / FADE_S)
            now_w += kept * (self._mean[1] - now_w)
        self._mean = mono_s, now_w
        return structs.replace(host, beside_w=now_w / max(1, host.jobs), beside_by=self.by)

    def _ask(self) -> None:
        """The thread that asks the controller, until it refuses."""
        while True:
            try:
                said = bounded_command.answer(self._command, within_s=IPMI_WITHIN_S, most_b=1 << 16)
            except (OSError, OverflowError, subprocess.TimeoutExpired):
                said = None
            self._last_w = dcmi_w(said.stdout.decode(errors="replace")) if said and said.returncode == 0 else None
            if self._last_w is None:
                self._command = ()
                return
            time.sleep(IPMI_S)
