"""The meter: samples in, labelled joules out. Pure: no clock, no file, no device.

Every joule carries a label of how it was obtained:

- ``counter``     difference of the device's own energy counter (exact over any gap)
- ``integrated``  power readings over time, where there is no usable counter
- ``gap``         no reading for more than GAP_S: the last power, extrapolated
- ``model``       an estimate from utilisation, not a measurement

A counter delta is trusted when 0 <= delta <= 1.5 * max power * time (plus one tick of the counter); anything else (a
reset, a driver reload, an absurd jump) starts a new epoch and that interval is counted from power. A counter that shows
a tenth of what power shows, or less, counts something else and is ignored from then on. The sensor behind
NVML's numbers is accurate to about +-5 %, regardless of the label.

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

from carbontui.power.messages import Method, Sample

GAP_S = 5.0
BELIEVABLE = 1.5
TICK_S = 0.25
"""Tolerance for the counter's own tick (20..100 ms on known boards) and the jitter of our reading."""
STUCK_S = 5.0
"""A counter that does not move for this long while power is drawn is not used."""
CHECK_S = 10.0
TENTH = 0.1
"""A counter below this share of the power's joules over CHECK_S counts another unit. Part-time sensors, which
overestimate bursts by up to six times, stay far above it."""
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
    stuck: bool = False
    absent: bool = False
    """The board has been lost since."""


class _Check(Struct):
    """Joules by counter and by power since `since_s`, for comparison."""

    since_s: float
    counter_j: float = 0.0
    power_j: float = 0.0
    wrong: bool = False


class _State(Struct):
    boot_id: str
    anchors: dict[str, _Anchor]
    joules: dict[str, dict[Method, float]]
    epochs: dict[str, int]


class Meter:
    """Adds samples of any number of devices, keyed by UUID."""

    def __init__(self) -> None:
        self._anchors: dict[str, _Anchor] = {}
        self._joules: dict[str, dict[Method, float]] = {}
        self._epochs: dict[str, int] = {}
        self._checks: dict[str, _Check] = {}

    def add(self, sample: Sample) -> tuple[Increment, ...]:
        """The joules between this sample and the last one of the same device; none for the first."""
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
        joules, method = made
        dt = sample.mono_s - last.mono_s
        # a stepped wall clock or a suspended host must not place energy at times that were not measured
        t0 = last.wall_s if abs((sample.wall_s - last.wall_s) - dt) <= 2.0 else sample.wall_s - dt
        increment = Increment(sample.uuid, joules, method, t0, sample.wall_s)
        self._anchor(sample, stuck=last.stuck)
        ledger = self._joules.setdefault(sample.uuid, {})
        ledger[method] = ledger.get(method, 0.0) + joules
        return (increment,)

    def carry_on(self, uuids: Iterable[str], mono_s: float, wall_s: float) -> tuple[Increment, ...]:
        """Extrapolate devices not read for longer than GAP_S up to now from the last power, as a gap: for the end of a
        job whose driver hangs, where no later sample will come."""
        made: list[Increment] = []
        for uuid in uuids:
            last = self._anchors.get(uuid)
            if last is not None and not last.absent and last.power_w is not None and mono_s - last.seen_s > GAP_S:
                made += self.add(Sample(uuid=uuid, mono_s=mono_s, wall_s=wall_s, power_w=last.power_w))
        return tuple(made)

    def _between(self, last: _Anchor, sample: Sample) -> tuple[float, Method] | None:
        """Joules since `last` and their label; None while a stuck counter may still move."""
        dt = sample.mono_s - last.mono_s
        usable = sample.how != "estimated" and not self._wrong(sample.uuid)
        if sample.energy_uj is not None and last.energy_uj is not None and usable:
            delta = sample.energy_uj - last.energy_uj
            bound = BELIEVABLE * (sample.max_w or DEFAULT_MAX_W) * (dt + TICK_S) * 1e6
            drawing = (sample.power_w or 0.0) > 1.0
            if delta == 0 and drawing:
                return self._standing(last, sample)
            if 0 <= delta <= bound:
                last.stuck = False
                missed_j = self._check(last, sample, delta / 1e6)
                return (delta / 1e6, "counter") if missed_j is None else (delta / 1e6 + missed_j, "integrated")
            self._epochs[sample.uuid] = self._epochs.get(sample.uuid, 0) + 1
        return self._from_power(last, sample)

    def _counted_through(self, last: _Anchor, sample: Sample) -> bool:
        """Whether the counter kept counting while the board was lost, instead of restarting or stopping."""
        if sample.energy_uj is None or last.energy_uj is None or self._wrong(sample.uuid):
            return False
        bound = BELIEVABLE * (sample.max_w or DEFAULT_MAX_W) * (sample.mono_s - last.mono_s + TICK_S) * 1e6
        return 0 < sample.energy_uj - last.energy_uj <= bound

    def _wrong(self, uuid: str) -> bool:
        """Whether this device's counter was found to count something else."""
        return uuid in self._checks and self._checks[uuid].wrong

    def _check(self, last: _Anchor, sample: Sample, counter_j: float) -> float | None:
        """Compare the counter with the power; returns the joules it missed once it is found to count something else."""
        check = self._checks.setdefault(sample.uuid, _Check(last.mono_s))
        dt = sample.mono_s - last.mono_s
        if sample.power_w is None or last.power_w is None or dt > GAP_S:
            self._checks[sample.uuid] = _Check(sample.mono_s)
            return None
        check.counter_j += counter_j
        check.power_j += 0.5 * (last.power_w + sample.power_w) * dt
        if sample.mono_s - check.since_s < CHECK_S:
            return None
        check.wrong = check.counter_j < TENTH * check.power_j
        if check.wrong:
            self._epochs[sample.uuid] = self._epochs.get(sample.uuid, 0) + 1
            return check.power_j - check.counter_j
        self._checks[sample.uuid] = _Check(sample.mono_s)
        return None

    def _standing(self, last: _Anchor, sample: Sample) -> tuple[float, Method] | None:
        if last.stuck:
            return self._from_power(last, sample)
        step = sample.mono_s - last.seen_s
        last.pending_j += (sample.power_w or 0.0) * step
        last.seen_s = sample.mono_s
        if sample.mono_s - last.mono_s < STUCK_S:
            return None
        last.stuck = True
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
        if before is None or (sample.kind == "avg1s" and 0.5 <= dt <= 2.0) or sample.kind == "model":
            joules = now * dt
        else:
            joules = 0.5 * (before + now) * dt
        return joules, "model" if sample.how == "estimated" else "integrated"

    def _anchor(self, sample: Sample, *, stuck: bool = False) -> None:
        self._anchors[sample.uuid] = _Anchor(
            sample.mono_s, sample.wall_s, sample.energy_uj, sample.power_w, sample.mono_s, stuck=stuck
        )

    # --- totals ----------------------------------------------------------------------------------------------

    def joules(self, uuid: str | None = None) -> float:
        """All joules so far, of one device or of all."""
        return sum(self.by_method(uuid).values())

    def by_method(self, uuid: str | None = None) -> dict[Method, float]:
        """Joules by label, of one device or of all."""
        total: dict[Method, float] = {}
        for key, ledger in self._joules.items():
            if uuid in (None, key):
                for method, joules in ledger.items():
                    total[method] = total.get(method, 0.0) + joules
        return total

    @property
    def devices(self) -> frozenset[str]:
        """All devices read or counted so far."""
        return frozenset(self._anchors) | frozenset(self._joules)

    def drop(self, uuids: Iterable[str]) -> None:
        """Forget these devices and their joules: if seen again, they start afresh."""
        for uuid in uuids:
            for table in (self._anchors, self._joules, self._epochs, self._checks):
                table.pop(uuid, None)

    def counted_until_s(self, uuid: str) -> float | None:
        """Monotonic time up to which this device's joules are counted."""
        anchor = self._anchors.get(uuid)
        return anchor.mono_s if anchor else None

    def epochs(self, uuid: str) -> int:
        """How often the counter of this device was found reset or implausible."""
        return self._epochs.get(uuid, 0)

    # --- across a restart of the supervisor ------------------------------------------------------------------

    def to_dict(self, boot_id: str) -> dict[str, Any]:
        """Plain data for the journal."""
        state = _State(boot_id, self._anchors, self._joules, self._epochs)
        return dict(msgspec.to_builtins(state))

    @classmethod
    def from_dict(cls, data: dict[str, Any], boot_id: str) -> Meter:
        """Restore the meter: within the same boot the counter fills the time in between exactly.

        After a reboot the joules stay and the devices start afresh. Raises msgspec.ValidationError on other data.
        """
        state = msgspec.convert(data, _State)
        meter = cls()
        meter._joules, meter._epochs = state.joules, state.epochs
        if state.boot_id == boot_id:
            meter._anchors = state.anchors
        return meter
