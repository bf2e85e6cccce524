"""carbontui.train: a toolkit for plain PyTorch loops. It needs no supervisor; torch is loaded on first use.

    from carbontui import train

    precision = train.Precision(device)
    for batch in train.on_device(loader, device):
        loss = train.step(model, optimizer, criterion, batch, micro=16, precision=precision)

`step` computes a batch in parts with the loss and gradient of the whole batch; `Precision` uses mixed precision where
that helps and full elsewhere; `on_device` copies the next batch while this one is computed; `ResumableBatches` resumes
at any step.

The gradient of a mean over n samples is the sum over the parts of their own means, each weighted by its share of
n. That holds for a ragged last part as well, and for every loss that is a mean over samples. It does not hold where
samples see each other: batch normalisation computes its statistics over a part, and dropout draws other masks.
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

from carbontui.client.checkpoint import ShuffledIndices

__all__ = ["Precision", "ResumableBatches", "accumulate", "micro_batches", "on_device", "step"]


def micro_batches(batch: Any, size: int) -> Iterator[Tuple[Any, float]]:
    """(part, its share of the batch) with at most `size` samples each, the last one ragged. `batch` is a tensor, or a
    tuple, list or dict of tensors whose first dimension is the samples. Raises ValueError."""
    if size < 1:
        raise ValueError(f"a micro-batch holds at least one sample, not {size}")
    total = _samples(batch)
    for first in range(0, total, size):
        last = min(total, first + size)
        yield mapped(batch, operator.itemgetter(slice(first, last))), (last - first) / total


def accumulate(
    model: Any,
    criterion: Callable[..., Any],
    batch: Any,
    micro: Optional[int] = None,
    precision: Optional[Precision] = None,
) -> Any:
    """Add the gradient of the mean loss of `batch` to the parameters, `micro` samples at a time; returns that loss,
    detached. `batch` is (inputs, targets). With DistributedDataParallel the ranks synchronise only at the last part."""
    inputs, targets = batch
    size = _samples(batch) if micro is None else micro
    precision = precision or Precision("cpu")
    parts = list(micro_batches((inputs, targets), size))
    total = None
    for number, ((some, wanted), share) in enumerate(parts):
        last = number == len(parts) - 1
        alone = contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync()
        with alone:
            with precision.autocast():
                loss = criterion(model(some), wanted) * share
            precision.backward(loss)
        total = loss.detach() if total is None else total + loss.detach()
    return total


def step(
    model: Any,
    optimizer: Any,
    criterion: Callable[..., Any],
    batch: Any,
    micro: Optional[int] = None,
    precision: Optional[Precision] = None,
) -> Any:
    """One optimizer step on the batch (inputs, targets), computed in parts of `micro` samples; returns the mean loss,
    detached: read it with float() rarely, because that waits for the device."""
    optimizer.zero_grad(set_to_none=True)
    precision = precision or Precision("cpu")
    loss = accumulate(model, criterion, batch, micro, precision)
    precision.step(optimizer)
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


class Precision:
    """`with precision.autocast()` around forward and loss, then `backward(loss)` and `step(optimizer)`.

    On CUDA bfloat16 if the board supports it, else float16 with a scaled loss; elsewhere nothing changes, since a CPU
    without native support is slower in 16 bit than in 32. `name` says which is used; `state_dict` belongs into a
    checkpoint.
    """

    def __init__(self, device: Any, enabled: bool = True) -> None:
        self._torch: Any = None
        self._scaler: Any = None
        self.name = "float32"
        if not enabled or not str(device).startswith("cuda"):
            return
        import torch

        self._torch = torch
        half = torch.cuda.is_bf16_supported()
        self._dtype = torch.bfloat16 if half else torch.float16
        self.name = "bfloat16" if half else "float16"
        self._scaler = None if half else torch.amp.GradScaler("cuda")

    def autocast(self) -> Any:
        """The context in which forward and loss are computed."""
        if self._torch is None:
            return contextlib.nullcontext()
        return self._torch.autocast("cuda", dtype=self._dtype)

    def backward(self, loss: Any) -> None:
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def step(self, optimizer: Any) -> None:
        """optimizer.step(); with a scaled loss a step whose gradients overflowed is skipped."""
        if self._scaler is None:
            optimizer.step()
            return
        self._scaler.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> Any:
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state: Any) -> None:
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)


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


def on_device(loader: Iterable[Any], device: Any) -> Iterator[Any]:
    """The loader's batches on the device. For CUDA each is pinned (a DataLoader's pin_memory=True does it earlier, in
    its own thread) and copied on a separate stream while the previous batch is computed; elsewhere a plain copy."""
    import torch

    if not str(device).startswith("cuda"):
        for batch in loader:
            yield mapped(batch, lambda part: part.to(device) if hasattr(part, "to") else part)
        return
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def ahead(tensor: Any) -> Any:
        if not hasattr(tensor, "to"):
            return tensor
        pinned = tensor if tensor.is_pinned() or tensor.is_cuda else tensor.pin_memory()
        return pinned.to(device, non_blocking=True)

    coming: Any = None
    for batch in loader:
        with torch.cuda.stream(stream):
            copied = mapped(batch, ahead)
        if coming is not None:
            yield _awaited(coming, stream, device)
        coming = copied
    if coming is not None:
        yield _awaited(coming, stream, device)


def _awaited(batch: Any, stream: Any, device: Any) -> Any:
    """The batch, once its copy is done; its memory is not reused before the computing stream has finished with it."""
    import torch

    now = torch.cuda.current_stream(device)
    now.wait_stream(stream)
    mapped(batch, lambda part: part.record_stream(now) if hasattr(part, "to") else None)
    return batch
