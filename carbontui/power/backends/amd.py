"""AMD GPUs through amdsmi (the extra `carbontui[amd]`, or ROCm's own). Imported only by the agent, and only here.

Importing amdsmi may raise anything where ROCm is absent or of another version, and prints: then there are no boards.
Every field may be missing, or the text "N/A"; every function may be missing in some version.

- Watts: MI200 answers average_socket_power, MI300 current_socket_power, the other one is "N/A"
  (github.com/pytorch/pytorch/pull/130331). Nothing says over which time: their kind is "unspecified".
- Joules: energy_accumulator times counter_resolution (in microjoules). On some boards that is off by a factor
  (github.com/ROCm/amdsmi/issues/38): the meter believes it once it has agreed with the watts.
- Of the two dies of a MI250 or MI250X only the first reports watts, those of both; of a board in partitions, the first
  partition. They share the watts and the limit, so they are one board here, as they are one package.
- Limits are microwatts. Some MI300X name a range and refuse to lower, or ignore it
  (github.com/ROCm/legacy-rocm-build/issues/5231): what a limit does is judged by the watts, as everywhere; else the
  range of the clock is narrowed.
"""

import contextlib
import importlib.util
import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from carbontui.power.backends import base
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, RawReading, checked, limit_doubt
from carbontui.system import isolation
from carbontui.text import boards

CODES = {
    1: base.INVALID,
    2: base.NOT_SUPPORTED,
    3: base.NOT_SUPPORTED,
    8: base.TIMEOUT,
    10: base.NO_PERMISSION,
    17: base.INVALID,
    31: base.GPU_IS_LOST,
    32: base.UNINITIALIZED,
    34: base.NOT_LOADED,
    55: base.NOT_SUPPORTED,
}
"""Of AMDSMI_STATUS_*: invalid, not supported, not implemented, timeout, no permission, out of bounds, not found, not
initialised, driver not loaded, setting unavailable."""
UNKNOWN_NUMBERS = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""What the library fills into fields that a board does not have, where the binding lets them through."""
DRIVER = ("/dev/kfd", "/sys/module/amdgpu")
WRAPPER_B = 50_000
"""The wrapper that is generated from AMD's header is larger."""
PATIENCE_S = 2.0
"""How long a call waits for another thread's: one that hangs in the driver must not hold up the restoring of limits."""


class Die(Struct, frozen=True):
    """One processor handle: a board, one of its dies, or a partition."""

    handle: Any
    uuid: str
    bdf: str
    name: str
    ordinal: int
    """Its number for HIP."""


class AmdBackend(Backend):
    """All boards that amdsmi shows, keyed by the UUID that ROCm shows: "GPU-" and the serial number of the chip."""

    name = "amd"
    driver = ""
    broken = False

    def __init__(self) -> None:
        self._smi: Any = None
        self._unusable: DeviceError | None = None
        """Why amdsmi cannot be imported: tried once, since it takes a while."""
        self._alone = threading.Lock()
        self._dies: dict[str, tuple[Die, ...]] = {}
        self._infos: dict[str, DeviceInfo] = {}
        self._lost: dict[str, bool] = {}
        self._ran: dict[str, dict[int, float]] = {}
        self._open = False

    # --- opening ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """A machine without ROCm, or with a broken one, has no AMD boards: NO_LIBRARY, of which nothing is said."""
        if self._smi is None and self._unusable is None:
            self._smi, self._unusable = _library()
        if self._unusable is not None:
            raise self._unusable
        self.close()
        try:
            flags = getattr(getattr(self._smi, "AmdSmiInitFlags", None), "INIT_AMD_GPUS", None)
            self._call("amdsmi_init", *(() if flags is None else (flags,)))
            self._open = True
            handles = list(self._call("amdsmi_get_processor_handles"))
        except DeviceError as error:
            if self._infos:
                raise  # they were here: the driver is being reloaded
            raise DeviceError(base.NO_LIBRARY, str(error)) from None
        self.broken = False
        places = self._ordinals(handles)
        found = [self._die(handle, place) for handle, place in zip(handles, places, strict=True)]
        self._dies = {group[0].uuid: group for group in self._boards(found)}
        self._infos = {uuid: self._describe(index, group) for index, (uuid, group) in enumerate(self._dies.items())}
        if self._dies:
            fields = self._try("amdsmi_get_gpu_driver_info", next(iter(self._dies.values()))[0].handle) or {}
            self.driver = str(fields.get("driver_version") or fields.get("driver_name") or "amdgpu")

    def _ordinals(self, handles: list[Any]) -> list[int]:
        """Each one's number for HIP; before ROCm 6.4 none is told: HIP goes by the nodes of the kernel's topology."""
        for call, field in (("amdsmi_get_gpu_enumeration_info", "hip_id"), ("amdsmi_get_gpu_kfd_info", "node_id")):
            numbers = [_number((self._try(call, handle) or {}).get(field)) for handle in handles]
            known = [number for number in numbers if number is not None]
            if len(set(known)) == len(handles):
                return [sorted(known).index(number) for number in known]
        return list(range(len(handles)))

    def _die(self, handle: Any, place: int) -> Die:
        asic = self._try("amdsmi_get_gpu_asic_info", handle) or {}
        bdf = str(self._try("amdsmi_get_gpu_device_bdf", handle) or "")
        serial = str(asic.get("asic_serial", "")).lower().removeprefix("0x")
        if not serial or serial == "n/a" or not serial.strip("0"):
            serial = str(self._try("amdsmi_get_gpu_device_uuid", handle) or bdf or f"amd-{place}").lower()
        name = str(asic.get("market_name") or "")
        name = boards.MAKERS["amd"].board if name in ("", "N/A") else name
        return Die(handle, f"GPU-{serial}", bdf, name, place)

    def _boards(self, dies: list[Die]) -> Iterator[tuple[Die, ...]]:
        """The dies by the board that they are on; no two boards have one name."""
        groups: list[list[Die]] = []
        for die in dies:
            before = groups[-1] if groups else []
            if before and (_is_partition(before[0], die) or (len(before) == 1 and self._is_second(before[0], die))):
                before.append(die)
            else:
                groups.append([die])
        names: set[str] = set()
        for group in groups:
            unique = []
            for die in group:
                uuid = die.uuid if die.uuid not in names else f"{die.uuid}-{die.bdf or die.ordinal}"
                names.add(uuid)
                unique.append(Die(die.handle, uuid, die.bdf, die.name, die.ordinal))
            yield tuple(unique)

    def _is_second(self, first: Die, die: Die) -> bool:
        """Whether this is the second die of a MI250: the first one tells the watts of both."""
        if "MI250" not in die.name or die.name != first.name:
            return False
        return not self._watts(die) and bool(self._watts(first))

    def _describe(self, index: int, dies: tuple[Die, ...]) -> DeviceInfo:
        first = dies[0]
        cap = self._cap(first)
        clock = self._clock(first)
        memory = [self._vram(die).get("vram_total") for die in dies]
        sizes = [size for one in memory if (size := _number(one))]
        top = _number(clock.get("max_clk"))
        return DeviceInfo(
            uuid=first.uuid,
            name=first.name,
            index=index,
            maker="amd",
            address=first.bdf or str(index),
            dies=tuple(die.uuid for die in dies),
            ordinals=tuple(die.ordinal for die in dies),
            limit_min_mw=_mw(cap.get("min_power_cap"), least=0),
            limit_max_mw=_mw(cap.get("max_power_cap")),
            limit_default_mw=_mw(cap.get("default_power_cap")),
            memory_total_b=int(sum(sizes)) << 20 if len(sizes) == len(dies) else None,
            clock_max_mhz=int(top) if top else None,
        )

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(self._infos.values())

    def close(self) -> None:
        if self._open:
            self._open = False
            self._try("amdsmi_shut_down")

    # --- reading ----------------------------------------------------------------------------------------------

    def sample(self, uuid: str) -> RawReading:
        dies = self._dies[uuid]
        errors: list[tuple[str, int]] = []
        fields: list[dict[str, Any]] = []
        for field, name in (("power_w", "amdsmi_get_power_info"), ("energy_uj", "amdsmi_get_energy_count")):
            try:
                fields.append(self._call(name, dies[0].handle) or {})
            except DeviceError as error:
                errors.append((field, error.code))
                fields.append({})
        power_w, energy_uj = _watts(fields[0]), _microjoules(fields[1])
        failed = {code for _, code in errors}
        errors += [(field, base.NOT_SUPPORTED) for field, value in (("power_w", power_w), ("energy_uj", energy_uj))
                   if value is None and field not in dict(errors)]  # fmt: skip
        lost = failed == {base.GPU_IS_LOST} and power_w is None and energy_uj is None
        self.broken = self.broken or base.UNINITIALIZED in failed
        if self._lost.get(uuid) and not lost:
            self._infos[uuid] = self._describe(self._infos[uuid].index, dies)
        self._lost[uuid] = lost
        busy = [_number((self._try("amdsmi_get_gpu_activity", die.handle) or {}).get("gfx_activity")) for die in dies]
        used = [_number(self._vram(die).get("vram_used")) for die in dies]
        return checked(
            self._infos[uuid],
            RawReading(
                energy_uj=energy_uj,
                power_w=power_w,
                kind=None if power_w is None else "unspecified",
                limit_mw=_mw(self._cap(dies[0]).get("power_cap")),
                sm_mhz=_number(self._clock(dies[0]).get("clk")),
                util=None if None in busy else sum(one or 0.0 for one in busy) / (100 * len(dies)),
                memory_used_b=None if None in used else int(sum(one or 0 for one in used)) << 20,
                temp_c=self._temperature(dies[0]),
                errors=tuple(errors),
                lost=lost,
            ),
        )

    def _watts(self, die: Die) -> float | None:
        return _watts(self._try("amdsmi_get_power_info", die.handle) or {})

    def _temperature(self, die: Die) -> float | None:
        kinds, metrics = (getattr(self._smi, f"AmdSmiTemperature{what}", None) for what in ("Type", "Metric"))
        if kinds is None or metrics is None:
            return None
        found = _number(self._try("amdsmi_get_temp_metric", die.handle, kinds.HOTSPOT, metrics.CURRENT))
        return found / 1000 if found is not None and found > 1000 else found  # some versions answer in millidegrees

    def _cap(self, die: Die) -> dict[str, Any]:
        return self._try("amdsmi_get_power_cap_info", die.handle) or {}

    def _clock(self, die: Die) -> dict[str, Any]:
        return self._try("amdsmi_get_clock_info", die.handle, self._gfx()) or {}

    def _vram(self, die: Die) -> dict[str, Any]:
        """In MiB."""
        return self._try("amdsmi_get_gpu_vram_usage", die.handle) or {}

    def _gfx(self) -> Any:
        return getattr(getattr(self._smi, "AmdSmiClkType", None), "GFX", 0)

    # --- setting ----------------------------------------------------------------------------------------------

    def setter(self, uuid: str) -> str | None:
        return "" if os.geteuid() == 0 else None  # files of root in sysfs

    def limit_mw(self, uuid: str) -> int:
        limit = _mw((self._call("amdsmi_get_power_cap_info", self._dies[uuid][0].handle) or {}).get("power_cap"))
        if limit is None:
            raise DeviceError(base.NOT_SUPPORTED, boards.driver(base.NOT_SUPPORTED))
        if doubt := limit_doubt(self._infos[uuid], limit):
            raise DeviceError(base.UNKNOWN, doubt)
        return limit

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        """Some boards refuse values inside the range that they name."""
        info = self._infos[uuid]
        try:
            self._call("amdsmi_set_power_cap", self._dies[uuid][0].handle, 0, milliwatts * 1000)
        except DeviceError as error:
            if error.code == base.INVALID and (info.limit_min_mw or 0) <= milliwatts <= (info.limit_max_mw or 0):
                raise DeviceError(base.NOT_SUPPORTED, "refused inside the range it names") from None
            raise

    def lock_clocks(self, uuid: str, mhz: int | None) -> None:
        """The range of the clock has no reset of its own: automatic clocks are what a board has at its start."""
        for die in self._dies[uuid]:
            if mhz is None:
                levels = getattr(self._smi, "AmdSmiDevPerfLevel", None)
                self._call("amdsmi_set_gpu_perf_level", die.handle, getattr(levels, "AUTO", 0))
            else:
                least = _number(self._clock(die).get("min_clk")) or 0
                self._call("amdsmi_set_gpu_clk_range", die.handle, int(min(least, mhz)), mhz, self._gfx())

    # --- processes --------------------------------------------------------------------------------------------

    def processes(self, uuid: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for pid, one in self._listed(uuid):
            memory = one.get("memory_usage")
            held = _number(memory.get("vram_mem") if isinstance(memory, dict) else None) or _number(one.get("mem")) or 0
            found[pid] = found.get(pid, 0) + int(held)
        return found

    def everyone(self, uuid: str) -> tuple[int, ...]:
        return tuple(sorted({pid for pid, _ in self._listed(uuid)}))

    def kernels(self, uuid: str) -> dict[int, float]:
        """Nanoseconds of the graphics engine since the last call, by pid."""
        total: dict[int, float] = {}
        for pid, one in self._listed(uuid):
            usage = one.get("engine_usage")
            ran = _number(usage.get("gfx") if isinstance(usage, dict) else None) or 0
            total[pid] = total.get(pid, 0.0) + ran
        before, self._ran[uuid] = self._ran.get(uuid, {}), total
        return {pid: max(0.0, ran - before.get(pid, ran)) for pid, ran in total.items()}

    def _listed(self, uuid: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for die in self._dies[uuid]:
            for one in self._call("amdsmi_get_gpu_process_list", die.handle) or ():
                fields = one if isinstance(one, dict) else self._try("amdsmi_get_gpu_process_info", die.handle, one)
                if fields and (pid := _number(fields.get("pid"))) is not None:
                    yield int(pid), fields

    # --- calls ------------------------------------------------------------------------------------------------

    def _call(self, name: str, *args: Any) -> Any:
        """Raises DeviceError, whatever the binding raises: some versions of it let KeyError and the like through."""
        call = getattr(self._smi, name, None)
        if call is None:
            raise DeviceError(base.NO_FUNCTION, boards.driver(base.NO_FUNCTION, "amd"))
        # before 26.2 the library mixes up boards, or crashes, when two threads call it
        alone = self._alone.acquire(timeout=PATIENCE_S)
        try:
            return call(*args)
        except Exception as error:
            number = getattr(error, "err_code", None)
            code = CODES.get(abs(number), base.UNKNOWN) if isinstance(number, int) else base.UNKNOWN
            raise DeviceError(code, boards.driver(code, "amd")) from None
        finally:
            if alone:
                self._alone.release()

    def _try(self, name: str, *args: Any) -> Any:
        try:
            return self._call(name, *args)
        except DeviceError:
            return None


def _library() -> tuple[Any, DeviceError | None]:
    """The module amdsmi, or why it is absent or of no use."""
    apart = os.environ.get(isolation.AMDSMI)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints where its library is missing; ours carries answers
        try:
            if apart:
                sys.path.append(apart)
            if _is_in_vain():
                return None, DeviceError(base.NO_LIBRARY, "no AMD driver (amdgpu) is loaded")
            return importlib.import_module("amdsmi"), None
        except Exception as error:
            return None, DeviceError(base.NO_LIBRARY, f"amdsmi: {type(error).__name__}")
        finally:
            if apart:
                sys.path.remove(apart)


def _is_in_vain() -> bool:
    """Whether AMD's own binding, which takes 55 ms of CPU to fail, would find no kernel driver."""
    spec = importlib.util.find_spec("amdsmi")
    wrapper = Path(spec.origin).with_name("amdsmi_wrapper.py") if spec is not None and spec.origin else None
    generated = wrapper is not None and wrapper.exists() and wrapper.stat().st_size > WRAPPER_B
    return generated and not any(Path(place).exists() for place in DRIVER)


def _is_partition(first: Die, die: Die) -> bool:
    """Whether both are functions of one PCI device."""
    return bool(first.bdf) and "." in first.bdf and first.bdf.rpartition(".")[0] == die.bdf.rpartition(".")[0]


def _number(value: Any) -> float | None:
    """A figure of the library; None for "N/A" and what stands for it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value in UNKNOWN_NUMBERS or value != value:
        return None
    return value


def _watts(fields: dict[str, Any]) -> float | None:
    """The first field that has a figure; 0 W is none."""
    watts = (_number(fields.get(f"{which}_socket_power")) for which in ("average", "current"))
    return next((float(one) for one in watts if one), None)


def _microjoules(fields: dict[str, Any]) -> int | None:
    count = _number(fields.get("energy_accumulator", fields.get("power")))  # its name before ROCm 6.2.1
    resolution = _number(fields.get("counter_resolution"))
    return round(count * resolution) if count is not None and resolution else None


def _mw(microwatts: Any, least: int = 1) -> int | None:
    found = _number(microwatts)
    return None if found is None or found < least else round(found / 1000)
