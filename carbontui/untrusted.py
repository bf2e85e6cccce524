"""JSON that somebody else wrote, a file on disk or the other end of a wire, as a struct: or one kind of error."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")


def decode(data: bytes | str, kind: type[T]) -> T:
    """A value of `kind`: a struct, or a union of them. Raises ValueError, and nothing else.

    Nesting without end leaves msgspec as an error of another kind.
    """
    try:
        return cast(T, _decoder(cast(Hashable, kind)).decode(data))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
