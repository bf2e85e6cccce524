"""NVIDIA GPUs through nvidia-ml-py. Imported only by the agent; a call may hang, and then the agent is replaced.

Power is named for what it is: the 1 s average field where the driver has it, else the instantaneous field, else
nvmlDeviceGetPowerUsage, which averages over 1 s on Ampere except GA100 and on newer parts, and is instantaneous on
GA100 and older ones (NVML API reference, nvmlDeviceGetPowerUsage).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from carbontui.power.backends import codes
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, Look, judged, limit_doubt
from carbontui.power.messages import PowerKind

_ENERGY, _AVERAGE, _INSTANT = 83, 185, 186
_SCOPE_GPU, _SCOPE_MODULE = 0, 1
_ARCH_AMPERE = 7
_GA100 = ("A100", "A800", "A30", "GA100")
_FUNCTION_NOT_FOUND = 13
_NONE, _NOT_FOUND = 0, 6
"""Answers of the binding and the driver if no process has run anything."""
SEEK_S = 3.5
"""How often to look for a lost board: with a sampling period of a second it is found within five."""
SHARE = 0.05
"""Most of the time spent on re-initialising NVML, without which it may not see a board that came back: it takes
milliseconds, or seconds beside a dead board."""


class NvmlBackend(Backend):
    """All boards that NVML shows, keyed by UUID."""

    name = "nvml"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._infos: dict[str, DeviceInfo] = {}
        self._usage_kind: dict[str, PowerKind] = {}
        self._scope: dict[str, int] = {}
        self._lost: set[str] = set()
        self._seek_at: dict[str, float] = {}
        self._utilised_us: dict[str, int] = {}
        self._reinit_at = 0.0
        self._open = False

    # --- opening ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        import pynvml

        if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
            raise DeviceError(13, "the unofficial 'pynvml' package shadows nvidia-ml-py; pip uninstall pynvml")
        self._nvml = pynvml
        if self._open:
            self.close()
        began = self._clock()
        self._call(pynvml.nvmlInit)
        self._open = True
        self.broken = False
        self.absent = ()
        found: set[str] = set()
        self.driver = str(self._try(pynvml.nvmlSystemGetDriverVersion) or "")
        for index in range(int(self._call(pynvml.nvmlDeviceGetCount))):
            try:
                handle = self._call(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = self._call(pynvml.nvmlDeviceGetUUID, handle)
            except DeviceError as error:
                # a lost board has no handle; boards known before keep theirs
                self.absent += ((index, str(error)),)
                continue
            found.add(uuid)
            self._handles[uuid] = handle
            self._infos[uuid] = self._describe(uuid, handle, index)
        # the handle of a board that was there before the driver was reloaded is worth nothing: it is sought by its name
        self._lost = set(self._infos) - found
        now = self._clock()
        self._reinit_at = now + max(SEEK_S, (now - began) / SHARE)

    def _describe(self, uuid: str, handle: Any, index: int) -> DeviceInfo:
        nvml = self._nvml
        name = str(self._try(nvml.nvmlDeviceGetName, handle) or "NVIDIA GPU")
        bounds = self._try(nvml.nvmlDeviceGetPowerManagementLimitConstraints, handle) or (None, None)
        memory = self._try(nvml.nvmlDeviceGetMemoryInfo, handle)
        mode = self._try(nvml.nvmlDeviceGetMigMode, handle)
        mig = bool(mode and mode[0] == 1)
        slices = self._slices(handle) if mig else {}
        architecture = self._try(nvml.nvmlDeviceGetArchitecture, handle)
        if architecture is None:
            self._usage_kind[uuid] = "unspecified"
        elif architecture < _ARCH_AMPERE or (architecture == _ARCH_AMPERE and any(chip in name for chip in _GA100)):
            self._usage_kind[uuid] = "instant"
        else:
            self._usage_kind[uuid] = "avg1s"
        return DeviceInfo(
            uuid=uuid,
            name=name,
            index=index,
            limit_min_mw=bounds[0],
            limit_max_mw=bounds[1],
            limit_default_mw=self._try(nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle),
            memory_total_b=int(memory.total) if memory is not None else None,
            clock_max_mhz=self._try(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            mig=mig,
            mig_uuids=tuple(slices),
            mig_sizes=tuple(slices.values()),
        )

    def _slices(self, handle: Any) -> dict[str, int]:
        """The size of each instance, in compute slices."""
        nvml = self._nvml
        found: dict[str, int] = {}
        for i in range(int(self._try(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)):
            part = self._try(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, i)
            uuid = self._try(nvml.nvmlDeviceGetUUID, part) if part is not None else None
            if uuid:
                size = self._try(nvml.nvmlDeviceGetAttributes_v2, part)
                found[str(uuid)] = int(size.gpuInstanceSliceCount) if size is not None else 1
        return found

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(self._infos.values())

    @property
    def incomplete(self) -> bool:  # type: ignore[override]
        missing = self._open and bool(self.absent or self._lost)
        return missing and self._clock() >= self._reinit_at

    def close(self) -> None:
        if self._open:
            self._open = False
            self._try(self._nvml.nvmlShutdown)

    # --- reading ----------------------------------------------------------------------------------------------

    def look(self, uuid: str) -> Look:
        if uuid in self._lost and not self._found_again(uuid):
            return Look(lost=True, errors=(("power_w", codes.GPU_IS_LOST),))
        nvml, handle = self._nvml, self._handles[uuid]
        errors: list[tuple[str, int]] = []

        def ask(field: str, call: Callable[..., Any], *args: Any) -> Any:
            try:
                return self._call(call, *args)
            except DeviceError as error:
                errors.append((field, error.code))
                return None

        energy_mj, power_mw, kind = self._power(uuid, handle, ask)
        limit = ask("limit_w", nvml.nvmlDeviceGetPowerManagementLimit, handle)
        util = ask("util", nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = ask("memory_used_b", nvml.nvmlDeviceGetMemoryInfo, handle)
        clock = ask("sm_mhz", nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
        temp = ask("temp_c", nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        reasons = ask("reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        if any(code == codes.GPU_IS_LOST for _, code in errors):
            self._lost.add(uuid)
            self._seek_at[uuid] = self._clock() + SEEK_S
        if any(code == codes.UNINITIALIZED for _, code in errors):
            self.broken = True
        seen = Look(
            energy_uj=None if energy_mj is None else energy_mj * 1000,
            power_w=None if power_mw is None else power_mw / 1000,
            kind=kind,
            limit_mw=limit,
            sm_mhz=clock,
            util=None if util is None else util.gpu / 100,
            memory_used_b=None if memory is None else int(memory.used),
            temp_c=temp,
            reasons=reasons,
            errors=tuple(errors),
            lost=uuid in self._lost,
        )
        return judged(self._infos[uuid], seen)

    def _found_again(self, uuid: str) -> bool:
        """Whether a lost board answers again; checked every few seconds, since a dead board may answer slowly."""
        if self._clock() < self._seek_at.get(uuid, 0.0):
            return False
        self._seek_at[uuid] = self._clock() + SEEK_S
        nvml = self._nvml
        try:
            handle = self._call(nvml.nvmlDeviceGetHandleByUUID, uuid)
            self._call(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        except DeviceError as error:
            if error.code != codes.NOT_SUPPORTED:
                return False
        self._handles[uuid] = handle
        self._lost.discard(uuid)
        return True

    def _power(
        self, uuid: str, handle: Any, ask: Callable[..., Any]
    ) -> tuple[int | None, int | None, PowerKind | None]:
        """Energy in mJ, power in mW and the kind of power; one batched call if the driver has it."""
        nvml = self._nvml
        energy: int | None = None
        average: int | None = None
        instant: int | None = None
        scope = self._scope.get(uuid, _SCOPE_GPU)
        values = self._fields(handle, scope)
        if scope == _SCOPE_GPU and values is not None and values[1] is None and values[2] is None:
            module = self._fields(handle, _SCOPE_MODULE)
            if module is not None and (module[1] is not None or module[2] is not None):
                # Grace: the board alone cannot be read, only the module with its CPU
                scope = self._scope[uuid] = _SCOPE_MODULE
                values = (module[0] if values[0] is None else values[0], *module[1:])
        if values is not None:
            energy, average, instant = values
        if energy is None:
            energy = ask("energy_uj", nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        if scope == _SCOPE_MODULE:
            return energy, average if average is not None else instant, "module"
        if average is not None:
            return energy, average, "avg1s"
        if instant is not None:
            return energy, instant, "instant"
        usage = ask("power_w", nvml.nvmlDeviceGetPowerUsage, handle)
        return energy, usage, None if usage is None else self._usage_kind[uuid]

    def _fields(self, handle: Any, scope: int) -> tuple[int | None, int | None, int | None] | None:
        """Energy, average and instantaneous power of one scope; None if the call itself is missing or fails."""
        wanted = [(_ENERGY, _SCOPE_GPU), (_AVERAGE, scope), (_INSTANT, scope)]
        values = self._try(self._nvml.nvmlDeviceGetFieldValues, handle, wanted)
        if values is None:
            return None
        energy, average, instant = values
        return (
            int(energy.value.ullVal) if energy.nvmlReturn == 0 else None,
            int(average.value.uiVal) if average.nvmlReturn == 0 and average.value.uiVal else None,
            int(instant.value.uiVal) if instant.nvmlReturn == 0 and instant.value.uiVal else None,
        )

    # --- setting ----------------------------------------------------------------------------------------------

    def limit_mw(self, uuid: str) -> int:
        limit = int(self._call(self._nvml.nvmlDeviceGetPowerManagementLimit, self._handles[uuid]))
        if doubt := limit_doubt(self._infos[uuid], limit):
            raise DeviceError(codes.UNKNOWN, doubt)
        return limit

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        if self._infos[uuid].mig:
            raise DeviceError(codes.NOT_SUPPORTED, "MIG slices share the board")
        self._call(self._nvml.nvmlDeviceSetPowerManagementLimit, self._handles[uuid], milliwatts)

    def lock_clocks(self, uuid: str, mhz: int | None) -> None:
        handle = self._handles[uuid]
        if mhz is None:
            self._call(self._nvml.nvmlDeviceResetGpuLockedClocks, handle)
        else:
            self._call(self._nvml.nvmlDeviceSetGpuLockedClocks, handle, 0, mhz)

    def processes(self, uuid: str) -> dict[int, int]:
        found = self._call(self._nvml.nvmlDeviceGetComputeRunningProcesses_v3, self._handles[uuid])
        return {int(process.pid): int(process.usedGpuMemory or 0) for process in found}

    def kernels(self, uuid: str) -> dict[int, float]:
        """Sums of SM utilisation over the driver's samples, by pid."""
        since = self._utilised_us.get(uuid, 0)
        try:
            samples = self._call(self._nvml.nvmlDeviceGetProcessUtilization, self._handles[uuid], since)
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
        nvml, handle = self._nvml, self._handles[uuid]
        pids = set(self.processes(uuid))
        for ask in (
            nvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
            nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        ):
            try:
                pids |= {int(process.pid) for process in self._call(ask, handle)}
            except DeviceError as error:
                if error.code not in (codes.NOT_SUPPORTED, _FUNCTION_NOT_FOUND):
                    raise
        return tuple(sorted(pids))

    # --- calls ------------------------------------------------------------------------------------------------

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except self._nvml.NVMLError as error:
            code = int(getattr(error, "value", codes.UNKNOWN))
            raise DeviceError(code, codes.words(code)) from None

    def _try(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return self._call(call, *args)
        except DeviceError:
            return None
