"""Why a driver refuses: NVML's error numbers, and capd's own beside them."""

from __future__ import annotations

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
