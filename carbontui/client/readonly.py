"""What can be said of a script's objects while none of its code runs: a `len()` of its own may draw, print, or make a
pass. Asked are builtin types; of torch's own the length follows from their parts, or is what they were told."""

import contextlib
import functools
import operator
import sys
import weakref
from types import FunctionType, GetSetDescriptorType, MappingProxyType, MemberDescriptorType, WrapperDescriptorType
from typing import Any, Callable, Dict, Optional, Tuple

COUNT_MAX = 2**53
BUILTIN = ("builtins", "collections", "numpy")
"""Modules whose classes in C answer for what is derived from them, too, without code of a script's."""
above, names, _module, name_of = (
    type.__dict__[name].__get__ for name in ("__mro__", "__dict__", "__module__", "__name__")
)
_lengths: Dict[int, Tuple[Any, int]] = {}
"""Lengths that objects were told, by their id, with a reference that ends with them."""


def of_class(kind: Any, name: str) -> Any:
    """What a class has by this name, or one above it, whatever its own class answers; unbound, None for nothing."""
    return next((names(one)[name] for one in above(kind) if name in names(one)), None)


def module_of(kind: Any) -> str:
    """The module of a class."""
    return text(_module(kind))


def text(value: Any) -> str:
    """A text, '' for anything else."""
    return value if type(value) is str else ""


def is_of(kind: Any, *libraries: str) -> bool:
    """Whether a class is one of these modules' own, not only by its name."""
    module = module_of(kind)
    return module in libraries and object.__getattribute__(sys.modules[module], "__dict__").get(name_of(kind)) is kind


def attributes(value: Any) -> Any:
    """The attributes of an object itself, whatever its class does where one is read."""
    for one in above(type(value)):
        slot = names(one).get("__dict__")
        if one_of(type(slot), GetSetDescriptorType, MemberDescriptorType):
            return named(slot.__get__(value))
    return {}


def named(table: Any) -> Dict[Any, Any]:
    """What a dict of any class, or the names of a class, have under texts and numbers."""
    held = table.items() if type(table) is MappingProxyType else dict.items(table)
    return {key: one for key, one in list(held) if type(key) is str or is_number(key)}


def one_of(kind: Any, *kinds: Any) -> bool:
    """Whether it is one of these classes; what a class says of its being the same is not asked."""
    return any(kind is one for one in kinds)


def is_number(value: Any) -> bool:
    """Whether arithmetic with a value runs no code of a script's; True and False are no numbers."""
    return type(value) is int or type(value) is float


def count_of(value: Any) -> Optional[int]:
    """As the wire takes it; None for what is no number of steps."""
    return value if type(value) is int and 0 <= value < COUNT_MAX else None


def length_of(value: Any, *, promised: bool = False) -> Optional[int]:
    """Of a loader, sampler or data set of torch's, or of a value of a builtin type; None where only a question would
    tell. `promised`: what a loader of an endless set was told is taken, too."""
    try:
        return _length(value, promised)
    except Exception:  # one without a length, not made whole, or of another version
        return None


def _length(value: Any, promised: bool) -> Optional[int]:
    asks, found = of_class(type(value), "__len__"), None
    if type(asks) is WrapperDescriptorType:
        owner = asks.__objclass__
        return len(value) if module_of(owner) in BUILTIN and owner is not MappingProxyType else None
    if is_of(type(value), "torch"):
        with sys.modules["torch"]._C.DisableTorchFunction():  # a mode of the script's would be told
            return value.shape[0]  # type: ignore[no-any-return]
    if type(asks) is not FunctionType or not str.startswith(asks.__module__, "torch.utils.data."):
        return None
    held, name, told = attributes(value), asks.__qualname__, _lengths.get(id(value), (None, None))[1]
    if name == "DataLoader.__len__":
        if held["_dataset_kind"]:
            return told if promised else None
        found = length_of(held["sampler"] if held["batch_sampler"] is None else held["batch_sampler"])
    elif name == "BatchSampler.__len__":
        drawn, size, whole = length_of(held["sampler"]), held["batch_size"], held["drop_last"]
        plain = drawn is not None and type(size) is int and type(whole) is bool
        return (drawn // size if whole else -(-drawn // size)) if plain else None  # type: ignore[operator]
    elif name == "TensorDataset.__len__":
        return length_of(held["tensors"][0])
    else:
        parts = (held.get(one) for one in ("num_samples", "_num_samples", "indices", "data_source"))
        part = next((one for one in parts if one is not None), None)
        found = part if type(part) is int else length_of(part)
    return told if found is None else found


def _keep(value: Any, length: int) -> None:
    """Not among its attributes: a script may list them, or write them down."""
    at, drop = id(value), _lengths.pop
    if type(length) is int and length:
        _lengths[at] = weakref.ref(value, lambda _: drop(at, None)), length


def listen(module: Any) -> None:
    """torch.utils.data.dataloader has been imported: what its classes are told from now on is kept."""
    random = module.RandomSampler
    after(module.DataLoader, "__len__", lambda length, self: _keep(self, length))
    random.num_samples = property(followed_by(random.num_samples.fget, lambda length, self: _keep(self, length)))
    hint = operator.length_hint
    after(module.SequentialSampler, "__iter__", lambda made, self: _keep(self, hint(made, 0)))


def followed_by(inner: Any, take: Callable[..., Any]) -> Any:
    """A function after which `take` gets its result and arguments; what that raises is ignored."""

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = inner(*args, **kwargs)
        with contextlib.suppress(Exception):  # training goes on without it
            take(made, *args, **kwargs)
        return made

    return call


def after(owner: Any, name: str, take: Callable[..., Any]) -> None:
    """From now on that function of `owner` is followed by `take`."""
    inner = vars(owner)[name]
    call = followed_by(inner.__func__ if isinstance(inner, (staticmethod, classmethod)) else inner, take)
    setattr(owner, name, staticmethod(call) if isinstance(inner, staticmethod) else call)
