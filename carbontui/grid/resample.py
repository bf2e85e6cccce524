"""Resampling to hours and back: dense slots of stamped values, hourly means, the shape within the hour restored."""

import numpy as np
from numpy.typing import ArrayLike

from carbontui.grid.ridge import Array


def columns(times_s: ArrayLike, values: ArrayLike) -> tuple[Array, Array]:
    """Epoch seconds and values, sorted by time, the last of equal times last; infinite values become NaN.

    Raises ValueError for unequal lengths.
    """
    stamps, numbers = (np.asarray(column, dtype=float).ravel() for column in (times_s, values))
    if stamps.size != numbers.size:
        raise ValueError(f"{stamps.size} times but {numbers.size} values")
    order = np.argsort(stamps, kind="stable")
    return stamps[order], np.where(np.isfinite(numbers), numbers, np.nan)[order]


def dense(stamps: Array, values: Array, start_s: float, step_s: float, slots: int) -> Array:
    """Values by slot of `step_s` from `start_s` on, the later of two in one slot; NaN in empty slots."""
    out = np.full(slots, np.nan)
    index = np.floor((stamps - start_s) / step_s + 1e-6).astype(np.int64)
    good = (index >= 0) & (index < slots) & np.isfinite(values)
    out[index[good]] = values[good]
    return out


def per_hour(step_s: float) -> int:
    """Slots per hour; 0 for a step that is longer than an hour or does not divide it."""
    count = round(3600 / step_s)
    return count if count >= 1 and abs(count * step_s - 3600) < 1e-6 else 0


def means(native: Array, per_hour: int) -> Array:
    """Hourly means, aligned to the end of the series; an hour with less than half its slots known is NaN."""
    hours = native.size // per_hour
    blocks = native[native.size - hours * per_hour :].reshape(hours, per_hour)
    return known_mean(blocks, 1, per_hour / 2)


def known_mean(blocks: Array, axis: int, least: float = 1.0) -> Array:
    """The mean of the known values along an axis; NaN where fewer than `least` are."""
    known = np.isfinite(blocks)
    count = known.sum(axis=axis)
    return np.where(count >= least, np.where(known, blocks, 0.0).sum(axis=axis) / np.maximum(count, 1), np.nan)


def to_hours(stamps: Array, values: Array, begin_s: float, hours: int) -> Array:
    """A published series by the hour from begin_s on: finer ones averaged over four samples an hour, coarser held."""
    out = np.full(hours, np.nan)
    good = np.isfinite(values)
    stamps, values = stamps[good], values[good]
    if stamps.size == 0:
        return out
    step_s = float(np.median(np.diff(stamps))) if stamps.size > 1 else 3600.0
    first = max(0, int((stamps[0] - begin_s) // 3600))
    until = min(hours, int((stamps[-1] + step_s - begin_s) // 3600) + 1)
    if until <= first:
        return out
    moments = begin_s + np.arange(first, until)[:, None] * 3600.0 + np.array([450.0, 1350.0, 2250.0, 3150.0])
    at = np.searchsorted(stamps, moments, side="right") - 1
    held = np.where((at >= 0) & (moments < stamps[np.maximum(at, 0)] + 1.5 * step_s), values[np.maximum(at, 0)], np.nan)
    out[first:until] = known_mean(held, 1, 2)
    return out


def refine(
    native: Array, per_hour: int, mean: Array, lo: Array, hi: Array, slots: int, lowest: float = 0.0
) -> tuple[Array, Array, Array]:
    """Convert hours to `slots` native slots, none below `lowest`: the usual shape within the hour plus interpolated
    departures, held at the ends."""
    hours = -(-slots // per_hour)
    if hours > mean.size:
        # past the model's horizon: the hours of its last day again, whose change from the day before fades
        more = np.arange(hours - mean.size)
        last, fade = mean.size - 24 + more % 24, 0.9**more
        mean, lo, hi = (np.append(col, col[last] + fade * (col[-1] - col[-25])) for col in (mean, lo, hi))
    if per_hour == 1:
        return np.maximum(mean, lowest)[:slots], lo[:slots], hi[:slots]
    day = 24 * per_hour
    shape = same_slot(native, day)
    base = shape[np.arange(hours * per_hour) % day]
    base_hours = base.reshape(hours, per_hour).mean(axis=1)
    centres = np.concatenate([[-0.5 / per_hour], np.arange(hours) + 0.5])
    at = (np.arange(hours * per_hour) + 0.5) / per_hour
    before = native[-1] - shape[-1] if np.isfinite(native[-1]) else mean[0] - base_hours[0]
    out = base + np.interp(at, centres, np.concatenate([[before], mean[:hours] - base_hours]))
    low, high = (np.interp(at, centres[1:], (edge - mean)[:hours]) for edge in (lo, hi))
    out = np.maximum(out, lowest)
    return out[:slots], (out + low)[:slots], (out + high)[:slots]


def same_slot(native: Array, day: int) -> Array:
    """Mean of each of the next day's slots over the last seven days; unknown ones by the overall mean. Its end leads on
    to its beginning as on the days before: their difference, a day's change, is spread over the hours beside."""
    days = min(7, native.size // day)
    overall = float(np.nanmean(native))
    if days == 0:
        return np.full(day, overall)
    shape = known_mean(native[native.size - days * day :].reshape(days, day), 0)
    shape = np.where(np.isfinite(shape), shape, overall)
    tear = shape[0] - shape[-1] - np.nan_to_num(known_mean(np.diff(native)[-day::-day], 0))
    near = np.exp(-4 * np.arange(day) / day)  # six hours
    closed: Array = shape - 0.5 * tear * (near - near[::-1])
    return closed
