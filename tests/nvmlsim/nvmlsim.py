"""Compile and drive the simulated libnvidia-ml.so.1 (see nvmlsim.c)."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("nvmlsim.c")


def build(directory: Path) -> Path | None:
    """The library in `directory`, or None where there is no C compiler."""
    cc = shutil.which("cc")
    if cc is None:
        return None
    target = directory / "libnvidia-ml.so.1"
    flags = ["-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(target)]
    subprocess.run([cc, *flags, str(SOURCE), "-lm", "-lpthread"], check=True)
    return target


@functools.cache
def built() -> Path | None:
    """Once per process: nvidia-ml-py loads the library by name, and a second copy would have another memory."""
    folder = Path(tempfile.mkdtemp(prefix="nvmlsim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder)


class Sim:
    """One simulated machine. With `frozen` time stands still until advance()."""

    def __init__(self, library: Path, state: Path, devices: int = 1, *, frozen: bool = True) -> None:
        self.library, self.state = library, state
        self._lib = ctypes.CDLL(str(library))
        self._lib.nvmlsim_get.restype = self._lib.nvmlsim_process_j.restype = ctypes.c_double
        assert self._lib.nvmlsim_create(os.fsencode(state), devices, int(frozen)) == 0

    def env(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.library.parent), "NVMLSIM_STATE": str(self.state)}

    def advance(self, seconds: float) -> None:
        self._lib.nvmlsim_advance(ctypes.c_double(seconds))

    def load(
        self, level: float, *, device: int = 0, period_s: float = 0.0, duty: float = 1.0, context: bool = True
    ) -> None:
        """Kernels at `level` (0..1), as a square wave if period_s; context: a process holds the model in memory."""
        self._lib.nvmlsim_load(
            device, ctypes.c_double(level), ctypes.c_double(period_s), ctypes.c_double(duty), int(context)
        )

    def set(self, key: str, value: float, device: int = 0) -> None:
        assert self._lib.nvmlsim_set(device, key.encode(), ctypes.c_double(value)) == 0, key

    def name(self, name: str, device: int = 0) -> None:
        self._lib.nvmlsim_name(device, name.encode())

    def get(self, key: str, device: int = 0) -> float:
        value = float(self._lib.nvmlsim_get(device, key.encode()))
        assert value == value, key
        return value

    def process(self, pid: int, *, device: int = 0, memory_b: int = 30 << 30, level: float = 0.0) -> None:
        """A living process has a context and memory there, and runs kernels at `level` unless it is stopped."""
        memory = ctypes.c_ulonglong(memory_b)
        assert self._lib.nvmlsim_process(device, pid, memory, ctypes.c_double(level)) == 0, pid

    def process_j(self, pid: int, *, device: int = 0) -> float:
        """What a process has drawn of a board so far, in joules: the truth of a shared board."""
        joules = float(self._lib.nvmlsim_process_j(device, pid))
        assert joules == joules, pid
        return joules

    def submit(self, seconds: float, *, device: int = 0, level: float = 1.0) -> None:
        """Queue kernels that take so long at full clock; not beside kernels without end."""
        assert self._lib.nvmlsim_submit(device, ctypes.c_double(level), ctypes.c_double(seconds)) == 0

    def reap(self) -> None:
        """Notice who stopped, went on or died; every write does so too."""
        self._lib.nvmlsim_reap()

    def fault(
        self,
        function: str,
        code: int = 0,
        *,
        device: int = -1,
        count: int = -1,
        after: int = 0,
        latency_ms: int = 0,
        slot: int = 0,
    ) -> None:
        """Calls that match `function` (a glob) return `code`, or hang for latency_ms; count -1 for ever, 0 off."""
        self._lib.nvmlsim_fault(slot, function.encode(), device, code, count, after, latency_ms)

    def driver(self, *, loaded: bool = True, reload: bool = False) -> None:
        self._lib.nvmlsim_driver(int(loaded), int(reload))
