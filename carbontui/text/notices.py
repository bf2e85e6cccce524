"""What a user should know: caveats on the numbers, what is missing, budgets that will not last."""

from collections.abc import Sequence

from carbontui.text import figures
from carbontui.text.forms import Table, wordings
from carbontui.text.sources import slowed


def _not_enough(
    *,
    kind: str,
    most: str,
    expected: str,
    used_up_s: float | None,
    cap_w: float | None,
    more: Sequence[str],
    now_s: float,
) -> str:
    at = "" if used_up_s is None else f", used up at {figures.clock(used_up_s, now_s)}"
    capped = () if cap_w is None else (f"capped at {cap_w:g} W per GPU",)
    return "; ".join((f"the {kind} budget of {most} is not enough: {expected} expected{at}", *capped, *more))


def _no_cap(*, why: str, now_s: float) -> str:
    because = {
        "no_limits": "the GPUs take no limit",
        "unmeasured": "its speed under a cap is not measured yet",
        "none_saves": "none would use less",
    }[why]
    return f"no cap: {because}"


NOTICES: Table = wordings("notices") | {
    "silent_ranks": lambda *, first, last, now_s: f"rank {first}" if first == last else f"ranks {first}-{last}",
    "board_unread": lambda *, board, why, now_s: (
        f"{board}: no watts can be read ({why or 'no reading'}); the energy counted is without them"
    ),
    "board_slowed": lambda *, board, reasons, now_s: f"{board} is slowed down by {slowed(reasons)}",
    "money": lambda *, value, currency, now_s: f"{value:,.2f} {currency}".strip(),
    "allowance_not_enough": _not_enough,
    "no_cap": _no_cap,
}
