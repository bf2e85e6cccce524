"""The interface between the agent and any kind of device, and which of its readings are plausible.

A backend never raises for a device that misbehaves: a field that could not be read is None with its NVML error code
beside it. Limits are whole milliwatts, as the driver keeps them.
"""

import random
from collections.abc import Mapping

from msgspec import Struct, structs

from carbontui.power.messages import Capability, PowerKind
from carbontui.text import boards, figures

TIMEOUT, NO_LIBRARY, NO_FUNCTION = 10, 12, 13
NOT_LOADED = 9
NOT_SUPPORTED = 3
NO_PERMISSION = 4
GPU_IS_LOST = 15
UNINITIALIZED, INVALID, UNKNOWN = 1, 2, 999
REFUSED = 1001
"""capd's own, beside NVML's: processes of other users are on the board."""
HELD = 1002
"""Another caller holds the board's limit."""
NOT_YET = 1004
"""No process of the caller uses the board."""


REASON_POWER_CAP = 0x4


class DeviceInfo(Struct, frozen=True, kw_only=True):
    """Properties that do not change while the driver is loaded. Limits in milliwatts, None if the board has none."""

    uuid: str
    name: str
    index: int
    maker: str = "nvidia"
    """Whose words and commands it has (`text.boards`)."""
    address: str = ""
    """What the maker's tool calls it, if not by its UUID."""
    simulated: bool = False
    dies: tuple[str, ...] = ()
    """UUIDs of all dies or partitions that share its watts and its limit, where there are several."""
    ordinals: tuple[int, ...] = ()
    """The numbers by which programs choose them, in the same order; () where the maker's tool and CUDA decide."""
    limit_min_mw: int | None = None
    limit_max_mw: int | None = None
    limit_default_mw: int | None = None
    memory_total_b: int | None = None
    clock_max_mhz: int | None = None
    """Set if clocks can be locked."""
    mig: bool = False
    mig_uuids: tuple[str, ...] = ()
    mig_sizes: tuple[int, ...] = ()
    """The compute slices of each of these instances."""


class RawReading(Struct, frozen=True, kw_only=True):
    """One reading of one device; a None field has its reason in `errors` (NVML code) or `doubts` (text)."""

    energy_uj: int | None = None
    power_w: float | None = None
    kind: PowerKind | None = None
    limit_mw: int | None = None
    enforced_mw: int | None = None
    """The limit that is really held, if the driver tells it apart: a platform may hold a lower one."""
    sm_mhz: float | None = None
    util: float | None = None
    memory_used_b: int | None = None
    temp_c: float | None = None
    reasons: int | None = None
    errors: tuple[tuple[str, int], ...] = ()
    doubts: tuple[tuple[str, str], ...] = ()
    """Implausible values reported by the driver (`plausible`)."""
    lost: bool = False

    def why(self, maker: str = "nvidia") -> dict[str, str]:
        """Field to reason, as text, for everything that could not be read or is implausible."""
        return {field: boards.driver(code, maker) for field, code in self.errors} | dict(self.doubts)


class DeviceError(Exception):
    """A call the driver refused: `code` is NVML's number, the text explains it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Backend:
    """A family of devices, opened once per agent; by itself one without any board, whose host is still measured.

    All members have defaults: a family implements what it has.
    """

    name: str = "none"
    troubles: tuple[str, ...] = ()
    """Families among several that could not be opened, as text."""

    @property
    def driver(self) -> str:
        return ""

    @property
    def absent(self) -> tuple[tuple[int, str], ...]:
        """Boards the driver counts but does not expose: number, and why."""
        return ()

    @property
    def broken(self) -> bool:
        """The driver was reloaded: reopen."""
        return False

    @property
    def incomplete(self) -> bool:
        """Boards are missing, and it is time to reopen in case they are back; not while limits are set."""
        return False

    @property
    def through(self) -> str:
        """Which service sets limits for us; "" if the driver lets us set them."""
        return ""

    @property
    def away(self) -> bool:
        """That service is gone. It restores our limits at its end or once it is back: not a change from outside."""
        return False

    @property
    def stands_alone(self) -> bool:
        """No driver shows a board: boards named by processes then match none of these."""
        return False

    def open(self) -> None:
        """Raises DeviceError if the family is not available; may be called again later."""

    def devices(self) -> tuple[DeviceInfo, ...]:
        return ()

    def sample(self, uuid: str) -> RawReading:
        """The board's present reading, without implausible values (`checked`)."""
        raise KeyError(uuid)

    def setter(self, uuid: str) -> str | None:
        """Which service would set limits for us, "" for the driver itself; None: nobody here may. Nothing is set."""
        return ""

    def limit_mw(self, uuid: str) -> int:
        """The limit in force. Raises DeviceError."""
        raise DeviceError(NOT_SUPPORTED, "no driver shows this GPU")

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        """Raises DeviceError."""
        raise DeviceError(NOT_SUPPORTED, "no driver shows this GPU")

    def lock_clocks(self, uuid: str, mhz: int | None) -> None:
        """Keep the clock at or below `mhz`; None lifts the lock. A lock cannot be read. Raises DeviceError."""
        raise DeviceError(NOT_SUPPORTED, "no clock of this GPU can be locked")

    def processes(self, uuid: str) -> dict[int, int]:
        """Compute processes and the bytes each holds. Raises DeviceError."""
        return {}

    def everyone(self, uuid: str) -> tuple[int, ...]:
        """Pids of all processes of any kind. Raises DeviceError if the driver does not report them."""
        return ()

    def kernels(self, uuid: str) -> dict[int, float]:
        """How much each process has run there since the last call, in any one unit. Raises DeviceError."""
        return {}

    def drive(self, activity: float | None, duty: float) -> None:
        """Set the child's activity from now on, on boards that are not read."""

    def beat(self) -> bool:
        """Send a heartbeat to the service that sets limits; True when it is back after having been gone."""
        return False

    def close(self) -> None:
        """Let go of the driver."""


def measure_caps(raw: RawReading, maker: str = "nvidia") -> dict[str, Capability]:
    """What the first look shows about measuring: read from the device, never inferred from its architecture."""
    why = raw.why(maker)
    if raw.lost:
        lost = Capability(
            "lost", "the GPU fell off the bus", "reset the GPU or reboot; it is looked for every few seconds"
        )
        return {"energy": lost, "power": lost, "limit": lost}
    caps: dict[str, Capability] = {}
    if raw.energy_uj is not None:
        caps["energy"] = Capability("yes", "energy counter of the GPU")
    else:
        # tests/bench/results/power.md: bursts in phase with a sensor that is on 25 of each 100 ms, and drifting ones
        rough = ""
        if raw.kind == "instant":
            rough = " from moments: with steps under 0.3 s perhaps 20 % off and more, with slower ones 4 %"
        reason = why.get("energy_uj", boards.driver(None))
        instead = f"power is integrated{rough}" if raw.power_w is not None else "nothing is counted without watts"
        caps["energy"] = Capability("not_supported", f"no energy counter ({reason}): {instead}")
    if raw.power_w is not None:
        kinds = {
            "avg1s": "1 s average",
            "instant": "instantaneous",
            "module": "whole module, CPU included",
            "unspecified": "as the driver gives it",
            "model": "modelled",
        }
        caps["power"] = Capability("yes", kinds[raw.kind or "unspecified"])
    else:
        caps["power"] = Capability("not_supported", f"no power reading ({why.get('power_w', boards.driver(None))})")
    return caps


SLOW_S, FAST_S = 1.0, 0.1
"""Between two looks; fast for moments of which joules are made, and while calibrating."""
IRREGULAR = (0.75, 1.25)
"""Where nobody says over which time watts are taken, looks are irregular: no load stays in step with them."""


def period_s(raw_readings: Mapping[str, RawReading], fast: bool) -> float:
    """How long until boards that look so are looked at again."""
    if fast or any(raw.energy_uj is None and raw.kind == "instant" for raw in raw_readings.values()):
        return FAST_S
    drifting = any(raw.kind == "unspecified" for raw in raw_readings.values())
    return SLOW_S * random.uniform(*IRREGULAR) if drifting else SLOW_S


LOWEST_W = 0.5
"""No powered board draws less: the smallest mobile parts idle at 1..2 W while a driver holds them open."""
EXCESS: dict[PowerKind, float] = {"avg1s": 1.15, "instant": 1.5, "unspecified": 1.5, "module": 2.0, "model": 1.5}
"""Highest plausible reading as a multiple of the highest limit. Boards overshoot for milliseconds, of which a 1 s
average shows a few percent, beside the sensor's 5; a module's watts include its CPU, which the limit does not cover."""
MAX_LIMIT_W = 1500.0
"""Highest limit assumed for a board that names none; the largest of 2025 take 1,200 W (NVIDIA GB200)."""
LIMIT_SLACK = 1.5
"""A limit in force may lie outside the settable range, in laptops for instance, but not by this factor."""
HOTTEST_C = 150.0


def checked(info: DeviceInfo, raw: RawReading) -> RawReading:
    """`raw` without fields that are implausible for this board; the reasons are in `doubts`, as (field, text)."""
    doubts: list[tuple[str, str]] = []
    top_mhz, memory_b = info.clock_max_mhz, info.memory_total_b
    if raw.power_w is not None and (why := _power_doubt(info, raw.power_w, raw.kind)):
        doubts.append(("power_w", why))
    if raw.limit_mw is not None and (why := limit_doubt(info, raw.limit_mw)):
        doubts.append(("limit_w", why))
    if raw.util is not None and not 0 <= raw.util <= 1:
        doubts.append(("util", f"the driver reports {figures.percent(raw.util)}"))
    if raw.temp_c is not None and not 0 <= raw.temp_c <= HOTTEST_C:
        doubts.append(("temp_c", f"the driver reports {raw.temp_c:.0f} °C"))
    if raw.sm_mhz is not None and top_mhz and not 0 <= raw.sm_mhz <= 2 * top_mhz:
        doubts.append(("sm_mhz", f"the driver reports {raw.sm_mhz:.0f} MHz, the GPU's clock ends at {top_mhz} MHz"))
    if raw.memory_used_b is not None and memory_b and raw.memory_used_b > memory_b:
        doubts.append(("memory_used_b", "the driver reports more memory in use than the GPU has"))
    if not doubts:
        return raw
    unknown = {"limit_mw" if field == "limit_w" else field: None for field, _ in doubts}
    return structs.replace(raw, doubts=tuple(doubts), **unknown)


def limit_doubt(info: DeviceInfo, limit_mw: int) -> str:
    """Why this cannot be the board's limit; "" if it can."""
    low, high = info.limit_min_mw or 0, info.limit_max_mw or MAX_LIMIT_W * 1000
    if limit_mw > 0 and low / LIMIT_SLACK <= limit_mw <= high * LIMIT_SLACK:
        return ""
    return f"the driver reports a limit of {limit_mw / 1000:.0f} W, the GPU takes {low / 1000:.0f}-{high / 1000:.0f} W"


def _power_doubt(info: DeviceInfo, power_w: float, kind: PowerKind | None) -> str:
    if power_w < LOWEST_W:
        return f"the driver reports {power_w:.0f} W, which no powered GPU draws"
    top_w = info.limit_max_mw / 1000 if info.limit_max_mw else MAX_LIMIT_W
    if power_w > EXCESS[kind or "unspecified"] * top_w:
        return f"the driver reports {power_w:.0f} W, more than a GPU of {top_w:.0f} W can draw"
    return ""
