"""What can be said of a script's objects while none of its code runs: a `len()` of its own may draw, print, or make a
pass. Asked are builtin types; of torch's own the length follows from their parts, or is what they were told."""

from __future__ import annotations

import functools
import operator
from typing import Any, Optional

BUILTIN = ("builtins", "collections", "numpy", "torch")
"""Modules whose types answer without code of a script's."""
_REPORTED = "_carbontui_told"


def attributes(value: Any) -> Any:
    """The attributes of an object itself, whatever its class does where one is read."""
    return object.__getattribute__(value, "__dict__")


def is_number(value: Any) -> bool:
    """Whether arithmetic with a value runs no code of a script's; True and False are no numbers."""
    return type(value) in (int, float)


def length_of(value: Any, *, promised: bool = False) -> Optional[int]:
    """Of a loader, sampler or data set of torch's, or of a value of a builtin type; None where only a question would
    tell. `promised`: what a loader of an endless set was told is taken, too."""
    try:
        return _length(value, promised)
    except Exception:  # one without a length, not made whole, or of another version
        return None


def _length(value: Any, promised: bool) -> Optional[int]:
    kind = type(value)
    if kind.__module__ in BUILTIN:
        return len(value)
    if not kind.__len__.__module__.startswith("torch.utils.data."):
        return None
    held, name, found = attributes(value), kind.__len__.__qualname__, None
    if name == "DataLoader.__len__":
        if held["_dataset_kind"]:
            return held.get(_REPORTED) if promised else None
        found = length_of(held["sampler"] if held["batch_sampler"] is None else held["batch_sampler"])
    elif name == "BatchSampler.__len__":
        drawn, size = length_of(held["sampler"]), held["batch_size"]
        return None if drawn is None else drawn // size if held["drop_last"] else -(-drawn // size)
    elif name == "TensorDataset.__len__":
        return length_of(held["tensors"][0])
    else:
        parts = (held.get(one) for one in ("num_samples", "_num_samples", "indices", "data_source"))
        part = next((one for one in parts if one is not None), None)
        found = part if type(part) is int else length_of(part)
    return held.get(_REPORTED) if found is None else found


def listen(module: Any) -> None:
    """torch.utils.data.dataloader has been imported: what its classes are told from now on is kept with them."""
    loader, random, sequence = module.DataLoader, module.RandomSampler, module.SequentialSampler
    asks, drawn, begins = loader.__len__, random.num_samples.fget, sequence.__iter__

    @functools.wraps(asks)
    def __len__(self: Any) -> int:
        attributes(self)[_REPORTED] = found = asks(self)
        return found  # type: ignore[no-any-return]

    @functools.wraps(drawn)
    def num_samples(self: Any) -> int:
        attributes(self)[_REPORTED] = found = drawn(self)
        return found  # type: ignore[no-any-return]

    @functools.wraps(begins)
    def __iter__(self: Any) -> Any:
        made = begins(self)
        attributes(self)[_REPORTED] = operator.length_hint(made, 0) or None
        return made

    loader.__len__, random.num_samples, sequence.__iter__ = __len__, property(num_samples), __iter__
