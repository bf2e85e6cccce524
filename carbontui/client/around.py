"""The wrapper around a step: alone in its file, because torch.compile must examine it and nothing else of ours."""

import functools
import threading
from typing import Any, Callable


class _Local(threading.local):
    depth = 0
    """Nesting depth of steps in this thread."""


_local = _Local()


def around(inner: Callable[..., Any], ended: Callable[..., None]) -> Callable[..., Any]:
    """Call `inner`, then `ended` with its positional arguments, unless the step was nested in another one.

    The finally is not only for errors: torch.compile does not trace a frame with a graph break inside one, so this
    wrapper is never traced, and what it wraps is compiled as it would be without it.
    """

    @functools.wraps(inner)
    def step(*args: Any, **kwargs: Any) -> Any:
        depth = _local.depth
        _local.depth = depth + 1
        try:
            result = inner(*args, **kwargs)
        finally:
            _local.depth = depth
        if not depth:
            ended(*args)
        return result

    step._carbontui = True  # type: ignore[attr-defined]
    return step
