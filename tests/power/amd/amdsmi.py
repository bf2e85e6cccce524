"""A stand-in for AMD's amdsmi, with the names, units and habits of version 7: text "N/A" for what a board does not
have, microwatts for limits, MiB for memory, an accumulator with a resolution. Its boards live in one file
(AMDSMI_STATE), which every process reads and changes under a lock, so a limit outlives who set it and the joules go on
while nobody looks. A die with `second` is the second one of a package, whose watts the one before it tells.
"""

import builtins
import contextlib
import enum
import fcntl
import json
import os
import time

STATE = os.environ["AMDSMI_STATE"]
UNUSED = "N/A"


class AmdSmiInitFlags(enum.IntEnum):
    INIT_AMD_GPUS = 2


class AmdSmiClkType(enum.IntEnum):
    GFX = 0
    MEM = 4


class AmdSmiTemperatureType(enum.IntEnum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(enum.IntEnum):
    CURRENT = 0


class AmdSmiDevPerfLevel(enum.IntEnum):
    AUTO = 0


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code):
        super().__init__(err_code)
        self.err_code = err_code

    def get_error_code(self):
        return self.err_code


@contextlib.contextmanager
def machine(write=False):
    """The state of all boards, as of now."""
    with open(STATE + ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(STATE) as file:
            state = json.load(file)
        yield state
        if write:
            with open(STATE + ".new", "w") as file:
                json.dump(state, file)
            os.replace(STATE + ".new", STATE)


def now_s(state):
    return state.get("clock_s", time.monotonic())


def watts(board):
    """What the package draws: by its limit where that works, and by its clock."""
    share = (min(board["lock_mhz"] or board["max_mhz"], board["max_mhz"]) / board["max_mhz"]) ** 2
    full = board["idle_w"] + (board["full_w"] - board["idle_w"]) * board["level"] * share
    return min(full, board["cap_uw"] / 1e6) if board["cap_works"] and board["cap_uw"] else full


def settle(state):
    """Book the joules up to now; call before anything changes."""
    now = now_s(state)
    for board in state["boards"]:
        joules = watts(board) * max(0.0, now - board["at_s"])
        board["true_j"] += joules
        if not board.get("counter_stuck"):
            board["counted_j"] += joules * board.get("counter_factor", 1.0)
        board["at_s"] = now


def _board(handle, call):
    with machine() as state:
        settle(state)
        board = state["boards"][handle]
        if code := board.get("errors", {}).get(call) or state.get("errors", {}).get(call):
            raise AmdSmiLibraryException(code)
        return board, state


def _change(handle, call, **fields):
    _board(handle, call)
    with machine(write=True) as state:
        settle(state)
        board = state["boards"][handle]
        if board.get("denied") or (os.environ.get("AMDSMI_DENIED") and board.get("denied") is None):
            raise AmdSmiLibraryException(10)
        board.update(fields)
        board["writes"] = board.get("writes", 0) + 1


def amdsmi_init(flag=AmdSmiInitFlags.INIT_AMD_GPUS):
    with machine() as state:
        if code := state.get("errors", {}).get("init"):
            raise AmdSmiLibraryException(code)


def amdsmi_shut_down():
    pass


def amdsmi_get_processor_handles():
    with machine() as state:
        return list(range(len(state["boards"])))


def amdsmi_get_gpu_asic_info(handle):
    board, _ = _board(handle, "asic")
    return {"market_name": board["name"], "asic_serial": board["serial"], "vendor_name": "Advanced Micro Devices"}


def amdsmi_get_gpu_device_bdf(handle):
    return _board(handle, "bdf")[0]["bdf"]


def amdsmi_get_gpu_device_uuid(handle):
    return f"c4ff74a1-0000-1000-80e4-00000000000{handle}"


def amdsmi_get_gpu_enumeration_info(handle):
    return {"hip_id": _board(handle, "enumeration")[0].get("hip_id", handle), "drm_card": handle}


def amdsmi_get_gpu_driver_info(handle):
    return {"driver_name": "amdgpu", "driver_version": "6.10.5", "driver_date": UNUSED}


def amdsmi_get_power_info(handle):
    board, _state = _board(handle, "power")
    drawn = UNUSED if board.get("no_watts") else round(watts(board))
    if board.get("second") is not None:
        drawn = board.get("odd_reads", 0)
    field = board.get("field", "current_socket_power")
    other = "average_socket_power" if field == "current_socket_power" else "current_socket_power"
    return {"socket_power": drawn, field: drawn, other: UNUSED, "power_limit": board["cap_uw"], "gfx_voltage": UNUSED}


def amdsmi_get_energy_count(handle):
    board, _ = _board(handle, "energy")
    counted = 0 if board.get("second") is not None else board["counted_j"]
    return {"energy_accumulator": round(counted * 1e6 / 15.3), "counter_resolution": 15.3, "timestamp": 1}


def amdsmi_get_power_cap_info(handle):
    board, _ = _board(handle, "cap")
    least, most = board["range_uw"]
    return {
        "power_cap": board["cap_uw"],
        "default_power_cap": board["default_uw"],
        "dpm_cap": 0,
        "min_power_cap": least,
        "max_power_cap": most,
    }


def amdsmi_get_clock_info(handle, kind):
    board, _ = _board(handle, "clock")
    runs = min(board["lock_mhz"] or board["max_mhz"], board["max_mhz"])
    return {"clk": runs, "min_clk": 132, "max_clk": board["max_mhz"], "clk_locked": UNUSED, "clk_deep_sleep": UNUSED}


def amdsmi_get_temp_metric(handle, kind, metric):
    return _board(handle, "temperature")[0].get("temp", 61)


def amdsmi_get_gpu_activity(handle):
    level = _board(handle, "activity")[0]["level"]
    return {"gfx_activity": round(100 * level), "umc_activity": UNUSED, "mm_activity": UNUSED}


def amdsmi_get_gpu_vram_usage(handle):
    board, _ = _board(handle, "vram")
    used = sum(one["mem"] for one in board.get("processes", ())) >> 20
    return {"vram_total": 192 << 10, "vram_used": used + 300}


def amdsmi_get_gpu_process_list(handle):
    board, state = _board(handle, "processes")
    passed = now_s(state) - board["begun_s"]
    return [
        {
            "name": UNUSED,
            "pid": one["pid"],
            "mem": one["mem"],
            "engine_usage": {"gfx": round(1e9 * one.get("gfx", 0.0) * passed), "enc": 0},
            "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": one["mem"]},
            "cu_occupancy": UNUSED,
        }
        for one in board.get("processes", ())
    ]


def amdsmi_get_gpu_total_ecc_count(handle):
    return {"correctable_count": 3, "uncorrectable_count": _board(handle, "ecc")[0].get("ecc", 0), "deferred_count": 0}


def amdsmi_set_power_cap(handle, sensor, cap):
    assert isinstance(cap, int) and sensor == 0
    board, _ = _board(handle, "set_cap")
    least, most = board["range_uw"]
    if not least <= cap <= most or (board.get("refuses_lower") and cap < board["default_uw"]):
        raise AmdSmiLibraryException(1)
    _change(handle, "set_cap", cap_uw=cap)


def amdsmi_set_gpu_clk_range(handle, least, most, kind):
    assert kind == AmdSmiClkType.GFX and least <= most
    _change(handle, "set_clock", lock_mhz=most)


def amdsmi_set_gpu_perf_level(handle, level):
    assert level == AmdSmiDevPerfLevel.AUTO
    _change(handle, "set_level", lock_mhz=0)


if os.environ.get("AMDSMI_BROKEN"):
    print("Unable to find libamd_smi.so library try installing amd-smi-lib from your package manager")
    raise getattr(builtins, os.environ["AMDSMI_BROKEN"])("libamd_smi.so")
