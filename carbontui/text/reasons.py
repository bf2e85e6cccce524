"""Why a job is in its state, in words: one wording per reason."""

from carbontui.text.forms import Table, led, state_word, wordings


def _out_of_memory(*, limit_b: int | None, now_s: float) -> str:
    if limit_b is None:
        return "killed: out of memory"
    size = f"{limit_b / 2**30:.3g} GiB" if limit_b >= 2**30 else f"{limit_b / 2**20:.3g} MiB"
    return f"killed: out of memory (limit {size})"


REASONS: Table = wordings("reasons") | {
    "state_is": lambda *, state, reason, now_s: led(state_word(state), reason),
    "out_of_memory": _out_of_memory,
}
"""By the code of a `protocol.Statement`."""
