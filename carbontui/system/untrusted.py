"""Decodes untrusted JSON, from a file or a peer, to a struct, with a single kind of error."""

import functools
from collections.abc import Hashable
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")


def decode(data: bytes | str, kind: type[T]) -> T:
    """A value of `kind`: a struct, or a union of them. Raises ValueError, and nothing else.

    Excessive nesting makes msgspec raise another kind of error, which is converted.
    """
    try:
        return cast(T, _decoder(cast(Hashable, kind)).decode(data))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
