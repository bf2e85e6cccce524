"""Boards in their maker's words: why its driver refuses, and its own commands for what can be done by hand."""

from collections.abc import Mapping
from typing import NamedTuple

DRIVER = {
    2: "invalid argument",
    3: "not supported by this GPU or driver",
    4: "no permission",
    10: "the driver timed out",
    15: "the GPU is lost",
    16: "the GPU needs a reset",
    999: "unknown driver error",
}
"""Codes of a driver (NVML's numbers) that mean the same for every maker."""


class Maker(NamedTuple):
    """One maker's words. In the commands `board` is what the maker's tool calls the board."""

    board: str
    """A board without a name."""
    tool: str
    """What an administrator changes limits with."""
    limit: str
    unlock: str
    lock: str
    inspect: str
    codes: Mapping[int, str]


MAKERS = {
    "nvidia": Maker(
        board="NVIDIA GPU",
        tool="nvidia-smi",
        limit="nvidia-smi -i {board} -pl {watts}",
        unlock="nvidia-smi -i {board} -rgc",
        lock="nvidia-smi -i {board} -lgc 0,{mhz}",
        inspect="nvidia-smi -q -d POWER",
        codes={
            1: "NVML is not initialised",
            9: "the NVIDIA driver is not loaded",
            12: "no NVIDIA driver library on this machine",
            13: "this driver is too old for that call",
            18: "driver and library versions differ: the driver was upgraded, reboot or reload it",
        },
    ),
    "amd": Maker(
        board="AMD GPU",
        tool="amd-smi",
        limit="amd-smi set --gpu {board} --power-cap {watts}",
        unlock="amd-smi reset --gpu {board} --clocks",
        lock="amd-smi set --gpu {board} --clk-limit sclk max {mhz}",
        inspect="amd-smi static --limit",
        codes={
            1: "AMD SMI is not initialised",
            9: "the AMD driver (amdgpu) is not loaded",
            12: "no working AMD SMI library on this machine",
            13: "this amdsmi is too old for that call",
        },
    ),
}


def of(maker: str) -> Maker:
    """A maker's words; another version's maker is one of ours to it."""
    return MAKERS.get(maker, MAKERS["nvidia"])


def driver(code: int | None, maker: str = "nvidia") -> str:
    """Why the driver did not answer."""
    if code is None:
        return "not asked"
    return DRIVER.get(code) or of(maker).codes.get(code) or f"driver error {code}"


def limit_command(maker: str, board: str, limit_mw: int) -> str:
    """The command that sets a power limit by hand."""
    watts = f"{limit_mw / 1000:.3f}".rstrip("0").rstrip(".")
    return "sudo " + of(maker).limit.format(board=board, watts=watts)


def permission(maker: str, board: str, *, watts: float | None = None, mhz: int | None = None, root: bool) -> str:
    """How to get the permission for a limit, or a clock lock, or to work without it; `root`: in a container."""
    words = of(maker)
    command = words.lock.format(board=board, mhz=mhz)
    if watts is not None:
        command = words.limit.format(board=board, watts=f"{watts:.0f}")
    if root:
        return f"give the container --cap-add SYS_ADMIN, or set the limit on the host: {command}"
    return (
        "ask your administrator for 'sudo carbontui capd install' (it lowers limits on GPUs that only you use, "
        f"restores them, and does nothing else), run carbontui as root, or set the limit yourself: sudo {command}"
    )
