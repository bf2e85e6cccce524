"""Writes the energy counters of all boards at the start of a job to the given file, well before an agent can.

An agent is up a second after its job starts, a fifth of a five-second job. Started as a plain file
(`python -I -S first_count.py TARGET`) alongside the training, this needs only the driver's library and takes about
40 ms. Each row of the array: uuid, time.monotonic(), time.time(), energy in mJ or null, power in mW or null. Where a
board has no counter, powers are read on for UNREAD_S or until the parent is gone, and that is their mean so far.
"""

import ctypes
import json
import os
import signal
import sys
import time

UNREAD_S = 15
PATIENCE_S = 20
"""A driver that has not answered by then is left to the agent."""


def counts() -> "list[tuple[str, float, float, int | None, int | None]]":
    """One row per board that answers. Raises OSError if there is no driver library."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if nvml.nvmlInit_v2() != 0:
        return []
    number = ctypes.c_uint(0)
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
    rows = []
    for index in range(number.value):
        handle, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
            continue
        if nvml.nvmlDeviceGetUUID(handle, uuid, ctypes.c_uint(96)) != 0:
            continue
        energy, power = ctypes.c_ulonglong(0), ctypes.c_uint(0)
        counted = nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy)) == 0
        read = nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power)) == 0
        energy_mj, power_mw = energy.value if counted else None, power.value if read else None
        rows.append((uuid.value.decode(errors="replace"), time.monotonic(), time.time(), energy_mj, power_mw))
    return rows


if __name__ == "__main__":
    signal.alarm(PATIENCE_S)
    parent, target, took = os.getppid(), sys.argv[1], 1
    try:
        found = counts()
    except (OSError, AttributeError):
        found = []
    while True:
        with open(target + ".tmp", "w") as file:  # noqa: PTH123 - pathlib would double the time
            json.dump(found, file)
        os.replace(target + ".tmp", target)  # noqa: PTH105
        if took == UNREAD_S or os.getppid() != parent or all(row[3] is not None for row in found):
            break
        time.sleep(1)
        now, took = {row[0]: row[4] for row in counts()}, took + 1
        found = [(*row[:4], row[4] and row[4] + ((now.get(row[0]) or row[4]) - row[4]) // took) for row in found]
