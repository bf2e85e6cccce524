"""Why a job is in its state, in words: one wording per reason."""

from carbontui.text.forms import Table, led, state_word


def _out_of_memory(*, limit_b: int | None, now_s: float) -> str:
    if limit_b is None:
        return "killed: out of memory"
    size = f"{limit_b / 2**30:.3g} GiB" if limit_b >= 2**30 else f"{limit_b / 2**20:.3g} MiB"
    return f"killed: out of memory (limit {size})"


REASONS: Table = {
    "as_told": "{text}",
    "starting": "processes are coming up",
    "state_is": lambda *, state, reason, now_s: led(state_word(state), reason),
    # a person
    "stopping": "stopping: a user asked for it",
    "paused_by": "paused by {by}{until_s:until}",
    "capped_by": "capped at {watts:g} W per GPU by {by}{until_s:until}",
    "boosted_by": "boosted by {by}{until_s:until}",
    "forbidden_hours": "forbidden hours{until_s:until}",
    # budgets
    "used_up": "the {kind} budget of {amount} is used up",
    "used_up_leaving": "the {kind} budget of {amount} is used up: a checkpoint is written, then it ends",
    "used_up_paused": "the {kind} budget of {amount} is used up: paused until it is raised",
    "capped_to_last": "capped at {watts:g} W per GPU to stay within its budget",
    "fleet_capped": "capped at {watts:g} W per GPU, as the cluster's fleet started it",
    "site_held": "held: the site budget of {cap_w:watts} has no room for it{until_s:until}",
    "site_capped": "capped at {watts:g} W per GPU by the site budget of {cap_w:watts}{until_s:until}",
    "site_planned": "paused{until_s:until}, as other jobs need the watts of the site budget",
    "event_held": "held for the grid event {event}{until_s:until}",
    "event_capped": "capped at {watts:g} W per GPU for the grid event {event}{until_s:until}",
    # measuring
    "measuring": "measuring {level}",
    "rehearsing": "test-resuming: {phase}",
    # the plan
    "first_plan": "computing the first plan",
    "no_slack": "at full speed: no slack is left before the deadline",
    "no_slack_in_limit": "at full speed: its time limit ends it at {ends_s:clock}, which leaves no time to wait",
    "late_for_limit": "at full speed, and still not done when its time limit ends it at {ends_s:clock}",
    "longest_pause_over": "the longest pause ({max_pause_s:duration}) is over",
    "late": "at full speed, and still later than the budget",
    "plan_begins": "starts at {at_s:clock}, by the plan",
    "plan_not_begun": "not started yet",
    "plan_unload": "unloaded by the plan{until_s:until}",
    "epoch_end": "unloaded by the plan{until_s:until}, once its epoch has ended, at {ends_s:clock}",
    "plan_pause": "paused by the plan{until_s:until}",
    "plan_duty": "slowed to {duty:share} by the plan{until_s:until} (it saves watts, not energy)",
    "plan_cap": "capped at {watts:g} W per GPU by the plan{until_s:until}",
    "plan_full": "at full speed by the plan{until_s:until}",
    "time_limit": "unloaded before its time limit ends it at {ends_s:clock}",
    "machine_ends": "unloaded before this machine ends at {ends_s:clock}, by its cloud's notice",
    "moving": "being moved to {host}",
    "lease_unheard": "unloaded here: the machine it came from is not heard, and may take it back",
    "moved_to": "moved to {host}, where it goes on",
    # what a plan may not do, and why
    "cannot_hold": "at full speed: {why}",
    "ranks": "its ranks do not reach a common step, so no pause can hold; p tries again",
    "apart": "these ranks cannot be held together: they share no torch.distributed store",
    "descriptors": "these ranks cannot be held together: {count} of them need more descriptors than `ulimit -n` leaves "
    "the training; raise it",
    "captured": "no step seen since {step}: {cause}",
    "work_guessed": "at full speed: {steps} total steps are a guess, from {source}, not confirmed yet; "
    "accept it: g, or carbontui learn total --accept",
    "work_unknown": "at full speed: total steps unknown; "
    "say them at the start with --work 8h or --steps N, or in the script: carbontui.report(total=N)",
    "work_endless": "at full speed: {steps} steps would take years; "
    "say it at the start with --work 8h or --steps N, or in the script: carbontui.report(total=N)",
    "work_measured_first": "at full speed: measuring the speed of a step first",
    "no_zone": "at full speed: {why}",
    "no_zone_known": "at full speed: the grid zone is not known",
    "no_grid": "no shifting in time: {why}",
    "no_grid_source": "no shifting in time: no grid source answers",
    "no_price": "no shifting in time: no electricity price in {currency} is known; set price_per_kwh",
    # as observed
    "lease_ended": "still training, not {reason}: the lease of the pause has ended at ranks out of reach",
    "with_silent": "{reason}; silent: {silent:list}",
    "by_sigstop": "{reason} (SIGSTOP)",
    "no_step_because": "no step seen yet: {cause}",
    "no_step": "no training step seen: watts are counted, nothing is steered; in the loop call carbontui.step()",
    "no_boundary": "requested to pause; no step has ended for {quiet_s:.0f} s",
    "no_boundary_because": "requested to pause, but {why}",
    "sigstop_refused": "requested to pause, but it has shown no training step and SIGSTOP is refused: {why}",
    "sigstop_under_way": "requested to pause; stopping its processes (SIGSTOP)",
    "sigstop_waits": "requested to pause; no training step has been seen yet",
    "pause_unseen": "requested to pause, but no step seen yet: {cause}",
    "pause_needs_steps": "requested to pause, but no training step has been seen: call carbontui.step(), "
    "or run it with --sigstop",
    "cap_refused": "cap of {watts:g} W per GPU refused: {why}",
    # its end
    "stopped_unseen": "stopped by a user; its exit status is unknown",
    "unloaded_for_scheduler": "unloaded; the scheduler is to start it again",
    "stopped_by_budget": "{budget}: stopped at its checkpoint",
    "interrupted_by_budget": "{budget}: interrupted",
    "stopped": "stopped by a user",
    "time_limit_over": "ended by its scheduler: its time limit was over at {ends_s:clock}",
    "stopped_by_slurm": "ended by Slurm before it could go on: scancel, its time limit, or a preemption",
    "stopped_by_signal": "ended by a signal from {by} before it could go on",
    "moved_away": "moved to {host}{end:also}",
    "suspended": "SUSPENDED by Slurm: its processes are stopped, and it goes on with `scontrol resume`",
    "suspended_here": "suspended: its processes are stopped by a signal, and it goes on with SIGCONT",
    "signalled": "the command was ended by signal {signal}",
    "out_of_memory": _out_of_memory,
    "exited": "the command ended with exit code {exit_code}",
    "ended_unknown": "the command ended, its exit code is unknown",
    "lost_running": "the child is gone and its exit status is unknown",
    "lost_waiting": "the monitor process was gone before the start: run it again",
    "lost_unloaded": "unloaded, and what would start it again is gone: run it again, from its checkpoint",
    "unsteered": "no supervisor answers; training goes on unsteered, a new supervisor is on its way",
    "orphaned": "monitor process and supervisor are gone; training goes on unsteered; {then}",
    "take_up": "to take it up: {command}",
    "life_unknown": "whether it lives is not known: {why}",
    "unseen_host": "it is a job of {host}",
    "unseen_namespace": "its processes are in another pid namespace (a container?)",
    "unseen_damaged": "{record} is damaged",
    "restartable_running": "the child is gone and its exit status is unknown; start it again: {command}",
    "restartable_waiting": "the monitor process was gone before the start; it continues to wait with: {command}",
    "restartable_unloaded": "unloaded, and what would start it again is gone; it continues with: {command}",
}
"""By the code of a `protocol.Statement`."""
