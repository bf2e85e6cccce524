"""The client's calls into torch, only if the script itself has loaded it."""

import os
import sys
from types import ModuleType
from typing import Any, Optional, Tuple, Union


def loaded(name: str, part: str) -> Optional[Any]:
    """A part of a library, if the script has loaded that: a module that loads itself when it is asked is left alone."""
    module = sys.modules.get(name)
    return vars(module).get(part) if type(module) is ModuleType else None


def _cuda() -> Optional[Any]:
    cuda = loaded("torch", "cuda")
    return cuda if cuda is not None and cuda.is_initialized() else None


def _used(cuda: Any) -> Tuple[int, ...]:
    """Devices on which this process has memory; synchronising any other would open a context there."""
    used = tuple(i for i in range(cuda.device_count()) if cuda.memory_reserved(i) > 0)
    return used or (cuda.current_device(),)


def quiesce() -> None:
    """Wait until the devices this process uses have finished all launched work. Errors are left to the script."""
    try:
        ready, arrays = loaded("jax", "block_until_ready"), loaded("jax", "live_arrays")
        if ready is not None and arrays is not None:
            ready(arrays())
        cuda = _cuda()
        if cuda is not None:
            for index in _used(cuda):
                cuda.synchronize(index)
    except Exception:
        return


def capturing() -> bool:
    """True while this thread's CUDA stream records a graph: nothing runs, and waiting for the device would fail."""
    cuda = sys.modules.get("torch.cuda")  # as `loaded`, at every boundary
    return type(cuda) is ModuleType and cuda._initialized and bool(cuda.is_current_stream_capturing())


def trace(how: Any) -> Any:
    """How torch.compile treats the frames of this thread from now on, None for not at all; returns how it did. In a
    step that it traces, it would compile what a boundary calls of the standard library, too."""
    put = loaded("torch._C._dynamo.eval_frame", "set_eval_frame")
    return put(how) if put is not None else None


def devices() -> Tuple[str, ...]:
    """NVML UUIDs of the GPUs in use, as far as this torch reports them; empty without a GPU."""
    try:
        cuda = _cuda()
        if cuda is not None:
            found = (getattr(cuda.get_device_properties(index), "uuid", None) for index in _used(cuda))
            uuids = tuple("GPU-" + str(uuid) for uuid in found if uuid is not None)
            if uuids:
                return uuids
            names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
            visible = [entry for name in names for entry in os.environ.get(name, "").split(",")]
            return tuple(entry.strip() for entry in visible if entry.strip().startswith("GPU-"))
    except Exception:
        pass
    return ()


def distributed() -> Optional[Any]:
    """torch.distributed with its process group up, or None."""
    try:
        module = loaded("torch", "distributed")
        return module if module is not None and module.is_available() and module.is_initialized() else None
    except Exception:
        return None


def start_time(pid: Union[int, str] = "self") -> int:
    """Field 22 of /proc/PID/stat in clock ticks since boot (detects a recycled pid); 0 without it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
