"""Watts of CPU packages and memory: RAPL where it is readable, a labelled estimate elsewhere.

Each RAPL zone has a microjoule counter that wraps at max_energy_range_uj (Linux powercap documentation). Packages are
added up, dram zones likewise; psys contains the packages and is never added. Since CVE-2020-8694 the counters are
readable only by root; the fix is printed, never run.

The estimate: CPU_W_PER_THREAD per logical CPU of ours at full load, a tenth of it when idle, in between by utilisation
(/proc/stat); memory DIMM_W per assumed 32 GB module. Thermal design powers of current parts lie between 2.2 (server)
and 8 (desktop) watts per thread: right to an order of magnitude, and labelled so.
"""

import contextlib
import math
import os
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from msgspec import structs

from carbontui.power.messages import Capability, HostReading, How, MeterVerdict, Sample
from carbontui.power.metering.shares import IDLE_CPU, CpuTime
from carbontui.power.metering.witness import STILL_S, mirrored
from carbontui.text import figures

CPU_W_PER_THREAD = 4.0
DIMM_W = 5.0
DIMM_B = 32 * 2**30
SOON_S = 0.2
"""Over less than this, clock ticks of 10 ms say nothing about utilisation."""
ZONE_MAX_W = 2000.0
"""More than any package draws over a second."""
RAPL_ROOT = Path("/sys/class/powercap")
FIX = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"


class RaplZone:
    """One RAPL counter, in microjoules."""

    def __init__(self, path: Path, kind: str, wrap_uj: int, name: str = "") -> None:
        self.path, self.kind, self.wrap_uj, self.name = path, kind, wrap_uj, name or kind
        self.total_uj = 0
        self.last_uj = self.before_uj = self.read()
        self.still_s = 0.0
        """How long it has not moved."""

    def read(self) -> int:
        return int(self.path.read_text())

    def advance(self, dt_s: float | None) -> bool:
        """Add the count of the last `dt_s` seconds, unwrapped; False if that is not an energy: the counter was reset
        (by a suspend), and what it counted until then is not known."""
        now = self.read()
        delta = now - self.last_uj + (self.wrap_uj if now < self.last_uj else 0)
        self.before_uj, self.last_uj = self.last_uj, now
        self.still_s = 0.0 if delta else self.still_s + (dt_s or 0.0)
        if dt_s is not None and delta > ZONE_MAX_W * (dt_s + SOON_S) * 1e6:
            return False
        self.total_uj += delta
        return True


def find_zones(root: Path) -> tuple[list[RaplZone], str]:
    """Package and dram zones if all of the kind are readable, and why there are none.

    AMD's packages are there too since Linux 5.8."""
    zones: list[RaplZone] = []
    broken: set[str] = set()
    why = "no RAPL on this machine"
    if not root.is_dir():
        return zones, why
    for path in sorted(root.glob("intel-rapl:*")):
        kind = ""
        try:
            name = (path / "name").read_text().strip()
            kind = "cpu" if name.startswith("package") else "dram" if name == "dram" else ""
            if kind:
                wrap_uj = int((path / "max_energy_range_uj").read_text())
                zones.append(RaplZone(path / "energy_uj", kind, wrap_uj, name))
        except PermissionError:
            why = f"{path / 'energy_uj'} is readable by root only (CVE-2020-8694)"
            broken.add(kind)
        except (OSError, ValueError):
            broken.add(kind)
    # a subset of readable packages is not the whole machine
    return [zone for zone in zones if zone.kind not in broken], why


def twins(zones: list[RaplZone]) -> list[RaplZone]:
    """Those that show the counter of another one before them."""
    pairs = (pair for pair in combinations(zones, 2) if pair[0].kind == pair[1].kind)
    stood = ((b, mirrored((a.before_uj, a.last_uj), (b.before_uj, b.last_uj))) for a, b in pairs)
    return list(dict.fromkeys(zone for zone, same in stood if same))


class Host:
    """CPU and memory of this machine; `sample` never raises."""

    def __init__(self, root: Path = RAPL_ROOT, stat: Path = Path("/proc/stat")) -> None:
        self._zones, self._why = find_zones(root)
        self._stat = stat
        self._cpus = [f"cpu{number}" for number in sorted(os.sched_getaffinity(0))]
        self.threads = os.cpu_count() or 1
        """Of the machine."""
        self._busy = self._ours(self._ticks())
        self.cpu_time = CpuTime(self._machine_ticks)
        self._at: float | None = None
        self._last_uj: dict[str, int] = {}
        self._last_w: dict[str, float | None] = {}
        self._reading: HostReading | None = None
        self._refused: tuple[MeterVerdict, ...] = ()
        self.whole_w: float | None = None
        """CPU and memory of the machine, at the last sample."""
        self._dimm_w = DIMM_W * max(1, math.ceil(_memory_b() / DIMM_B))

    def sample(
        self, mono_s: float, wall_s: float, own: tuple[int, ...] | None = None
    ) -> tuple[tuple[Sample, ...], HostReading]:
        """Samples "cpu" and "dram" for the meter, and the watts since the last call; if too soon, the last ones again.

        With the processes `own` of a job both are the job's share (unknown at first): CPU by CPU time, memory equally
        among all jobs.
        """
        if self._reading is not None and self._at is not None and mono_s - self._at < SOON_S:
            return (), self._reading
        dt = None if self._at is None else mono_s - self._at
        # where the packages cannot be read, only our own threads are counted
        allotted = len(self._cpus) / self.threads if self._zones else 1.0
        part = self.cpu_time.part(own, mono_s, min(1.0, allotted))
        share = {"cpu": part.share, "dram": None if part.share is None else part.nobodys}
        failed: set[str] = set()
        set_back: set[str] = set()
        for zone in self._zones:
            try:
                if not zone.advance(dt):
                    set_back.add(zone.kind)
                if zone.still_s >= STILL_S:
                    failed.add(zone.kind)
                    self._refuse(zone, "it stands still, which no package does")
            except (OSError, ValueError) as error:
                failed.add(zone.kind)
                self._refuse(zone, f"it cannot be read ({type(error).__name__})")
        for copy in twins(self._zones):
            self._zones.remove(copy)
            self._refuse(copy, "it is another one's counter under a second name: counted once")
        # a sum that lacks a part would be wrong: estimate from here on
        self._zones = [zone for zone in self._zones if zone.kind not in failed]
        totals: dict[str, int] = {}
        for zone in self._zones:
            totals[zone.kind] = totals.get(zone.kind, 0) + zone.total_uj
        standing = {zone.kind for zone in self._zones if zone.still_s}
        self._at = mono_s
        samples: list[Sample] = []
        watts: dict[str, float | None] = {}
        rules: list[str] = []
        caps: dict[str, Capability] = {}
        for kind, share_of in share.items():
            sample = Sample(uuid=kind, mono_s=mono_s, wall_s=wall_s, share=share_of)
            if kind in totals:
                last = self._last_uj.get(kind)
                self._last_uj[kind] = totals[kind]
                if kind not in set_back:
                    self._last_w[kind] = (totals[kind] - last) / 1e6 / dt if last is not None and dt else None
                watts[kind] = self._last_w.get(kind)
                energy = None if kind in set_back else totals[kind]
                sample = structs.replace(sample, energy_uj=energy, power_w=watts[kind])
                caps[kind] = Capability("yes", "RAPL energy counter")
                rules.append(f"{kind}: RAPL, the whole machine")
                if kind in standing:
                    continue  # it is booked once it moves, or estimated
            else:
                watts[kind] = self._cpu_w() if kind == "cpu" else self._dimm_w
                sample = structs.replace(sample, how="estimated", power_w=watts[kind], kind="model")
                caps[kind] = self._why_estimated(kind, anything=bool(totals))
                by_threads = f"{CPU_W_PER_THREAD:g} W per thread by utilisation of {self._whose()}"
                rules.append(f"cpu: {by_threads}" if kind == "cpu" else f"dram: {DIMM_W:g} W per 32 GB of the machine")
            samples.append(sample)
        how: How = "measured" if "cpu" in totals else "estimated"
        own_w: dict[str, float | None] = dict.fromkeys(watts) if own is not None else watts
        idle_w: float | None = None
        if part.share is not None:
            many = f"{part.jobs} {'job' if part.jobs == 1 else 'jobs'}"
            rules.append(f"the job's part: {figures.percent(part.share)} by CPU time, {many} here")
            own_w = {kind: None if w is None else w * (share[kind] or 0.0) for kind, w in watts.items()}
            if watts["cpu"] is not None:
                idle_w = watts["cpu"] * part.idle + (own_w["dram"] or 0.0)
        self.whole_w = None if watts["cpu"] is None else watts["cpu"] + (watts["dram"] or 0.0)
        read = [MeterVerdict(f"RAPL {zone.name}", "package", "believed") for zone in self._zones]
        models = [MeterVerdict(f"{kind} model", "node", "doubted", "estimated") for kind in caps if kind not in totals]
        witnesses = (*read, *models, *self._refused)
        about = (how, "; ".join(rules), caps, part.jobs, idle_w)
        self._reading = HostReading(own_w["cpu"], own_w["dram"], *about, witnesses=witnesses)
        return tuple(samples), self._reading

    def _refuse(self, zone: RaplZone, why: str) -> None:
        self._refused += (MeterVerdict(f"RAPL {zone.name}", "package", "refused", why),)

    def _why_estimated(self, kind: str, *, anything: bool) -> Capability:
        if kind == "cpu" and "root" in self._why:
            return Capability("no_permission", f"no readable {kind} counter" if anything else self._why, FIX)
        return Capability("not_supported", f"no readable {kind} counter" if anything else self._why)

    def _whose(self) -> str:
        """Names the threads whose utilisation counts, because other programs on them are included."""
        count = len(self._cpus)
        return "the whole machine" if count == self.threads else f"the {count} threads this job may use"

    def _cpu_w(self) -> float:
        before, self._busy = self._busy, self._ours(self._ticks())
        busy = total = 0
        for cpu, (used, all_) in self._busy.items():
            was_used, was_all = before.get(cpu, (used, all_))
            busy, total = busy + used - was_used, total + all_ - was_all
        share = min(1.0, max(0.0, busy / total)) if total > 0 else 0.0
        return CPU_W_PER_THREAD * len(self._busy) * (IDLE_CPU + (1.0 - IDLE_CPU) * share)

    def _machine_ticks(self) -> tuple[int, int]:
        """All and busy ticks of the CPUs that the watts refer to: the machine's packages, or our threads."""
        ticks = self._ticks()
        counted = [ticks.get("cpu", (0, 0))] if self._zones else self._ours(ticks).values()
        return sum(all_ for _, all_ in counted), sum(busy for busy, _ in counted)

    def _ours(self, ticks: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Of the CPUs that we may run on."""
        return {cpu: ticks[cpu] for cpu in self._cpus if cpu in ticks}

    def _ticks(self) -> dict[str, tuple[int, int]]:
        """Busy and all clock ticks of "cpu", the whole machine, and of every "cpuN"."""
        found = {}
        with contextlib.suppress(OSError, ValueError):
            for line in self._stat.read_text().splitlines():
                head, *fields = line.split()
                if not head.startswith("cpu"):
                    break
                numbers = [int(field) for field in fields[:8]]
                # idle, waiting for a disk, and stolen by other guests of the machine is not busy (proc(5))
                found[head] = (sum(numbers[:3]) + sum(numbers[5:7]), sum(numbers))
        return found


def _memory_b() -> int:
    with contextlib.suppress(ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0
