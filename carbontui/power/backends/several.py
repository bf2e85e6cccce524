"""Several families of boards as one: each board is asked of its own. With one family it stands in for that one, which
is how what lies on top (declared watts, capd) wraps any."""

from msgspec import structs

from carbontui.power.backends import base
from carbontui.power.backends.base import Backend, DeviceError, DeviceInfo, RawReading


class Several(Backend):
    """The boards of all of these; a family that has none, or no library, is not heard of."""

    def __init__(self, *families: Backend) -> None:
        self._families = families
        self._owners: dict[str, Backend] = {}

    def _of(self, uuid: str) -> Backend:
        if uuid not in self._owners:
            self._owners = {info.uuid: family for family in self._families for info in family.devices()}
        return self._owners[uuid]

    def _shown(self) -> tuple[Backend, ...]:
        """The families that have boards."""
        return tuple(one for one in self._families if one.devices() or one.absent)

    @property
    def name(self) -> str:  # type: ignore[override]
        return "+".join(one.name for one in self._shown() or self._families[:1])

    @property
    def driver(self) -> str:
        return ", ".join(one.driver for one in self._shown() or self._families[:1])

    @property
    def absent(self) -> tuple[tuple[int, str], ...]:
        return tuple(gone for one in self._families for gone in one.absent)

    @property
    def broken(self) -> bool:
        return any(one.broken for one in self._families)

    @property
    def incomplete(self) -> bool:
        return any(one.incomplete for one in self._families)

    @property
    def through(self) -> str:
        return next((one.through for one in self._families if one.through), "")

    @property
    def away(self) -> bool:
        return any(one.away for one in self._families)

    def open(self) -> None:
        """Raises what a family says, unless another one opens: then it is one of `troubles`."""
        failed: list[tuple[Backend, DeviceError]] = []
        for family in self._families:
            try:
                family.open()
            except DeviceError as error:
                failed.append((family, error))
        loud = [(one, error) for one, error in failed if error.code != base.NO_LIBRARY]
        self.troubles = ()
        if len(failed) == len(self._families) or (loud and not self._shown()):
            raise (loud or failed)[0][1]
        self.troubles = tuple(f"{one.name}: {error}" for one, error in loud)

    def devices(self) -> tuple[DeviceInfo, ...]:
        found = [family.devices() for family in self._families]
        several = sum(1 for infos in found if infos) > 1
        infos = [info for family in found for info in family]
        # the numbers of each family begin at 0; here each board has its own
        return tuple(structs.replace(info, index=place) if several else info for place, info in enumerate(infos))

    def sample(self, uuid: str) -> RawReading:
        return self._of(uuid).sample(uuid)

    def setter(self, uuid: str) -> str | None:
        return self._of(uuid).setter(uuid)

    def limit_mw(self, uuid: str) -> int:
        return self._of(uuid).limit_mw(uuid)

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        self._of(uuid).set_limit_mw(uuid, milliwatts)

    def lock_clocks(self, uuid: str, mhz: int | None) -> None:
        self._of(uuid).lock_clocks(uuid, mhz)

    def processes(self, uuid: str) -> dict[int, int]:
        return self._of(uuid).processes(uuid)

    def everyone(self, uuid: str) -> tuple[int, ...]:
        return self._of(uuid).everyone(uuid)

    def kernels(self, uuid: str) -> dict[int, float]:
        return self._of(uuid).kernels(uuid)

    def drive(self, activity: float | None, duty: float) -> None:
        for family in self._families:
            family.drive(activity, duty)

    def beat(self) -> bool:
        return True in [family.beat() for family in self._families]

    def close(self) -> None:
        for family in self._families:
            family.close()


def families() -> tuple[Backend, ...]:
    """Those of every maker; each loads its library when it is opened."""
    from carbontui.power.backends.amd import AmdBackend
    from carbontui.power.backends.nvml import NvmlBackend

    return NvmlBackend(), AmdBackend()
