"""Which boards a job uses if neither its script nor its environment says so: those with a process of the job.

The driver lists the processes of each board. Until one of ours appears, every visible board may become the job's; from
then on only the boards with a process of ours are. In containers the driver may list host pids, or none: a board with
memory or kernels in use and no visible process of ours stays a candidate as long as no other board is known.
"""

import re
from collections.abc import Iterable, Mapping

from carbontui.power.backends.base import DeviceInfo, RawReading
from carbontui.system import proc

GRACE_S = 30.0
"""A training process has opened its boards this long after its start, or will be seen when it does."""
SEEK_FOR_S = 120.0
"""Boards are usually opened within this time; later the normal rate of listing processes finds them too."""
BARE_SHARE = 0.01
"""Share of memory in use on a board without any process: a few hundred MiB of 80 GiB belong to the driver itself."""

BoardPids = tuple[int, ...] | None
"""Processes on a board; None if the driver does not report them."""


class JobBoards:
    """The boards of one job, resolved with each wish from its supervisor."""

    uuids: tuple[str, ...] = ()
    certain = True
    """The script named them, the environment left no doubt, or the driver shows a process of the job on each."""
    by_process = False
    """The boards are those with a process of the job."""
    seeking = False
    """The job has started and none of its processes has been seen on a board yet."""
    visible: tuple[str, ...] = ()
    """The boards that may be the job's."""
    _visible: tuple[str, ...] = ()
    _since_s: float | None = None

    def given(self, uuids: tuple[str, ...]) -> None:
        """The script has named its boards; or all are used, without a job or simulated."""
        self.uuids = self.visible = uuids
        self.certain, self.by_process, self.seeking = True, False, False

    def find(
        self,
        infos: tuple[DeviceInfo, ...],
        environment: Mapping[str, str],
        own: tuple[int, ...],
        pids: Mapping[str, BoardPids],
        raw_readings: Mapping[str, RawReading],
        now_s: float,
        known: tuple[str, ...] = (),
    ) -> None:
        """No boards were named: use those visible to CUDA by `environment`, then those with a process of `own`.

        Boards once seen with one, or `known` to a predecessor, stay the job's while it is on none: it is unloaded,
        restarts, or has ended.
        """
        self.visible, self.certain = visible_to(environment, infos)
        if not own:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        used = tuple(uuid for uuid in self.visible if any(proc.belongs(pid, own) for pid in pids.get(uuid) or ()))
        self._visible = used or tuple(uuid for uuid in self._visible or known if uuid in self.visible)
        self.by_process = bool(self._visible)
        self.certain = self.certain or self.by_process
        self.uuids = self._visible or self.visible
        self.seeking = not self._visible and self._since_s is not None and now_s - self._since_s < SEEK_FOR_S
        if not self._visible and self._since_s is not None and now_s - self._since_s >= GRACE_S:
            bare = {info.uuid for info in infos if _bare(info, pids, raw_readings)}
            self.uuids = tuple(uuid for uuid in self.visible if uuid not in bare)


def hidden(pids: Mapping[str, BoardPids]) -> frozenset[int]:
    """Processes that the driver lists with pids unknown here: those of a host, seen from a container."""
    return frozenset(pid for listed in pids.values() for pid in listed or () if not proc.exists(pid))


def _bare(info: DeviceInfo, pids: Mapping[str, BoardPids], raw_readings: Mapping[str, RawReading]) -> bool:
    """Whether no process uses this board."""
    raw = raw_readings.get(info.uuid)
    if raw is None or pids.get(info.uuid, ()) != () or info.mig:
        return False
    memory = (raw.memory_used_b or 0) > BARE_SHARE * (info.memory_total_b or 0)
    return not memory and not raw.util


_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/\d+/\d+$")


def visible_to(environment: Mapping[str, str], infos: tuple[DeviceInfo, ...]) -> tuple[tuple[str, ...], bool]:
    """Boards that the variables of CUDA and ROCm leave visible, and whether that is certain."""
    cuda = environment.get("CUDA_VISIBLE_DEVICES")
    nvidia = tuple(info for info in infos if info.maker == "nvidia")
    found, certain = visible(cuda, nvidia, environment.get("CUDA_DEVICE_ORDER", "")) if nvidia else ((), True)
    amd = tuple(info for info in infos if info.maker == "amd")
    return (*found, *hip_visible(environment, amd)), certain


def hip_visible(environment: Mapping[str, str], infos: tuple[DeviceInfo, ...]) -> tuple[str, ...]:
    """Boards that ROCR_VISIBLE_DEVICES (numbers or UUIDs), and of those HIP_VISIBLE_DEVICES, or else
    CUDA_VISIBLE_DEVICES, leave visible (ROCm: GPU isolation techniques). Each die of a board has its own number."""
    dies = sorted(
        (number, die, info.uuid) for info in infos for number, die in zip(info.ordinals, info.dies, strict=True)
    )
    by_hip = environment.get("HIP_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES"))
    for value in (environment.get("ROCR_VISIBLE_DEVICES"), by_hip):
        if value is None:
            continue
        chosen: list[tuple[int, str, str]] = []
        for entry in value.split(","):
            entry = entry.strip()
            if entry.isdigit():
                hits = dies[int(entry) : int(entry) + 1]
            else:
                hits = [die for die in dies if entry and die[1].lower() == entry.lower()]
            if not hits:
                break  # it hides itself and all after it
            chosen += hits
        dies = chosen
    return tuple(dict.fromkeys(board for _, _, board in dies))


def board_of(name: str, infos: tuple[DeviceInfo, ...]) -> str | None:
    """UUID of the board behind one name (UUID, unique prefix, UUID without "GPU-", either MIG form), or None."""
    name = _OLD_MIG.sub(r"\1", name.strip())
    if name.startswith("MIG-"):
        return next((info.uuid for info in infos if any(part.startswith(name) for part in info.mig_uuids)), None)
    if not name:
        return None
    wanted = (name if name.startswith("GPU-") else f"GPU-{name}").lower()
    of = {info.uuid: [uuid.lower() for uuid in info.dies or (info.uuid,)] for info in infos}
    forms = (wanted, _torch_form(wanted))
    hits = [uuid for uuid, dies in of.items() if any(die.startswith(form) for die in dies for form in forms if form)]
    if not hits:
        # CUDA gives the UUID of a MIG slice without prefix, and a client cannot tell it from a board's
        part = f"MIG-{name.removeprefix('GPU-')}".lower()
        hits = [info.uuid for info in infos for uuid in info.mig_uuids if uuid.lower() == part]
    return hits[0] if len(hits) == 1 else None


def _torch_form(name: str) -> str:
    """torch on ROCm gives the letters of a board's UUID as hexadecimal numbers; '' if this is not such a name."""
    try:
        letters = bytes.fromhex(name.removeprefix("gpu-").replace("-", "")).decode("ascii")
    except ValueError:
        return ""
    return f"gpu-{letters.lower()}" if letters.isalnum() else ""


def slices_share(names: Iterable[str], info: DeviceInfo) -> float | None:
    """The part of a board's slices that these names stand for; of a board in slices CUDA takes the first one where
    none is named. None: it is not in slices. The driver does not tell what each slice draws."""
    total = sum(info.mig_sizes)
    if not info.mig or not total:
        return None
    named = [name.strip().removeprefix("GPU-").removeprefix("MIG-").lower() for name in names]
    own = [
        size
        for uuid, size in zip(info.mig_uuids, info.mig_sizes, strict=True)
        if any(name and uuid.removeprefix("MIG-").lower().startswith(name) for name in named)
    ]
    return (sum(own) or info.mig_sizes[0]) / total


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
