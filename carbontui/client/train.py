"""carbontui.train: a toolkit for plain PyTorch loops. It needs no supervisor, and never loads torch itself.

    from carbontui import train

    for batch in loader:
        loss = train.step(model, optimizer, criterion, batch, micro=16)

`step` computes a batch in parts with the loss and gradient of the whole batch; `ResumableBatches` resumes at any step.

The gradient of a mean over n samples is the sum over the parts of their own means, each weighted by its share of
n. That holds for a ragged last part as well, and for every loss that is a mean over samples. It does not hold where
samples see each other: batch normalisation computes its statistics over a part, and dropout draws other masks.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any, Callable, Iterator, List, Optional, Tuple

from carbontui.client.checkpoint import ShuffledIndices

__all__ = ["ResumableBatches", "accumulate", "micro_batches", "step"]


def micro_batches(batch: Any, size: int) -> Iterator[Tuple[Any, float]]:
    """(part, its share of the batch) with at most `size` samples each, the last one ragged. `batch` is a tensor, or a
    tuple, list or dict of tensors whose first dimension is the samples. Raises ValueError."""
    if size < 1:
        raise ValueError(f"a micro-batch holds at least one sample, not {size}")
    total = _samples(batch)
    for first in range(0, total, size):
        last = min(total, first + size)
        yield mapped(batch, operator.itemgetter(slice(first, last))), (last - first) / total


def accumulate(model: Any, criterion: Callable[..., Any], batch: Any, micro: Optional[int] = None) -> Any:
    """Add the gradient of the mean loss of `batch` to the parameters, `micro` samples at a time; returns that loss,
    detached. `batch` is (inputs, targets). With DistributedDataParallel the ranks synchronise only at the last part."""
    inputs, targets = batch
    parts = list(micro_batches((inputs, targets), _samples(batch) if micro is None else micro))
    total = None
    for number, ((some, wanted), share) in enumerate(parts):
        last = number == len(parts) - 1
        with contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync():
            loss = criterion(model(some), wanted) * share
            loss.backward()
        total = loss.detach() if total is None else total + loss.detach()
    return total


def step(model: Any, optimizer: Any, criterion: Callable[..., Any], batch: Any, micro: Optional[int] = None) -> Any:
    """One optimizer step on the batch (inputs, targets), computed in parts of `micro` samples; returns the mean loss,
    detached: read it with float() rarely, because that waits for the device."""
    optimizer.zero_grad(set_to_none=True)
    loss = accumulate(model, criterion, batch, micro)
    optimizer.step()
    return loss


def _samples(batch: Any) -> int:
    sizes = set()
    mapped(batch, lambda tensor: sizes.add(int(tensor.shape[0])))
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"the parts of a batch hold {sorted(sizes)} samples; all must hold the same number, at least 1"
        )
    return sizes.pop()


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same dicts, lists and tuples, and in them `change` of everything else."""
    if isinstance(value, dict):
        return {name: mapped(part, change) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [mapped(part, change) for part in value]
        return parts if isinstance(value, list) else tuple(parts)
    return change(value)


class ResumableBatches:
    """A batch_sampler for torch's DataLoader: `batches` batches from `step` on, in the order of ShuffledIndices,
    determined only by seed and step. Batches prefetched by workers are not lost by stopping."""

    def __init__(self, size: int, batch: int, batches: int, seed: int = 0, step: int = 0) -> None:
        self.order = ShuffledIndices(size, batch, seed)
        self.step, self.end = step, batches

    def __iter__(self) -> Iterator[List[int]]:
        source = self.order.batches(self.step)
        for _ in range(len(self)):
            yield next(source)

    def __len__(self) -> int:
        return max(0, self.end - self.step)
