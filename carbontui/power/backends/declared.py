"""Boards whose power cannot be read: watts from a limit (TDP) and a utilisation given by the user.

They are used where the driver reports neither watts nor energy, and where no driver shows a board at all; a board that
can be measured is measured. All values from here are of kind "model": an estimate, labelled as such.
"""

from msgspec import Struct, structs

from carbontui.power.backends.base import Backend, DeviceInfo, RawReading
from carbontui.power.backends.several import Several

UUID = "GPU-declared-"
PARKED_SHARE, PARKED_AT_MOST_W = 1 / 3, 90.0
IDLE_SHARE = 1 / 6
"""Idle watts as a share of the limit, with and without a model in memory; a plan assumes the same until measured."""


class DeclaredBoards(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The user's figures for `count` equal boards."""

    tdp_w: float
    utilisation: float | None = None
    """Share of `tdp_w` drawn when busy; None: as reported by the driver, else 1."""
    name: str = "GPU as given"
    count: int = 1

    def watts(self, activity: float | None, duty: float, driver_util: float | None) -> float:
        """Watts of one board; `activity` None while no process uses it, else 0 (parked) to 1 (busy)."""
        idle_w = self.tdp_w * IDLE_SHARE
        if activity is None:
            return idle_w
        if self.utilisation is not None:
            at_work_w = self.tdp_w * self.utilisation
        else:
            at_work_w = self.tdp_w if driver_util is None else max(idle_w, self.tdp_w * driver_util)
        parked_w = min(PARKED_AT_MOST_W, self.tdp_w * PARKED_SHARE, at_work_w)
        return parked_w + activity * duty * (at_work_w - parked_w)


class DeclaredBackend(Several):
    """Wraps a backend and fills in watts it cannot read; provides the boards if it has none."""

    def __init__(self, beneath: Backend, declared: DeclaredBoards) -> None:
        super().__init__(beneath)
        self._declared = declared
        self._activity: float | None = 1.0
        self._duty = 1.0

    @property
    def name(self) -> str:  # type: ignore[override]
        return "declared" if self.stands_alone else super().name

    @property
    def stands_alone(self) -> bool:
        return not super().devices()

    def _of(self, uuid: str) -> Backend:
        return Backend() if self.stands_alone else super()._of(uuid)

    def drive(self, activity: float | None, duty: float) -> None:
        self._activity, self._duty = activity, duty

    def devices(self) -> tuple[DeviceInfo, ...]:
        given = self._declared
        ours = (DeviceInfo(uuid=f"{UUID}{index}", name=given.name, index=index) for index in range(given.count))
        return super().devices() or tuple(ours)

    def sample(self, uuid: str) -> RawReading:
        if self.stands_alone:
            return RawReading(power_w=round(self._declared.watts(self._activity, self._duty, None), 3), kind="model")
        raw = super().sample(uuid)
        if raw.lost or raw.power_w is not None or raw.energy_uj is not None:
            return raw
        watts = self._declared.watts(self._activity, self._duty, raw.util)
        if raw.limit_mw is not None:
            watts = min(watts, raw.limit_mw / 1000)
        errors = tuple(error for error in raw.errors if error[0] != "power_w")
        return structs.replace(raw, power_w=round(watts, 3), kind="model", errors=errors)
