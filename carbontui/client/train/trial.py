"""How long a plain PyTorch training would take, from a short trial without side effects.

Complete short epochs of several sizes are timed, data loading included, after a warm-up. Regressing time on size gives
the fixed part of an epoch and the rate (a + b n): scaling a short epoch by the ratio of sizes would scale the fixed
part as well. The interval covers the noise of the steps (batch means, as they are correlated) and the error of both.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from carbontui.client import device, prediction
from carbontui.client.api import gate
from carbontui.client.checkpoint import random_states, set_random_states
from carbontui.client.train.batches import mapped

WARMUP_STEPS = 3
SIZES = (2, 4, 8, 16)
"""Batches of the short epochs; more rounds of them, and larger ones, follow while there is time."""
ROUNDS_LEAST = 2
BUSY = 0.05
"""A thread that waits for a core for less than this share of its time counts as undisturbed."""
NOT_LINEAR = 0.1
"""If the rates of the smaller and larger half differ by more, time does not grow linearly with size."""


class TrainEstimate(NamedTuple):
    """Seconds of the whole training with a 95 % interval. `fixed_s` is the part of an epoch independent of its size,
    `validation_s` the time of one run of `validate`. `linear`: time grew linearly with size; else `note` says so."""

    seconds: float
    lo_s: float
    hi_s: float
    epoch_s: float
    fixed_s: float
    per_sample_s: float
    validation_s: float
    epochs: int
    steps_timed: int
    linear: bool
    note: str
    kwh: Optional[float] = None

    def __str__(self) -> str:
        told = f"{_words(self.seconds)} ({_words(self.lo_s)} to {_words(self.hi_s)}) for {self.epochs} epochs"
        if self.kwh is not None:
            told += f", {self.kwh:.3g} kWh"
        return f"{told}; {self.note}" if self.note else told


def estimate(
    model: Any,
    optimizer: Any,
    criterion: Callable[..., Any],
    dataset: Any,
    *,
    epochs: int,
    batch_size: int,
    train_step: Optional[Callable[[Any, Any, Any, Any], Any]] = None,
    validate: Optional[Callable[[], Any]] = None,
    loader: Optional[Callable[[Any], Any]] = None,
    watts: Optional[float] = None,
    seconds: float = 20.0,
) -> TrainEstimate:
    """Estimate the time of `epochs` epochs of `dataset` from a trial of about `seconds`; model, optimizer, modes and
    every random state are restored bit for bit, and no step is counted.

    `train_step(model, optimizer, criterion, batch)` does one step (default: `criterion(model(inputs), targets)`);
    `loader(subset)` makes the batches of a part of the data set (default: a shuffling DataLoader of `batch_size`, no
    workers); `validate()` is what follows every epoch; `watts` at the wall give kWh. Raises ValueError.
    """
    total = len(dataset)
    if epochs < 1 or batch_size < 1 or total < 1:
        raise ValueError(f"nothing to time: {epochs} epochs, batches of {batch_size}, {total} samples")
    began = time.perf_counter()
    due, waited_s = began + seconds, core_wait_s()
    gate.framework += 1  # optimizer steps here are not steps of the training
    try:
        with kept(model, optimizer):
            step = functools.partial(train_step or _plain, model, optimizer, criterion)
            model.train()
            sizes, times, steps = _timed(step, dataset, loader or _loader(batch_size), batch_size, due)
            validation_s = 0.0 if validate is None else _validation(model, validate)
    finally:
        gate.framework -= 1
    waited = (core_wait_s() - waited_s) / max(1e-9, time.perf_counter() - began)
    return _made(sizes, times, steps, validation_s, total, batch_size, epochs, watts, min(1.0, waited))


@contextlib.contextmanager
def kept(model: Any, optimizer: Any) -> Iterator[None]:
    """Restore model, optimizer and Python's, numpy's and torch's random generators afterwards, whatever happens inside.
    Copies are in host memory: nothing is duplicated on a board."""
    import torch

    tensors = [*model.parameters(), *model.buffers()]
    values = [_Away(tensor).value for tensor in tensors]
    gradients = [_copied(parameter.grad) for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    states = {parameter: _copied(state) for parameter, state in optimizer.state.items()}
    groups = [{name: _copied(value) for name, value in g.items() if name != "params"} for g in optimizer.param_groups]
    rng = random_states()
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, values):
                tensor.copy_(value)
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = _placed(gradient)
        for module, training in modes:
            module.training = training
        optimizer.state.clear()
        for parameter, state in states.items():
            optimizer.state[parameter] = _placed(state)
        for group, was in zip(optimizer.param_groups, groups):
            for name in set(group) - set(was) - {"params"}:
                del group[name]
            group.update(_placed(was))
        set_random_states(rng)


class _Away:
    """A tensor's value in host memory, and the device it belongs to."""

    def __init__(self, tensor: Any) -> None:
        self.value, self.device = tensor.detach().to("cpu", copy=True), tensor.device


def _copied(value: Any) -> Any:
    return mapped(value, lambda part: _Away(part) if hasattr(part, "detach") else part)


def _placed(value: Any) -> Any:
    return mapped(value, lambda part: part.value.to(part.device, copy=True) if isinstance(part, _Away) else part)


def _timed(
    step: Callable[[Any], Any], dataset: Any, loader: Callable[[Any], Any], batch_size: int, due: float
) -> Tuple[List[int], List[float], List[float]]:
    """(samples, seconds) of each short epoch, and the seconds of every step within them."""
    from torch.utils.data import Subset

    total, whole = len(dataset), max(1, len(dataset) // batch_size)
    counts = sorted({min(count, whole) for count in SIZES})
    warm = list(range(min(total, WARMUP_STEPS * batch_size)))
    for batch in loader(Subset(dataset, warm)):
        step(batch)
    sizes: List[int] = []
    times: List[float] = []
    steps: List[float] = []
    rounds = 0
    while rounds < ROUNDS_LEAST or time.perf_counter() < due:
        for count in counts:
            some = range((rounds * batch_size) % max(1, total - count * batch_size + 1), total)
            part = Subset(dataset, list(some)[: count * batch_size])
            device.quiesce()
            began = last = time.perf_counter()
            for batch in loader(part):
                step(batch)
                device.quiesce()
                now = time.perf_counter()
                steps.append(now - last)
                last = now
            sizes.append(len(part))
            times.append(time.perf_counter() - began)
        rounds += 1
        if rounds >= ROUNDS_LEAST and counts[-1] < whole and sum(times[-len(counts) :]) * 4 < due - time.perf_counter():
            counts = sorted({*counts, min(2 * counts[-1], whole)})
    return sizes, times, steps


def _made(
    sizes: List[int],
    times: List[float],
    steps: List[float],
    validation_s: float,
    total: int,
    batch_size: int,
    epochs: int,
    watts: Optional[float],
    core_wait: float = 0.0,
) -> TrainEstimate:
    """`core_wait` is the share of the trial in which its thread was runnable and waited for a core: without the other
    programs everything takes 1 - core_wait of its time, with twice as many 1 + core_wait; the interval covers both."""
    notes: List[str] = []
    linear = True
    if len(set(sizes)) < 2:
        # one batch is the whole epoch: it was timed as it is
        epoch_s = sum(times) / len(times)
        fixed, rate, spread = 0.0, epoch_s / total, 0.0
        notes.append("the data set is one batch")
    else:
        fixed, rate = prediction.fixed_and_rate(sizes, times)
        if fixed < 0:
            fixed, rate = 0.0, sum(times) / sum(sizes)
        epoch_s = fixed + rate * total
        spread = _doubt(sizes, times, fixed, rate, total)
        linear = _linear(sizes, times)
        if not linear:
            notes.append("time does not grow with the size alone (caches, memory?): the interval does not cover that")
    seconds = epochs * (epoch_s + validation_s)
    count = epochs * math.ceil(total / batch_size)
    noise = prediction.remaining(steps, count)
    half = 0.0 if noise is None else (noise.hi - noise.lo) / 2
    if noise is not None and noise.drifting:
        notes.append(f"drifting: steps took {100 * noise.drift:+.0f} % over the trial")
    if core_wait >= BUSY:
        notes.append(f"busy machine: it waited {100 * core_wait:.0f} % of the time for a core")
    half = math.hypot(half, epochs * spread, core_wait * seconds)
    kwh = None if watts is None else watts * seconds / 3.6e6  # the client imports nothing, and so no constant, of ours
    return TrainEstimate(
        seconds=seconds,
        lo_s=max(0.0, seconds - half),
        hi_s=seconds + half,
        epoch_s=epoch_s,
        fixed_s=fixed,
        per_sample_s=rate,
        validation_s=validation_s,
        epochs=epochs,
        steps_timed=len(steps),
        linear=linear,
        note="; ".join(notes),
        kwh=kwh,
    )


def _doubt(sizes: List[int], times: List[float], fixed: float, rate: float, total: int) -> float:
    """95 % half-width of the expected seconds of one whole epoch, from the scatter of the short ones about their line
    (weights as in `fixed_and_rate`: a deviation counts relative to the expected time)."""
    weights = prediction.weights(sizes, times, fixed, rate)
    mass, middle, square = prediction.moments(sizes, weights)
    free = len(sizes) - 2
    misfit = math.fsum(w * (t - fixed - rate * n) ** 2 for w, n, t in zip(weights, sizes, times)) / free
    error = math.sqrt(misfit * (1.0 / mass + (total - middle) ** 2 / square))
    return prediction.t_quantile(prediction.CONFIDENCE, free) * error


def _linear(sizes: List[int], times: List[float]) -> bool:
    """Whether the larger half of the sizes grows by the same rate as the smaller."""
    known = sorted(set(sizes))
    if len(known) < 4:
        return True
    middle = known[len(known) // 2]
    small = [(n, t) for n, t in zip(sizes, times) if n <= middle]
    large = [(n, t) for n, t in zip(sizes, times) if n >= middle]
    rates = [prediction.fixed_and_rate([n for n, _ in half], [t for _, t in half])[1] for half in (small, large)]
    return min(rates) > 0 and max(rates) / min(rates) - 1 <= max(NOT_LINEAR, 3 * _share(sizes, times))


def _share(sizes: List[int], times: List[float]) -> float:
    """Relative difference between epochs of the same size: a non-linearity must exceed it."""
    groups = [[t for n, t in zip(sizes, times) if n == size] for size in set(sizes)]
    return max((max(group) / min(group) - 1 for group in groups if len(group) > 1), default=0.0)


def _validation(model: Any, validate: Callable[[], Any]) -> float:
    model.eval()
    began = time.perf_counter()
    validate()
    device.quiesce()
    return time.perf_counter() - began


def _plain(model: Any, optimizer: Any, criterion: Callable[..., Any], batch: Any) -> None:
    inputs, targets = batch
    where = next(iter(model.parameters())).device
    optimizer.zero_grad(set_to_none=True)
    criterion(model(inputs.to(where)), targets.to(where)).backward()
    optimizer.step()


def _loader(batch_size: int) -> Callable[[Any], Any]:
    from torch.utils.data import DataLoader

    return lambda part: DataLoader(part, batch_size=batch_size, shuffle=True)


def core_wait_s() -> float:
    """Seconds that this thread was runnable and waited for a core, since its start: the second field of
    /proc/thread-self/schedstat, in nanoseconds (Linux). 0 if not available."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as told:
            return int(told.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _words(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
