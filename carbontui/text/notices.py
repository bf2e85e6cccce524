"""What a user should know: why a job is in its state, caveats on the numbers, budgets that will not last."""

from collections.abc import Sequence

from carbontui.text import figures
from carbontui.text.forms import Table, led, state_word, wordings
from carbontui.text.sources import slowed


def _out_of_memory(*, limit_b: int | None, now_s: float) -> str:
    if limit_b is None:
        return "killed: out of memory"
    size = f"{limit_b / 2**30:.3g} GiB" if limit_b >= 2**30 else f"{limit_b / 2**20:.3g} MiB"
    return f"killed: out of memory (limit {size})"


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


NOTICES: Table = (
    wordings("reasons")
    | wordings("notices")
    | {
        "state_is": lambda *, state, reason, now_s: led(state_word(state), reason),
        "out_of_memory": _out_of_memory,
        "silent_ranks": lambda *, first, last, now_s: f"rank {first}" if first == last else f"ranks {first}-{last}",
        "board_unread": lambda *, board, why, now_s: (
            f"{board}: no watts can be read ({why or 'no reading'}); the energy counted is without them"
        ),
        "board_slowed": lambda *, board, reasons, now_s: f"{board} is slowed down by {slowed(reasons)}",
        "money": lambda *, value, currency, now_s: f"{value:,.2f} {currency}".strip(),
        "allowance_not_enough": _not_enough,
        "no_cap": _no_cap,
    }
)
