"""What was tried with a job and how it went: unloads and their rehearsals, a try before the start, calibrations."""

from collections.abc import Sequence

from carbontui.text import figures
from carbontui.text.forms import Table, wordings

_LOGGED = {"loss": "the mean behind the next logged loss", "tokens": "TRL's num_tokens"}


def _phase(*, phase: str, now_s: float) -> str:
    return {
        "none": "",
        "asked": "about to leave",
        "leaving": "writing a checkpoint before leaving",
        "away": "left, restarting",
        "returning": "restarted, waiting for its first steps",
    }[phase]


def _unload_works(
    *,
    step: int,
    step_stated: bool,
    data_order: str | None = None,
    restarts: Sequence[str] = (),
    loss_before: float | None,
    loss_after: float | None,
    save_s: float | None,
    saved_b: int | None,
    restart_s: float,
    now_s: float,
) -> str:
    told = "" if step_stated else ", by the step count passed to it"
    known = loss_before is not None and loss_after is not None
    loss = f"; loss {loss_before:.4g} before, {loss_after:.4g} after" if known else ""
    size = "" if saved_b is None else f", {figures.size(saved_b)}"
    save = "" if save_s is None else f" (checkpoint {save_s:.0f} s{size}; restart {restart_s:.0f} s)"
    away_s = restart_s + (save_s or 0.0)
    anew = " and ".join(_LOGGED[one] for one in restarts)
    logged = f"begun anew in its log: {anew}" if anew else "what is only logged, as tokens seen, may restart"
    data = {
        "same": f"weights and data order are an undisturbed run's ({logged})",
        "other": "its steps are exact, the order of its data is not: plans pause it, or unload it where an epoch ends",
        None: "its data is the script's own matter",
    }[data_order]
    return f"it works: left at step {step:,} and resumed there{told}; {data}{loss}; {away_s:.0f} s without a step{save}"


def _tried(
    *,
    steps: int,
    step_s: float | None,
    gpus_w: float | None,
    host_w: float | None,
    total: int | None,
    takes_s: float | None,
    total_known: bool,
    guess: int | None,
    guessed_from: str | None,
    kept_at: int | None,
    now_s: float,
) -> str:
    parts = [f"tried: {steps:,} steps"]
    if step_s is not None:
        parts.append(f"{step_s:.3g} s a step")
    if gpus_w is not None:
        parts.append(f"{gpus_w:.0f} W on its GPUs")
    elif host_w is not None:
        parts.append(f"{host_w:.0f} W of CPU and memory")
    if total is not None:
        parts.append(f"{total:,} total steps" + ("" if takes_s is None else f" ({figures.duration(takes_s)})"))
    elif guess is not None:
        parts.append(f"{guess:,} total steps are a guess, from {guessed_from} (--guess plans with it)")
    elif not total_known:
        parts.append("the total is not known")
    if kept_at is None:
        parts.append("it cannot be unloaded: it starts over")
    else:
        parts.append(f"unloaded at step {kept_at:,}, checkpoint kept")
    return ", ".join(parts)


TRIALS: Table = wordings("trials") | {
    "unload_phase": _phase,
    "unload_works": _unload_works,
    "tried": _tried,
}
