"""The meter: samples in, labelled joules out. Pure: no clock, no file, no device.

Every joule carries a label of how it was obtained:

- ``counter``     difference of the device's own energy counter (exact over any gap)
- ``integrated``  power readings over time, where there is no usable counter
- ``late``        likewise, where 1 s averages are so far apart that none covers part of the time
- ``gap``         no reading for more than GAP_S: the last power, extrapolated
- ``unmetered``   a counter that the board's momentary readings contradict: nobody can say which is right
- ``model``       an estimate from utilisation, not a measurement

A counter's step is possible when 0 <= delta <= 1.5 * max power * time (plus one tick of the counter); anything else (a
reset, a driver reload, an absurd jump) starts a new epoch and that interval is counted from power. Whether the counter
is believed at all is `witness.CheckedCounter`'s verdict: until it has agreed with the power for a minute its joules are
labelled ``integrated``, and what it miscounted until it was found out is made up for. The sensor behind NVML's numbers
is accurate to about +-5 %, regardless of the label.

Integrated from instantaneous readings, joules are only unbiased: a sensor active for 25 of each 100 ms samples bursts
in phase with it at the same few points for ever. In simulation bursts of 250 ms are up to 20 % off, those of 1.7 s 4 %
and those of 100 ms more than 100 %; if each period varies by 2 % the errors are 4, 1 and 80 % over a minute and keep
shrinking. Nothing in the readings shows which case applies, so nothing here corrects it. Counters and 1 s averages
are not affected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from carbontui.power.messages import MeterVerdict, Method, Sample
from carbontui.power.metering.witness import CheckedCounter

GAP_S, LATE_S = 5.0, 2.0
MISSED_S = 1.5
"""At the end of a job, after which no look comes: longer without one, and its last seconds were not read."""
BELIEVABLE = 1.5
TICK_S = 0.25
"""Tolerance for the counter's own tick (20..100 ms on known boards) and the jitter of our reading."""
STUCK_S = 5.0
"""A counter that does not move for this long while power is drawn is not used."""
DEFAULT_MAX_W = 1500.0


class Increment(Struct, frozen=True):
    """Joules of one device over [t0_s, t1_s] (epoch seconds)."""

    uuid: str
    joules: float
    method: Method
    t0_s: float
    t1_s: float


class _Anchor(Struct):
    """The last good reading of a device, and what was seen since the counter last moved."""

    mono_s: float
    wall_s: float
    energy_uj: int | None
    power_w: float | None
    seen_s: float
    """Monotonic time of the last reading, later than mono_s while the counter does not move."""
    pending_j: float = 0.0
    counted_j: float = 0.0
    """What the counter has shown of the last interval, if it was booked as its own."""
    short_j: float = 0.0
    """By how much that is less than the power over it."""
    absent: bool = False
    """The board has been lost since."""


class _State(Struct):
    boot_id: str
    anchors: dict[str, _Anchor]
    joules: dict[str, dict[Method, float]]
    checks: dict[str, CheckedCounter] = {}


class Meter:
    """Adds samples of any number of devices, keyed by UUID."""

    def __init__(self) -> None:
        self._anchors: dict[str, _Anchor] = {}
        self._joules: dict[str, dict[Method, float]] = {}
        self._checks: dict[str, CheckedCounter] = {}

    def add(self, sample: Sample, *, unread: bool = False) -> tuple[Increment, ...]:
        """The joules between this sample and the last one of the same device; none for the first. `unread`: what was
        drawn in the interval is assumed, the last power: a gap."""
        last = self._anchors.get(sample.uuid)
        if sample.lost:
            # what was measured stays; a board that returns with its counter intact fills the gap
            if last is not None:
                last.absent = True
            return ()
        if sample.energy_uj is None and sample.power_w is None:
            return ()
        if last is None or (last.absent and not self._counted_through(last, sample)):
            self._anchor(sample)
            return ()
        if sample.mono_s <= last.seen_s:
            return ()
        made = self._between(last, sample)
        if made is None:
            return ()
        dt = sample.mono_s - last.mono_s
        joules, method = made
        if unread:
            joules, method = (last.power_w or 0.0) * dt, "gap"
        # a stepped wall clock or a suspended host must not place energy at times that were not measured
        t0 = last.wall_s if abs((sample.wall_s - last.wall_s) - dt) <= 2.0 else sample.wall_s - dt
        if (check := self._checks.get(sample.uuid)) is not None:
            joules = check.settled(joules, _bound_j(sample, dt))
        increments = [Increment(sample.uuid, joules, method, t0, sample.wall_s)]
        if sample.energy_uj is not None and sample.energy_uj == last.energy_uj and last.counted_j:
            # it stood still from a moment of the interval before on: that is nothing a counter has measured
            at, meant_j = (last.wall_s, last.wall_s), last.counted_j + last.short_j
            increments.append(Increment(sample.uuid, -last.counted_j, "counter", *at))
            increments.append(Increment(sample.uuid, meant_j, method, *at))
        self._anchor(sample)
        if method == "counter":
            by_power = self._from_power(last, sample)
            self._anchors[sample.uuid].counted_j = joules
            self._anchors[sample.uuid].short_j = max(0.0, by_power[0] - joules) if by_power else 0.0
        ledger = self._joules.setdefault(sample.uuid, {})
        for one in increments:
            ledger[one.method] = ledger.get(one.method, 0.0) + one.joules
        return tuple(increments)

    def carry_on(self, uuids: Iterable[str], mono_s: float, wall_s: float) -> tuple[Increment, ...]:
        """Extrapolate devices not read for longer than MISSED_S up to now from the last power, as a gap: for the end of
        a job whose driver hangs, where no later sample will come."""
        made: list[Increment] = []
        for uuid in uuids:
            last = self._anchors.get(uuid)
            if last is not None and not last.absent and last.power_w is not None and mono_s - last.seen_s > MISSED_S:
                made += self.add(Sample(uuid=uuid, mono_s=mono_s, wall_s=wall_s, power_w=last.power_w), unread=True)
        return tuple(made)

    def _between(self, last: _Anchor, sample: Sample) -> tuple[float, Method] | None:
        """Joules since `last` and their label; None while a counter that stands still may move yet."""
        if sample.energy_uj is None or last.energy_uj is None or sample.how == "estimated":
            return self._from_power(last, sample)
        dt, delta_j = sample.mono_s - last.mono_s, (sample.energy_uj - last.energy_uj) / 1e6
        check = self._check(sample)
        if not 0 <= delta_j <= _bound_j(sample, dt):
            if check is not None:
                check.jumped(ahead=delta_j > 0)
            return self._from_power(last, sample)
        if delta_j == 0 and (sample.power_w or 0.0) > 1.0 and (check is None or not check.doubted):
            return self._standing(last, sample, check)
        by_power = self._from_power(last, sample)
        if check is None or by_power is None:
            return delta_j, "counter"
        if dt > GAP_S or sample.power_w is None:
            check.interrupted()
        else:
            check.compare(sample, dt, delta_j, by_power[0])
        method = check.method
        if method == "integrated":
            return (by_power[0] if check.doubted else delta_j), by_power[1]
        return delta_j, method

    def _check(self, sample: Sample) -> CheckedCounter | None:
        """What the counter is held to; None where nothing else can be read (RAPL), or the board is a model of ours."""
        if sample.how == "simulated":
            return None
        if sample.kind is not None and sample.uuid not in self._checks:
            self._checks[sample.uuid] = CheckedCounter()
        return self._checks.get(sample.uuid)

    def _counted_through(self, last: _Anchor, sample: Sample) -> bool:
        """Whether the counter kept counting while the board was lost, instead of restarting or stopping."""
        check = self._checks.get(sample.uuid)
        if sample.energy_uj is None or last.energy_uj is None or (check is not None and check.doubted):
            return False
        return 0 < (sample.energy_uj - last.energy_uj) / 1e6 <= _bound_j(sample, sample.mono_s - last.mono_s)

    def _standing(self, last: _Anchor, sample: Sample, check: CheckedCounter | None) -> tuple[float, Method] | None:
        step = sample.mono_s - last.seen_s
        last.pending_j += (sample.power_w or 0.0) * step
        last.seen_s = sample.mono_s
        if sample.mono_s - last.mono_s < STUCK_S:
            return None
        if check is not None:
            check.jumped(ahead=True)
        return last.pending_j, "integrated" if step <= GAP_S else "gap"

    def _from_power(self, last: _Anchor, sample: Sample) -> tuple[float, Method] | None:
        dt = sample.mono_s - last.mono_s
        if dt > GAP_S:
            power = last.power_w if last.power_w is not None else sample.power_w
            return (power * dt, "gap") if power is not None else (0.0, "gap")
        before, now = last.power_w, sample.power_w
        if now is None:
            return (before * dt, "gap") if before is not None else (0.0, "gap")
        # a 1 s average read about once a second covers exactly the past interval
        averaged = sample.kind == "avg1s"
        if before is None or (averaged and 0.5 <= dt <= LATE_S) or sample.kind == "model":
            joules = now * dt
        else:
            joules = 0.5 * (before + now) * dt
        late: Method = "late" if averaged and dt > LATE_S else "integrated"
        return joules, "model" if sample.how == "estimated" else late

    def _anchor(self, sample: Sample) -> None:
        self._anchors[sample.uuid] = _Anchor(
            sample.mono_s, sample.wall_s, sample.energy_uj, sample.power_w, sample.mono_s
        )

    # --- totals ----------------------------------------------------------------------------------------------

    def joules(self, uuid: str | None = None) -> float:
        """All joules so far, of one device or of all."""
        return sum(self.by_method(uuid).values())

    def by_method(self, uuid: str | None = None) -> dict[Method, float]:
        """Joules by label, of one device or of all."""
        parts = [part for key, ledger in self._joules.items() if uuid in (None, key) for part in ledger.items()]
        return {method: sum(joules for one, joules in parts if one == method) for method, _ in parts}

    @property
    def devices(self) -> frozenset[str]:
        """All devices read or counted so far."""
        return frozenset(self._anchors) | frozenset(self._joules)

    def drop(self, uuids: Iterable[str]) -> None:
        """Forget these devices and their joules: if seen again, they start afresh."""
        for uuid in uuids:
            for table in (self._anchors, self._joules, self._checks):
                table.pop(uuid, None)

    def counted_until_s(self, uuids: Iterable[str], otherwise_s: float) -> float:
        """Monotonic time up to which the joules of all of these devices are counted; `otherwise_s` if no one's are."""
        return min((self._anchors[uuid].mono_s for uuid in uuids if uuid in self._anchors), default=otherwise_s)

    def verdicts(self) -> dict[str, MeterVerdict]:
        """On the energy counters of boards, where there is something to compare them with."""
        return {uuid: check.verdict() for uuid, check in self._checks.items()}

    # --- across a restart of the supervisor ------------------------------------------------------------------

    def to_dict(self, boot_id: str) -> dict[str, Any]:
        """Plain data for the journal."""
        state = _State(boot_id, self._anchors, self._joules, self._checks)
        return dict(msgspec.to_builtins(state))

    @classmethod
    def from_dict(cls, data: dict[str, Any], boot_id: str) -> Meter:
        """Restore the meter: within the same boot the counter fills the time in between exactly.

        After a reboot the joules stay and the devices start afresh. Raises msgspec.ValidationError on other data.
        """
        state = msgspec.convert(data, _State)
        meter = cls()
        meter._joules = state.joules
        if state.boot_id == boot_id:
            meter._anchors, meter._checks = state.anchors, state.checks
        return meter


def _bound_j(sample: Sample, dt_s: float) -> float:
    """The most that a board can have drawn."""
    return BELIEVABLE * (sample.max_w or DEFAULT_MAX_W) * (dt_s + TICK_S)
