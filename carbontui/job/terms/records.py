"""Values from small files of a job and from other machines: typed records, checked field by field, and files read
within bounds. Standard library only, for the keeper."""

import functools
import json
import os
import signal
import stat
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 2.0**53
"""Of a number that is no count of bytes or nanoseconds."""
MOST_B = 1 << 24
"""Of a small file, and of a text."""
LAST_S = 32_503_680_000.0
"""The year 3000: a later time is a damaged one."""
_EXIT: dict[str, Callable[[Any], bool]] = {
    "code": lambda value: type(value) is int and 0 <= value <= 255,
    "signal": lambda value: type(value) is int and 0 < value < signal.NSIG,
    "at": lambda value: type(value) in (int, float) and 0 <= value <= LAST_S,
    "memory_limit_b": lambda value: type(value) is int and 0 <= value < MOST,
    "signals": lambda value: isinstance(value, list),
    **dict.fromkeys(("stopped", "unloaded", "interrupted", "out_of_memory"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("budget", "ended_by", "moved"), lambda value: isinstance(value, str) and len(value) < 512),
}
"""What exit.json says, and which values may be."""


def known_exit(record: dict[str, Any]) -> dict[str, Any]:
    """What is as it may be, of a damaged exit.json, or of what another machine says of the end of a job."""
    return {name: record[name] for name, may_be in _EXIT.items() if name in record and may_be(record[name])}


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """A small regular file; what is no file or has no end is never waited for. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:  # noqa: PTH123 - of a descriptor
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MOST_B:
            raise OSError(f"{os.fspath(path)} is no small file")
        return file.read(MOST_B)


def read_json(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """A JSON object; None when it is missing or unreadable."""
    try:
        value = json.loads(read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@functools.cache
def _fields(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def typed(value: Any, kind: Any, name: str = "it") -> Any:
    """`value`, of JSON, as one of this kind: a NamedTuple, str, int, float, bool, None, dict, tuples and unions of
    them. Unknown fields are ignored. Raises TypeError, which names the field, for any other."""
    of, inner = typing.get_origin(kind), typing.get_args(kind)
    if of in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return typed(value, next(one for one in inner if one is not type(None)), name)
    if of is tuple and isinstance(value, (list, tuple)):
        kinds = (inner[0],) * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            return tuple(typed(one, its, name) for one, its in zip(value, kinds, strict=True))
    elif isinstance(kind, type) and issubclass(kind, tuple) and isinstance(value, dict):
        fields = _fields(kind)
        given = {field: typed(value[field], its, field) for field, its in fields.items() if field in value}
        if all(field in given for field in fields.keys() - kind._field_defaults.keys()):  # type: ignore[attr-defined]
            return kind(**given)
        name = f"a field of {kind.__name__}"
    elif kind in (int, float):
        if type(value) in (int, kind) and abs(value) < (MOST if kind is float else 2**63):
            return value
    elif of is typing.Literal:
        if value in inner:
            return value
    elif type(value) is (of or kind):
        return value
    raise TypeError(f"{name} is missing or not what it should be")


def decode(line: bytes | str, kind: type[T]) -> T:
    """One message of another machine. Raises ValueError, and nothing else."""
    try:
        if len(line) > MOST_B:
            raise ValueError("it is too long")
        return typing.cast("T", typed(json.loads(line), kind))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except TypeError as error:
        raise ValueError(str(error)) from None
