"""The interface between the agent and any kind of device, and the simulated kind.

A backend never raises for a device that misbehaves: a field that could not be read is None with its NVML error code
beside it. Limits are whole milliwatts, as the driver keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, structs

from carbontui.power import simulated
from carbontui.power.messages import Capability, PowerKind
from carbontui.power.simulated import SimulatedSpec, SimulatedState

NOT_SUPPORTED = 3
NO_PERMISSION = 4
GPU_IS_LOST = 15
REASON_POWER_CAP = 0x4


class DeviceInfo(Struct, frozen=True, kw_only=True):
    """Properties that do not change while the driver is loaded. Limits in milliwatts, None if the board has none."""

    uuid: str
    name: str
    index: int
    simulated: bool = False
    limit_min_mw: int | None = None
    limit_max_mw: int | None = None
    limit_default_mw: int | None = None
    memory_total_b: int | None = None
    clock_max_mhz: int | None = None
    """Set if clocks can be locked."""
    mig: bool = False
    mig_uuids: tuple[str, ...] = ()
    persistence: bool | None = None


class Look(Struct, frozen=True, kw_only=True):
    """One reading of one device; a None field has its reason in `errors` (NVML code) or `doubts` (text)."""

    energy_uj: int | None = None
    power_w: float | None = None
    kind: PowerKind | None = None
    limit_mw: int | None = None
    sm_mhz: float | None = None
    util: float | None = None
    memory_used_b: int | None = None
    temp_c: float | None = None
    reasons: int | None = None
    errors: tuple[tuple[str, int], ...] = ()
    doubts: tuple[tuple[str, str], ...] = ()
    """Implausible values reported by the driver (`plausible`)."""
    lost: bool = False

    def why(self) -> dict[str, str]:
        """Field to reason, as text, for everything that could not be read or is implausible."""
        return {field: words(code) for field, code in self.errors} | dict(self.doubts)


class DeviceError(Exception):
    """A call the driver refused: `code` is NVML's number, the text explains it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Backend(Protocol):
    """A family of devices, opened once per agent."""

    name: str
    driver: str

    def open(self) -> None:
        """Raises DeviceError if the family is not available; may be called again later."""

    def devices(self) -> tuple[DeviceInfo, ...]: ...

    def look(self, uuid: str) -> Look:
        """The board's present reading, without implausible values (`plausible.judged`)."""

    def limit_mw(self, uuid: str) -> int:
        """The limit in force. Raises DeviceError."""

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        """Raises DeviceError."""

    def lock_clocks(self, uuid: str, mhz: int | None) -> None:
        """Keep the clock at or below `mhz`; None lifts the lock. A lock cannot be read. Raises DeviceError."""

    def processes(self, uuid: str) -> dict[int, int]:
        """Compute processes and the bytes each holds. Raises DeviceError."""

    def kernels(self, uuid: str) -> dict[int, float]:
        """How much each process has run there since the last call, in any one unit. Raises DeviceError."""

    def close(self) -> None: ...


class SimulatedBackend:
    """Boards of `carbontui.power.simulated`, advanced by the clock that is handed in."""

    name = "simulated"
    driver = "simulated"

    def __init__(self, spec: SimulatedSpec, clock: Callable[[], float]) -> None:
        self.spec = spec
        self._clock = clock
        self._at = clock()
        self._boards: dict[str, SimulatedState] = {
            f"GPU-simulated-{i}": simulated.fresh(spec) for i in range(spec.count)
        }

    def open(self) -> None:
        self._at = self._clock()

    def devices(self) -> tuple[DeviceInfo, ...]:
        spec = self.spec
        return tuple(
            DeviceInfo(
                uuid=uuid,
                name=spec.name,
                index=index,
                simulated=True,
                limit_min_mw=round(spec.limit_min_w * 1000),
                limit_max_mw=round(spec.limit_max_w * 1000),
                limit_default_mw=round(spec.limit_max_w * 1000),
                memory_total_b=spec.memory_b,
            )
            for index, uuid in enumerate(self._boards)
        )

    def drive(self, activity: float | None, duty: float) -> None:
        """Set the child's activity from now on."""
        self._advance()
        for uuid, board in self._boards.items():
            self._boards[uuid] = structs.replace(board, activity=activity, duty=duty)

    def look(self, uuid: str) -> Look:
        self._advance()
        spec, board = self.spec, self._boards[uuid]
        busy = (board.activity or 0.0) * board.duty
        x = spec.clock_share(board.limit_w)
        return Look(
            energy_uj=round(board.energy_uj),
            power_w=round(board.power_w, 3),
            kind="instant",
            limit_mw=round(board.limit_w * 1000),
            sm_mhz=spec.clock_mhz * (x if busy > 0 else 0.17),
            util=busy,
            memory_used_b=0 if board.activity is None else spec.model_b,
            temp_c=round(board.temp_c, 1),
            reasons=REASON_POWER_CAP if busy > 0 and x < 1 else 0,
        )

    def limit_mw(self, uuid: str) -> int:
        return round(self._boards[uuid].limit_w * 1000)

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        self._advance()
        self._boards[uuid] = structs.replace(self._boards[uuid], limit_w=milliwatts / 1000)

    def lock_clocks(self, uuid: str, mhz: int | None) -> None:
        raise DeviceError(NOT_SUPPORTED, "not modelled")

    def processes(self, uuid: str) -> dict[int, int]:
        return {}

    def kernels(self, uuid: str) -> dict[int, float]:
        return {}

    def close(self) -> None:
        pass

    def _advance(self) -> None:
        now = self._clock()
        for uuid, board in self._boards.items():
            self._boards[uuid] = simulated.advance(self.spec, board, now - self._at)
        self._at = now


class NoBackend:
    """No GPU at all: the host is still measured or estimated."""

    name = "none"
    driver = ""

    def open(self) -> None:
        pass

    def devices(self) -> tuple[DeviceInfo, ...]:
        return ()

    def look(self, uuid: str) -> Look:
        raise KeyError(uuid)

    def limit_mw(self, uuid: str) -> int:
        raise DeviceError(NOT_SUPPORTED, "no GPU")

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        raise DeviceError(NOT_SUPPORTED, "no GPU")

    def lock_clocks(self, uuid: str, mhz: int | None) -> None:
        raise DeviceError(NOT_SUPPORTED, "no GPU")

    def processes(self, uuid: str) -> dict[int, int]:
        return {}

    def kernels(self, uuid: str) -> dict[int, float]:
        return {}

    def close(self) -> None:
        pass


def measure_caps(look: Look) -> dict[str, Capability]:
    """What the first look shows about measuring: read from the device, never inferred from its architecture."""
    why = look.why()
    if look.lost:
        lost = Capability(
            "lost", "the GPU fell off the bus", "reset the GPU or reboot; it is looked for every few seconds"
        )
        return {"energy": lost, "power": lost, "limit": lost}
    caps: dict[str, Capability] = {}
    if look.energy_uj is not None:
        caps["energy"] = Capability("yes", "energy counter of the board")
    else:
        # tests/bench/results/power.md: bursts in phase with a sensor that is on 25 of each 100 ms, and drifting ones
        rough = ""
        if look.kind == "instant":
            rough = " from moments: with steps under 0.3 s perhaps 20 % off and more, with slower ones 4 %"
        reason = why.get("energy_uj", words(None))
        instead = f"power is integrated{rough}" if look.power_w is not None else "nothing is counted without watts"
        caps["energy"] = Capability("not_supported", f"no energy counter ({reason}): {instead}")
    if look.power_w is not None:
        kinds = {
            "avg1s": "1 s average",
            "instant": "instantaneous",
            "module": "whole module, CPU included",
            "unspecified": "as the driver gives it",
            "model": "modelled",
        }
        caps["power"] = Capability("yes", kinds[look.kind or "unspecified"])
    else:
        caps["power"] = Capability("not_supported", f"no power reading ({why.get('power_w', words(None))})")
    return caps


def words(code: int | None) -> str:
    """NVML's error numbers as text."""
    table = {
        1: "NVML is not initialised",
        2: "invalid argument",
        NOT_SUPPORTED: "not supported by this GPU or driver",
        NO_PERMISSION: "no permission",
        9: "the NVIDIA driver is not loaded",
        10: "the driver timed out",
        12: "no NVIDIA driver library on this machine",
        13: "this driver is too old for that call",
        GPU_IS_LOST: "the GPU is lost",
        16: "the GPU needs a reset",
        18: "driver and library versions differ: the driver was upgraded, reboot or reload it",
        999: "unknown driver error",
    }
    return "not asked" if code is None else table.get(code, f"NVML error {code}")
