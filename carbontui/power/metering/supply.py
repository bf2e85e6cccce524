"""Watts at the machine's own supply, where a file or a command gives them, and what they leave besides boards, CPU and
memory.

An ACPI power meter is a hwmon device named `power_meter` (Linux acpi_power_meter documentation: power1_average in
microwatts); a management controller answers `ipmitool dcmi power reading` (IPMI DCMI 1.5), mostly to root alone; what
else can ask it (Redfish, a metered PDU) is a command of the user's that prints watts. All that there are are read, and
compared.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import structs

from carbontui.power.messages import HostReading, MeterVerdict
from carbontui.power.metering import witness
from carbontui.power.metering.witness import Parts, SameSeconds
from carbontui.system import bounded_command

HWMON = Path("/sys/class/hwmon")
PCI = Path("/sys/bus/pci/devices")
ACCELERATORS = (("0x10de", "0x03"), ("0x1002", "0x0380"), ("0x1002", "0x1200"))
"""PCI vendor and class of what drivers show as boards: NVIDIA's displays and 3D controllers, AMD's without a screen."""
IPMI = ("ipmitool", "dcmi", "power", "reading")
IPMI_DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
COMMAND = "CARBONTUI_HOST_METER"
"""A command that prints the watts of the whole machine."""
IPMI_S, IPMI_WITHIN_S = 15.0, 10.0
"""How often the controller is asked, and how long it may take."""


def acpi_meter(root: Path) -> Path | None:
    """The file of an ACPI power meter; None without one."""
    for folder in sorted(root.glob("hwmon*")):
        with contextlib.suppress(OSError, ValueError, StopIteration):
            if (folder / "name").read_text().strip() == "power_meter":
                names = (folder / "power1_average", folder / "power1_input")
                return next(file for file in names if file.exists() and int(file.read_text()) > 0)
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
        with contextlib.suppress(OSError):
            vendor, kind = ((folder / name).read_text().strip() for name in ("vendor", "class"))
            count += any(vendor == maker and kind.startswith(of) for maker, of in ACCELERATORS)
    return count


def command_w(said: str) -> tuple[float | None, str]:
    """The first number that a user's command prints, as watts."""
    found = re.search(r"\d+(?:\.\d+)?", said)
    return (float(found[0]), "") if found and float(found[0]) > 0 else (None, "the command prints no watts")


class SupplyMeter:
    """One meter of a supply. A command is asked by a thread of its own, until it refuses; a file at each reading."""

    def __init__(self, by: str, command: Sequence[str] = (), file: Path | None = None) -> None:
        self.by, self._file, self._command = by, file, tuple(command)
        self._last: tuple[float | None, str, int] = (None, "not read yet", 0)
        self.same, self._taken = SameSeconds(), 0
        self._at_s: float | None = None
        if command:
            threading.Thread(target=self._ask, name="supply", daemon=True).start()

    def _read(self) -> tuple[float | None, str, int]:
        """The whole machine's watts or why there are none, and how many readings there have been."""
        if self._file is not None:
            try:
                self._last = int(self._file.read_text()) / 1e6, "", self._last[2] + 1
            except (OSError, ValueError) as error:
                self._last = None, f"it cannot be read ({type(error).__name__})", self._last[2]
        return self._last

    def _ask(self) -> None:
        read = dcmi_w if self._command == IPMI else command_w
        while True:
            try:
                said = bounded_command.answer(self._command, within_s=IPMI_WITHIN_S, most_b=1 << 16)
            except (OSError, OverflowError, subprocess.TimeoutExpired):
                said = None
            if said is None or said.returncode != 0:
                self._last = None, "the controller refuses", self._last[2]
                return
            self._last = *read(said.stdout.decode(errors="replace")), self._last[2] + 1
            time.sleep(IPMI_S)

    def verdict(self, parts_w: float | None, parts: Parts, mono_s: float) -> MeterVerdict:
        """Beside its parts, which have drawn `parts_w` (None: not known) by now."""
        now_w, why, count = self._read()
        if count > self._taken and now_w is not None and parts_w is not None and not witness.impossible(now_w, parts):
            dt_s = 0.0 if self._at_s is None else mono_s - self._at_s
            self.same, self._at_s, self._taken = self.same.add(now_w, parts_w, dt_s), mono_s, count
        return witness.supply(self.by, now_w, why, self.same, parts)


class Supply:
    """The machine's supply; `beside` never raises and never waits."""

    def __init__(self, root: Path = HWMON, pci: Path = PCI, environment: Mapping[str, str] = os.environ) -> None:
        self._meters = [SupplyMeter("ACPI power meter", file=file)] if (file := acpi_meter(root)) else []
        if shutil.which(IPMI[0]) and any(map(os.path.exists, IPMI_DEVICES)):
            self._meters.append(SupplyMeter("ipmitool dcmi", IPMI))
        if words := shlex.split(environment.get(COMMAND, "")):
            self._meters.append(SupplyMeter(Path(words[0]).name, words))
        self.by = ", ".join(meter.by for meter in self._meters)
        """What gives the watts; '' if nothing does."""
        self._present = boards_present(pci)

    def beside(
        self, host: HostReading, whole_w: float | None, drawn_w: float | None, parts: Parts, mine: int, mono_s: float
    ) -> HostReading:
        """The reading with the job's part of what all of the machine's boards (`drawn_w`, `mine` of them allotted to
        the job), its CPU and its memory (`whole_w`) leave of the supply's watts, once they have been compared."""
        parts = parts._replace(hidden=max(0, self._present - parts.boards))
        parts_w = None if whole_w is None or drawn_w is None else drawn_w + whole_w
        made = witness.agreed([(m.verdict(parts_w, parts, mono_s), m.same.supply_w) for m in self._meters])
        host = structs.replace(host, witnesses=(*host.witnesses, *made))
        believed = [m for m, verdict in zip(self._meters, made, strict=True) if verdict.verdict == "believed"]
        if not believed or parts_w is None:
            return host
        share, rule = witness.allotted(mine, parts, len(os.sched_getaffinity(0)), host.jobs)
        left_w = max(0.0, believed[0].same.supply_w - believed[0].same.drawn_w)
        return structs.replace(host, beside_w=left_w * share, beside_by=f"{believed[0].by}, {rule}")
