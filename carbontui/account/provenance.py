"""How well a figure is known that was worked out from others: as well as the worst of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from carbontui.protocol import How

WORST_LAST: tuple[How, ...] = ("measured", "integrated", "estimated", "forecast", "default", "simulated", "replay")
assert set(WORST_LAST) == set(get_args(How))
NO_PART = 0.05
"""A share of a sum below this does not decide: sensors themselves are good to 5 %."""
METHODS: Mapping[str, How] = {"counter": "measured", "integrated": "integrated"}
"""Of the meter's methods; every other one (a model, a split, a gap, a snapshot) is an estimate."""


def worst(*parts: How) -> How:
    """The provenance of a figure that comes out of `parts`."""
    return max(parts, key=WORST_LAST.index)


def of_sum(shares: Mapping[str, float]) -> How:
    """Of metered energy, from its shares by the meter's method; nothing metered is estimated."""
    hows = [METHODS.get(method, "estimated") for method, share in shares.items() if share >= NO_PART]
    return worst(*hows) if hows else "estimated"
