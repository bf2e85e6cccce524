"""A simulated GPU: a pure model for the demo and for tests, never mixed with real devices.

A shape, not data: the constants resemble an H100-class board (bare idle 70 W, a parked model 118 W, 680 W busy, limits
200..700 W) so that the screen shows realistic proportions. All values from here are labelled simulated, and no saving
computed with them is a result.

Power at relative clock x (1 = full clock) while kernels run:  parked + (full - parked) * (k*x + (1 - k)*x**3)
Speed at relative clock x with a memory-bound share m:          1 / ((1 - m)/x + m)
A power limit picks the highest clock that fits. Speed as a function of watts is therefore concave.
"""

import math
from collections.abc import Callable

from msgspec import Struct, structs

from carbontui import units
from carbontui.power.backends.base import REASON_POWER_CAP, Backend, DeviceInfo, RawReading


class SimulatedSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Constants of the model; one spec describes `count` equal boards."""

    count: int = 1
    name: str = "Simulated GPU"
    idle_w: float = 70.0
    """Bare idle: no process on the board."""
    parked_w: float = 118.0
    """A process with its model in memory, no kernel running."""
    full_w: float = 680.0
    limit_min_w: float = 200.0
    limit_max_w: float = 700.0
    memory_b: int = 80 * 2**30
    model_b: int = 30 * 2**30
    clock_mhz: float = 1980.0
    linear_share: float = 0.4
    """k: share of the power that falls linearly with the clock."""
    memory_share: float = 0.3
    """m: share of the time that does not depend on the clock."""
    ambient_c: float = 30.0
    kelvin_per_w: float = 0.06
    thermal_s: float = 40.0
    """Time constant of the temperature."""
    leak_per_k: float = 0.0003
    """Extra power per kelvin above 60 degrees: why caps are compared only after settling."""
    lag_s: float = 0.15
    """Time constant of the power: parked to within 0.2 % one second after the last kernel."""

    points: tuple[tuple[float, float, float], ...] = ()
    """(limit in watts, watts drawn when busy, speed) of measured trainings, ascending, the last without a limit; they
    replace the formulas above."""

    def clock_share(self, limit_w: float) -> float:
        """Relative clock x, 0.1..1, under a limit."""
        room = (limit_w - self.parked_w) / (self.full_w - self.parked_w)
        low, high = 0.1, 1.0
        if self._load(high) <= room:
            return high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self._load(middle) <= room else (low, middle)
        return low

    def speed(self, limit_w: float) -> float:
        """Steps per second under a limit, relative to no limit."""
        if self.points:
            return units.between(self.points, limit_w)[2]
        x = self.clock_share(limit_w)
        return 1.0 / ((1.0 - self.memory_share) / x + self.memory_share)

    def busy_w(self, limit_w: float) -> float:
        """Watts with kernels always in flight, at 60 degrees or below."""
        if self.points:
            return min(limit_w, units.between(self.points, limit_w)[1])
        x = self.clock_share(limit_w)
        return self.parked_w + (self.full_w - self.parked_w) * self._load(x)

    def _load(self, x: float) -> float:
        return self.linear_share * x + (1.0 - self.linear_share) * x**3


class SimulatedState(Struct, frozen=True):
    """One board at one moment. `activity` is None while no process uses it, else 0 (parked) to 1 (training)."""

    limit_w: float
    power_w: float
    temp_c: float
    energy_uj: float = 0.0
    activity: float | None = None
    duty: float = 1.0


def fresh(spec: SimulatedSpec) -> SimulatedState:
    """A cold, idle board."""
    warm = spec.ambient_c + spec.kelvin_per_w * spec.idle_w
    return SimulatedState(limit_w=spec.limit_max_w, power_w=spec.idle_w, temp_c=warm)


def target_w(spec: SimulatedSpec, state: SimulatedState) -> float:
    """Where the power settles."""
    if state.activity is None:
        return spec.idle_w
    share = max(0.0, min(1.0, state.activity)) * max(0.0, min(1.0, state.duty))
    busy = spec.busy_w(state.limit_w)
    leak = 1.0 + spec.leak_per_k * max(0.0, state.temp_c - 60.0)
    return min(state.limit_w, spec.parked_w + share * (busy * leak - spec.parked_w))


def advance(spec: SimulatedSpec, state: SimulatedState, dt_s: float) -> SimulatedState:
    """The board dt_s later, activity, duty and limit held; energy is the exact integral of the power's relaxation."""
    if dt_s <= 0:
        return state
    goal = target_w(spec, state)
    decay = math.exp(-dt_s / spec.lag_s)
    joules = goal * dt_s + (state.power_w - goal) * spec.lag_s * (1.0 - decay)
    warm = spec.ambient_c + spec.kelvin_per_w * goal
    return structs.replace(
        state,
        power_w=goal + (state.power_w - goal) * decay,
        temp_c=warm + (state.temp_c - warm) * math.exp(-dt_s / spec.thermal_s),
        energy_uj=state.energy_uj + joules * 1e6,
    )


class SimulatedBackend(Backend):
    """Boards of this model, advanced by the clock that is handed in."""

    name = "simulated"
    driver = "simulated"

    def __init__(self, spec: SimulatedSpec, clock: Callable[[], float]) -> None:
        self.spec = spec
        self._clock = clock
        self._at = clock()
        self._boards: dict[str, SimulatedState] = {f"GPU-simulated-{i}": fresh(spec) for i in range(spec.count)}

    def open(self) -> None:
        self._at = self._clock()

    def devices(self) -> tuple[DeviceInfo, ...]:
        spec = self.spec
        return tuple(
            DeviceInfo(
                uuid=uuid,
                name=spec.name,
                index=index,
                simulated=True,
                limit_min_mw=round(spec.limit_min_w * 1000),
                limit_max_mw=round(spec.limit_max_w * 1000),
                limit_default_mw=round(spec.limit_max_w * 1000),
                memory_total_b=spec.memory_b,
            )
            for index, uuid in enumerate(self._boards)
        )

    def drive(self, activity: float | None, duty: float) -> None:
        self._advance()
        for uuid, board in self._boards.items():
            self._boards[uuid] = structs.replace(board, activity=activity, duty=duty)

    def sample(self, uuid: str) -> RawReading:
        self._advance()
        spec, board = self.spec, self._boards[uuid]
        busy = (board.activity or 0.0) * board.duty
        x = spec.clock_share(board.limit_w)
        return RawReading(
            energy_uj=round(board.energy_uj),
            power_w=round(board.power_w, 3),
            kind="instant",
            limit_mw=round(board.limit_w * 1000),
            sm_mhz=spec.clock_mhz * (x if busy > 0 else 0.17),
            util=busy,
            memory_used_b=0 if board.activity is None else spec.model_b,
            temp_c=round(board.temp_c, 1),
            reasons=REASON_POWER_CAP if busy > 0 and x < 1 else 0,
        )

    def limit_mw(self, uuid: str) -> int:
        return round(self._boards[uuid].limit_w * 1000)

    def set_limit_mw(self, uuid: str, milliwatts: int) -> None:
        self._advance()
        self._boards[uuid] = structs.replace(self._boards[uuid], limit_w=milliwatts / 1000)

    def _advance(self) -> None:
        now = self._clock()
        for uuid, board in self._boards.items():
            self._boards[uuid] = advance(self.spec, board, now - self._at)
        self._at = now
