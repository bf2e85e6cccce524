"""What a user should know: caveats on the numbers, what is missing, budgets that will not last."""

from collections.abc import Sequence

from carbontui.text import figures
from carbontui.text.forms import Table
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


NOTICES: Table = {
    # what holds the training up
    "steps_stopped": "no step has ended for {quiet_s:duration} (one takes {step_s:.2g} s){boards:also}",
    "boards_compute": "its GPUs compute, as in an evaluation",
    "boards_idle": "none of its GPUs has computed for {idle_s:duration}",
    "boards_wait": "its GPUs computed {busy:percent} of the last {seen_s:duration}; "
    "for the rest they waited for the training (data, CPU work, other ranks){core:also}",
    "slower": "slower: {rate:.3g} steps/s in its last {last_s:duration} at full speed, "
    "{whole:.3g} over all of it{core:also}",
    "held_steps_stopped": "no step for {quiet_s:duration}{boards:also}",
    "held_boards_idle": "GPUs idle for {idle_s:duration}",
    "held_boards_wait": "GPUs {busy:percent} busy, they wait for the training",
    "held_slower": "slower than before",
    "core_wait": "it was ready and waited for a CPU core {share:percent} of the time",
    "simulated": "SIMULATED GPU: watts are a model, not a measurement",
    "guess_withdrawn": "withdrawn: {steps:count} total steps, guessed from {source}; "
    "it trains on, and nothing is delayed until the total is known",
    "total_passed": "it has passed the {steps:count} steps that --steps or the script states as the total: "
    "when it ends is not known",
    "replay": "REPLAY of recorded grid data, {times:,.0f} times faster than life",
    "unguarded": "unguarded: the monitor process is gone, nothing restarts it; carbontui restart gives it another",
    "silent": "silent: {names:list}",
    "silent_rank": "rank {rank} ({node})",
    "silent_ranks": lambda *, first, last, now_s: f"rank {first}" if first == last else f"ranks {first}-{last}",
    "nodes_unread": "watts are unknown without {names:list}",
    "site_budget_broken": "the site budget of {cap:watts} cannot be kept: "
    "the jobs of this machine draw at least {least:watts}",
    "rehearsal_offered": "for long pauses it could be unloaded, after a test of that: carbontui learn unload {job}",
    # boards
    "of_board": "{board}: {text}",
    "boards_unseen": "{count} of its GPUs cannot be seen any more: watts are unknown without them",
    "driver_silent": "the driver has not answered for {age_s:duration}: watts are unknown, "
    "limits stay as they are until it does",
    "board_lost": "{board} is lost (it fell off the bus): reset it or reboot; its energy until then is kept",
    "board_unread": lambda *, board, why, now_s: (
        f"{board}: no watts can be read ({why or 'no reading'}); the energy counted is without them"
    ),
    "board_held": "{board} is held at {held:watts} by the platform; its limit is {limit:watts}",
    "board_slowed": lambda *, board, reasons, now_s: f"{board} is slowed down by {slowed(reasons)}",
    "board_in_slices": "{board}: its watts are those of the whole GPU, shared by its MIG slices"
    "; the job is booked its slices' part, {share:percent}",
    "board_of_user_too": "{board}: {user} uses it too: its limit is left alone, {whose}",
    "board_of_others_too": "{board}: another process (pid {pid}) uses it too: its limit is left alone, {whose}",
    "counted_here": "its watts are counted here",
    "split": "its watts are shared, split",
    "split_as": "its watts are shared, split: {own:.0f} of {all:.0f} W are this job's",
    # carbon, cost and energy budgets
    "grams_of_co2": "{grams:grams} CO2",
    "energy": "{kwh:kwh}",
    "money": lambda *, value, currency, now_s: f"{value:,.2f} {currency}".strip(),
    "capped_for_allowances": "capped at {watts:g} W per GPU so that the {kinds:and} budget lasts",
    "allowance_not_enough": _not_enough,
    "allowance_question": "the {kind} budget of {most}: {question}",
    "allowance_used_up": "the {kind} budget of {most} is used up ({used}): {then}",
    "allowance_pauses": "paused until it is raised",
    "allowance_ends": "it ends at its checkpoint",
    "allowance_interrupts": "it is interrupted now",
    "allowance_cannot_stop": "--on-budget stop will not stop this training: {why}; "
    "start it with pause (it waits) or stop! (it is interrupted) instead",
    "allowance_goes_on": "the training goes on",
    "allowance_cannot_end": "the training goes on, and is not stopped: {why}",
    "allowances_suffice": "the budgets are sufficient again",
    "no_cap": _no_cap,
    "question": "raise it (carbontui budget {example}) or end the job (carbontui stop)? "
    "After {until_s:clock} it goes on anyway",
    "question_unanswered": "asked, no answer: the training goes on",
    "with_question": "{said}{question:also}",
    # forbidden hours
    "hours": "{start_s:clock} to {end_s:clock}",
    "hours_daily": "daily {start_s:time_of_day} to {end_s:time_of_day}",
}
