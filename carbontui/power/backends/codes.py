"""Why a driver refuses: NVML's error numbers, and capd's own beside them."""

from __future__ import annotations

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
