"""Why a command, a calibration or a rehearsal is refused, with what helps."""

from __future__ import annotations

from carbontui.text.boards import limit_command
from carbontui.text.forms import Table


def _not_calibrated(*, last: str | None, now_s: float) -> str:
    return f"not calibrated yet{f': {last}' if last else ''}"


def _above_lowered(*, watts: float, start: float, default: float, maker: str, board: str, now_s: float) -> str:
    command = limit_command(maker, board, round(1000 * default))
    return (
        f"{watts:g} W is above the limit found ({start:g} W), which is below the driver's default of {default:g} W; "
        f"to lift it: {command}; carbontui run --allow-raise permits it"
    )


REFUSALS: Table = {
    "job_over": "job {job} is over ({state})",
    "job_is": "the job is {state:state}",
    "job_is_because": "the job is {state:state} ({why})",
    "no_step_yet": "no training step has been seen yet",
    "overridden": "the job is under an override of {by}; clear it first: carbontui resume",
    # overrides
    "changed_first": "{by} changed it first ({mode}); check and repeat",
    "cleared_first": "someone cleared the override first; check and repeat",
    "not_an_override": "{verb!r} is not an override",
    "no_watts": "cap needs watts per GPU, like 300W",
    "no_duration": "--for needs a duration, like 30m",
    "in_the_past": "that time is in the past",
    "over_a_year_away": "that is more than a year away; without a time it holds until cleared",
    "no_next_change": "the plan has no next change; say --for 30m or --until 18:00",
    "no_room_to_boost": "a boost takes {needs:watts}; the site budget of {cap:watts} leaves it {left:watts} "
    "with every other job at its minimum",
    # caps
    "cap_in_replay": "hours are replayed here, and a limit on a real board would be real",
    "caps_off": "caps are off for this job (--no-cap)",
    "boards_unanswered": "the GPU driver has not answered yet; try again in a moment",
    "no_board_to_cap": "no GPU of this job has a power limit to set",
    "board_takes_no_cap": "{board}: {why}{fix:also}",
    "cap_too_low": "{watts:g} W is below what {board} takes; at least {least:g} W",
    "cap_too_high": "{watts:g} W is above what {board} takes; at most {most:g} W",
    "cap_above_found": "{watts:g} W is above the limit found ({found:g} W); carbontui run --allow-raise permits it",
    "cap_above_lowered": _above_lowered,
    # hours, guesses
    "nothing_forbidden": "no hours are forbidden",
    "hours_not_forbidden": "hours {hours!r} are not forbidden; forbidden are: {known:list}",
    "no_guess": "no guess of the total steps: no source for one",
    "no_guess_needed": "no guess of the total steps: the total is known: {steps:count} steps",
    # calibrations
    "not_calibrated": _not_calibrated,
    "calibration_runs": "a calibration is running ({progress})",
    "replay_uncalibrated": "a replay cannot be calibrated: its watts are those of a model or of another time",
    "no_gpu": "there is no GPU to calibrate on",
    "gpu_of_others": "other processes use its GPU (pid {pid}): their work would be measured too",
    "gpu_in_slices": "its GPU is shared by MIG slices: their work would be measured too",
    "no_slack_to_calibrate": "no slack is left before the deadline; give it some: carbontui budget 1.5x",
    # SIGSTOP
    "processes_unreported": "the driver does not report which processes use {board}",
    "processes_share": "{count} processes use {name} ({board})",
    "processes_together": "its {count} processes use GPUs together",
    "keeper_gone_to_thaw": "the keeper, which undoes it, is gone",
    # rehearsals
    "unloaded_until_start": "it was tried, and unloaded at step {step:count} to wait for its start, "
    "which will show if it resumes",
    "rehearses_already": "{by} rehearses it already ({phase})",
    "reads_a_pipe": "it reads a pipe, which a later start could not read again; hand it a file (< FILE)",
    "nothing_to_checkpoint_with": "it has no checkpoint function: carbontui.on_checkpoint(save); "
    "see docs/frameworks.md",
    "nothing_restarts_it": "the keeper is gone: nothing would restart it",
    "too_much_to_repeat": "{done_s:duration} of work is done and would be repeated if the resume fails; "
    "at most {most_s:duration} may be{worked:also}",
    "resumed_before": "a resume has worked before",
}
