"""Which boards a training process uses: names reported by its client, or before that CUDA_VISIBLE_DEVICES.

CUDA takes integers, a GPU UUID or any unique prefix of it, ``MIG-<uuid>`` and ``MIG-GPU-<uuid>/gi/ci``; the first
invalid entry hides itself and all after it, and an empty value hides everything (CUDA C++ programming guide). Integers
follow CUDA_DEVICE_ORDER, whose default may differ from NVML's order: with more than one board they are a guess until
the client has reported UUIDs.
"""

from __future__ import annotations

import re

from carbontui.power.devices import DeviceInfo

_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/\d+/\d+$")


def board_of(name: str, infos: tuple[DeviceInfo, ...]) -> str | None:
    """UUID of the board behind one name (UUID, unique prefix, UUID without "GPU-", either MIG form), or None."""
    name = name.strip()
    old = _OLD_MIG.match(name)
    if old:
        name = old[1]
    if name.startswith("MIG-"):
        return next((info.uuid for info in infos if any(part.startswith(name) for part in info.mig_uuids)), None)
    if not name:
        return None
    wanted = name if name.startswith("GPU-") else f"GPU-{name}"
    hits = [info.uuid for info in infos if info.uuid.lower().startswith(wanted.lower())]
    if not hits:
        # CUDA gives the UUID of a MIG slice without prefix, and a client cannot tell it from a board's
        part = f"MIG-{name.removeprefix('GPU-')}".lower()
        hits = [info.uuid for info in infos for uuid in info.mig_uuids if uuid.lower() == part]
    return hits[0] if len(hits) == 1 else None


def boards_of(names: tuple[str, ...], infos: tuple[DeviceInfo, ...]) -> tuple[str, ...]:
    """Boards behind the names a client reported, each once, in order; unknown names are omitted."""
    found = (board_of(name, infos) for name in names)
    return tuple(dict.fromkeys(uuid for uuid in found if uuid is not None))


def visible(value: str | None, infos: tuple[DeviceInfo, ...], order: str = "") -> tuple[tuple[str, ...], bool]:
    """Boards that CUDA_VISIBLE_DEVICES leaves visible, and whether that is certain; `order` is CUDA_DEVICE_ORDER."""
    if value is None:
        return tuple(info.uuid for info in infos), True
    found: list[str] = []
    certain = True
    whole = all(info.index == place for place, info in enumerate(infos))  # no board was lost before
    for entry in value.split(","):
        entry = entry.strip()
        if re.fullmatch(r"\d+", entry):
            uuid = infos[int(entry)].uuid if int(entry) < len(infos) else None
            certain = certain and whole and (len(infos) == 1 or order == "PCI_BUS_ID")  # NVML's own order
        else:
            uuid = board_of(entry, infos)
        if uuid is None:
            break
        if uuid in found and not entry.startswith("MIG-"):
            return (), certain  # duplicates are an error to CUDA: nothing is visible
        found.append(uuid)
    return tuple(dict.fromkeys(found)), certain or (whole and len(set(found)) == len(infos))
