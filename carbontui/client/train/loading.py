"""Data loading: the next batch is copied while this one is computed, and the order can be resumed at any step."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List

from carbontui.client.checkpoint import ShuffledIndices


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
            yield _moved(batch, lambda tensor: tensor.to(device))
        return
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def ahead(tensor: Any) -> Any:
        pinned = tensor if tensor.is_pinned() or tensor.is_cuda else tensor.pin_memory()
        return pinned.to(device, non_blocking=True)

    coming: Any = None
    for batch in loader:
        with torch.cuda.stream(stream):
            copied = _moved(batch, ahead)
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
    _moved(batch, lambda tensor: tensor.record_stream(now))
    return batch


def _moved(batch: Any, move: Any) -> Any:
    if isinstance(batch, dict):
        return {name: _moved(part, move) for name, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_moved(part, move) for part in batch)
    return move(batch) if hasattr(batch, "to") else batch
