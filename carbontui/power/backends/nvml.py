"""NVIDIA GPUs through nvidia-ml-py. Imported only by the agent; a call may hang, and then the agent is replaced.

Power is named for what it is: the 1 s average field where the driver has it, else the instantaneous field, else
nvmlDeviceGetPowerUsage, which averages over 1 s on Ampere except GA100 and on newer parts, and is instantaneous on
GA100 and older ones (NVML API reference, nvmlDeviceGetPowerUsage).
"""

import os
import time
from collections.abc import Callable
from typing import Any

from carbontui.power.backends import base
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, RawReading, checked, limit_doubt
from carbontui.power.messages import PowerKind
from carbontui.system import proc
from carbontui.text import boards

_ENERGY, _AVERAGE, _INSTANT = 83, 185, 186
_SCOPE_GPU, _SCOPE_MODULE = 0, 1
_ARCH_AMPERE = 7
_GA100 = ("A100", "A800", "A30", "GA100")
_NONE, _NOT_FOUND = 0, 6
"""Answers of the binding and the driver if no process has run anything."""
_LASTING = {base.INVALID, base.NOT_SUPPORTED, base.NO_PERMISSION, _NOT_FOUND, base.NO_FUNCTION}
"""Refusals that another call would meet again."""
CAP_SYS_ADMIN = 21
"""What the driver asks of who sets limits."""
ENFORCED_S = 10.0
"""How often the limit that is really held is asked for."""
SEEK_S = 3.5
"""How often to look for a lost board: with a sampling period of a second it is found within five."""
SHARE = 0.05
"""Most of the time spent on re-initialising NVML, without which it may not see a board that came back: it takes
milliseconds, or seconds beside a dead board."""


class NvmlBackend(Backend):
    """All boards that NVML shows, keyed by UUID."""

    name = "nvml"
    driver = ""
    absent: tuple[tuple[int, str], ...] = ()
    broken = False

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._infos: dict[str, DeviceInfo] = {}
        self._usage_kind: dict[str, PowerKind] = {}
        self._scope: dict[str, int] = {}
        self._lost: set[str] = set()
        self._failed: set[int] = set()
        """How calls have failed that are no reason to give up (`_try`)."""
        self._partial: set[str] = set()
        """Boards that did not answer all that describes them: described again once they answer."""
        self._seek_at: dict[str, float] = {}
        self._utilised_us: dict[str, int] = {}
        self._enforced: dict[str, tuple[float, int, int | None]] = {}
        self._reinit_at = 0.0
        self._open = False

    # --- opening ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        try:
            import pynvml
        except Exception as error:
            raise DeviceError(base.NO_LIBRARY, f"nvidia-ml-py: {type(error).__name__}") from None
        if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
            raise DeviceError(13, "the unofficial 'pynvml' package shadows nvidia-ml-py; pip uninstall pynvml")
        self._nvml = pynvml
        if self._open:
            self.close()
        began = self._clock()
        self._call("nvmlInit")
        self._open = True
        self.broken = False
        self.absent = ()
        found: set[str] = set()
        self.driver = str(self._try("nvmlSystemGetDriverVersion") or "")
        for index in range(int(self._call("nvmlDeviceGetCount"))):
            try:
                handle = self._call("nvmlDeviceGetHandleByIndex", index)
                uuid = self._call("nvmlDeviceGetUUID", handle)
                self._infos[uuid] = self._describe(uuid, handle, index)
            except DeviceError as error:
                # a lost board has no handle, or only its name; boards known before keep what is known of them
                self.absent += ((index, str(error)),)
                continue
            found.add(uuid)
            self._handles[uuid] = handle
        # the handle of a board that was there before the driver was reloaded is worth nothing: it is sought by its name
        self._lost = set(self._infos) - found
        now = self._clock()
        self._reinit_at = now + max(SEEK_S, (now - began) / SHARE)

    def _describe(self, uuid: str, handle: Any, index: int) -> DeviceInfo:
        """Raises DeviceError for a board that is lost."""
        self._failed.clear()
        self._scope.pop(uuid, None)
        name = str(self._try("nvmlDeviceGetName", handle) or "NVIDIA GPU")
        if base.GPU_IS_LOST in self._failed:
            raise DeviceError(base.GPU_IS_LOST, boards.driver(base.GPU_IS_LOST))
        bounds = self._try("nvmlDeviceGetPowerManagementLimitConstraints", handle) or (None, None)
        memory = self._try("nvmlDeviceGetMemoryInfo", handle)
        mode = self._try("nvmlDeviceGetMigMode", handle)
        mig = bool(mode and mode[0] == 1)
        slices = self._slices(handle) if mig else {}
        architecture = self._try("nvmlDeviceGetArchitecture", handle)
        if architecture is None:
            self._usage_kind[uuid] = "unspecified"
        elif architecture < _ARCH_AMPERE or (architecture == _ARCH_AMPERE and any(chip in name for chip in _GA100)):
            self._usage_kind[uuid] = "instant"
        else:
            self._usage_kind[uuid] = "avg1s"
        info = DeviceInfo(
            uuid=uuid,
            name=name,
            index=index,
            limit_min_mw=bounds[0],
            limit_max_mw=bounds[1],
            limit_default_mw=self._try("nvmlDeviceGetPowerManagementDefaultLimit", handle),
            memory_total_b=int(memory.total) if memory is not None else None,
            clock_max_mhz=self._try("nvmlDeviceGetMaxClockInfo", handle, self._nvml.NVML_CLOCK_SM),
            mig=mig,
            mig_uuids=tuple(slices),
            mig_sizes=tuple(slices.values()),
        )
        self._partial = self._partial | {uuid} if self._failed - _LASTING else self._partial - {uuid}
        return info

    def _slices(self, handle: Any) -> dict[str, int]:
        """The size of each instance, in compute slices."""
        found: dict[str, int] = {}
        for i in range(int(self._try("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)):
            part = self._try("nvmlDeviceGetMigDeviceHandleByIndex", handle, i)
            uuid = self._try("nvmlDeviceGetUUID", part) if part is not None else None
            if uuid:
                size = self._try("nvmlDeviceGetAttributes_v2", part)
                found[str(uuid)] = int(size.gpuInstanceSliceCount) if size is not None else 1
        return found

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(self._infos.values())

    @property
    def incomplete(self) -> bool:
        missing = self._open and bool(self.absent or self._lost)
        return missing and self._clock() >= self._reinit_at

    def close(self) -> None:
        if self._open:
            self._open = False
            self._try("nvmlShutdown")

    # --- reading ----------------------------------------------------------------------------------------------

    def sample(self, uuid: str) -> RawReading:
        if uuid in self._lost | self._partial:
            self._seek(uuid)
        if uuid in self._lost:
            return RawReading(lost=True, errors=(("power_w", base.GPU_IS_LOST),))
        nvml, handle = self._nvml, self._handles[uuid]
        errors: list[tuple[str, int]] = []

        def ask(field: str, name: str, *args: Any) -> Any:
            try:
                return self._call(name, *args)
            except DeviceError as error:
                errors.append((field, error.code))
                return None

        energy_mj, power_mw, kind = self._power(uuid, handle, ask)
        limit = ask("limit_w", "nvmlDeviceGetPowerManagementLimit", handle)
        util = ask("util", "nvmlDeviceGetUtilizationRates", handle)
        memory = ask("memory_used_b", "nvmlDeviceGetMemoryInfo", handle)
        clock = ask("sm_mhz", "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
        temp = ask("temp_c", "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU)
        reasons = ask("reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if any(code == base.GPU_IS_LOST for _, code in errors):
            self._lost.add(uuid)
            self._seek_at[uuid] = self._clock() + SEEK_S
        if any(code == base.UNINITIALIZED for _, code in errors):
            self.broken = True
        seen = RawReading(
            energy_uj=None if energy_mj is None else energy_mj * 1000,
            power_w=None if power_mw is None else power_mw / 1000,
            kind=kind,
            limit_mw=limit,
            sm_mhz=clock,
            util=None if util is None else util.gpu / 100,
            memory_used_b=None if memory is None else int(memory.used),
            temp_c=temp,
            reasons=reasons,
            enforced_mw=None if limit is None else self._enforced_mw(uuid, limit),
            errors=tuple(errors),
            lost=uuid in self._lost,
        )
        return checked(self._infos[uuid], seen)

    def _enforced_mw(self, uuid: str, limit_mw: int) -> int | None:
        """The limit that is really held, asked for every few seconds, and after every change of ours."""
        at_s, of_mw, found = self._enforced.get(uuid, (0.0, 0, None))
        if of_mw != limit_mw or self._clock() >= at_s:
            found = self._try("nvmlDeviceGetEnforcedPowerLimit", self._handles[uuid])
            if found is not None and limit_doubt(self._infos[uuid], found):
                found = None
            self._enforced[uuid] = (self._clock() + ENFORCED_S, limit_mw, found)
        return found

    def _seek(self, uuid: str) -> None:
        """Describe a board anew once it answers; tried every few seconds, since a dead board may answer slowly."""
        if self._clock() < self._seek_at.get(uuid, 0.0):
            return
        self._seek_at[uuid] = self._clock() + SEEK_S
        try:
            handle, index = self._call("nvmlDeviceGetHandleByUUID", uuid), self._infos[uuid].index
            self._infos[uuid] = self._describe(uuid, handle, index)
        except DeviceError:
            return
        self._handles[uuid] = handle
        self._lost.discard(uuid)
        self.absent = tuple(gone for gone in self.absent if gone[0] != index)

    def _power(
        self, uuid: str, handle: Any, ask: Callable[..., Any]
    ) -> tuple[int | None, int | None, PowerKind | None]:
        """Energy in mJ, power in mW and the kind of power; one batched call if the driver has it."""
        scope = self._scope.get(uuid, _SCOPE_GPU)
        values = self._fields(handle, scope)
        if scope == _SCOPE_GPU and values is not None and values[1] is None and values[2] is None:
            module = self._fields(handle, _SCOPE_MODULE)
            if module is not None and (module[1] is not None or module[2] is not None):
                # Grace: the board alone cannot be read, only the module with its CPU
                scope = self._scope[uuid] = _SCOPE_MODULE
                values = (module[0] if values[0] is None else values[0], *module[1:])
        energy, average, instant = values or (None, None, None)
        if energy is None:
            energy = ask("energy_uj", "nvmlDeviceGetTotalEnergyConsumption", handle)
        if scope == _SCOPE_MODULE:
            return energy, average if average is not None else instant, "module"
        if average is not None:
            return energy, average, "avg1s"
        if instant is not None:
            return energy, instant, "instant"
        usage = ask("power_w", "nvmlDeviceGetPowerUsage", handle)
        return energy, usage, None if usage is None else self._usage_kind[uuid]

    def _fields(self, handle: Any, scope: int) -> tuple[int | None, int | None, int | None] | None:
        """Energy, average and instantaneous power of one scope; None if the call itself is missing or fails."""
        wanted = [(_ENERGY, _SCOPE_GPU), (_AVERAGE, scope), (_INSTANT, scope)]
        values = self._try("nvmlDeviceGetFieldValues", handle, wanted)
        if values is None:
            return None
        energy, average, instant = values
        return (
            int(energy.value.ullVal) if energy.nvmlReturn == 0 else None,
            int(average.value.uiVal) if average.nvmlReturn == 0 and average.value.uiVal else None,
            int(instant.value.uiVal) if instant.nvmlReturn == 0 and instant.value.uiVal else None,
        )

    # --- setting ----------------------------------------------------------------------------------------------

    def setter(self, uuid: str) -> str | None:
        return "" if os.geteuid() == 0 or proc.is_capable(CAP_SYS_ADMIN) else None

    def limit_mw(self, uuid: str) -> int:
        limit = int(self._call("nvmlDeviceGetPowerManagementLimit", self._handles[uuid]))
        if doubt := limit_doubt(self._infos[uuid], limit):
            raise DeviceError(base.UNKNOWN, doubt)
        return limit

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        if self._infos[uuid].mig:
            raise DeviceError(base.NOT_SUPPORTED, "MIG slices share the GPU")
        self._call("nvmlDeviceSetPowerManagementLimit", self._handles[uuid], milliwatts)

    def lock_clocks(self, uuid: str, mhz: int | None) -> None:
        handle = self._handles[uuid]
        if mhz is None:
            self._call("nvmlDeviceResetGpuLockedClocks", handle)
        else:
            self._call("nvmlDeviceSetGpuLockedClocks", handle, 0, mhz)

    def processes(self, uuid: str) -> dict[int, int]:
        found = self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._handles[uuid])
        return {int(process.pid): int(process.usedGpuMemory or 0) for process in found}

    def kernels(self, uuid: str) -> dict[int, float]:
        """Sums of SM utilisation over the driver's samples, by pid."""
        since = self._utilised_us.get(uuid, 0)
        try:
            samples = self._call("nvmlDeviceGetProcessUtilization", self._handles[uuid], since)
        except DeviceError as error:
            if error.code not in (_NONE, _NOT_FOUND):
                raise
            return {}
        found: dict[int, float] = {}
        for sample in samples:
            self._utilised_us[uuid] = max(self._utilised_us.get(uuid, 0), int(sample.timeStamp))
            found[int(sample.pid)] = found.get(int(sample.pid), 0.0) + float(sample.smUtil)
        return found

    def everyone(self, uuid: str) -> tuple[int, ...]:
        """Pids of compute, graphics and MPS processes."""
        pids = set(self.processes(uuid))
        for kind in ("Graphics", "MPSCompute"):
            try:
                running = self._call(f"nvmlDeviceGet{kind}RunningProcesses_v3", self._handles[uuid])
                pids |= {int(process.pid) for process in running}
            except DeviceError as error:
                if error.code not in (base.NOT_SUPPORTED, base.NO_FUNCTION):
                    raise
        return tuple(sorted(pids))

    # --- calls ------------------------------------------------------------------------------------------------

    def _call(self, name: str, *args: Any) -> Any:
        """Raises DeviceError; so does a call that the binding or the driver does not have."""
        call = getattr(self._nvml, name, None)
        try:
            if call is None:
                raise DeviceError(base.NO_FUNCTION, boards.driver(base.NO_FUNCTION))
            return call(*args)
        except self._nvml.NVMLError as error:
            code = int(getattr(error, "value", base.UNKNOWN))
            raise DeviceError(code, boards.driver(code)) from None

    def _try(self, name: str, *args: Any) -> Any:
        try:
            return self._call(name, *args)
        except DeviceError as error:
            self._failed.add(error.code)
            return None
