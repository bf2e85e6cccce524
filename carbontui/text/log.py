"""Lines of carbontui.log, and what caused a new plan."""

from __future__ import annotations

from carbontui.text.forms import Table

LOG: Table = {
    "stop_asked": "stop requested by {by}",
    "stop_asked_now": "stop requested by {by} (now)",
    "rehearsal_asked": "rehearsal of an unload requested by {by}",
    "unload": "unload: {result}",
    "calibration_begun": "calibration started by {by}",
    "curve_too_high": "the speed curve of an earlier run is of {drawn:.0f} W at full speed; "
    "{allowed:.0f} W are allowed now",
    "curve_reused": "speed curve of an earlier run reused: {levels} levels",
    "curve_assumed_imported": "speeds under caps assumed from an imported curve until this job is calibrated: "
    "{levels} levels",
    "curve_assumed_public": "speeds under caps assumed from public measurements until this job is calibrated: "
    "{levels} levels",
    "no_own_forecast": "no own forecast: {why}",
    "no_new_plan": "no new plan: {why}",
    "no_shadow_prices": "the cluster's prices are not followed: {why}",
    "fleet_untold": "cannot tell the cluster's fleet what this job can do: {why}",
    "boards_disowned": "not the training's boards, {joules:,.0f} J taken back: {boards:list}",
    # causes of a new plan
    "cause_start": "start",
    "cause_slot": "slot",
    "cause_budget": "budget {budget:budget} by {by}",
    "cause_allowance": "{kind} budget {most} by {by}",
    "cause_allowances": "an allowance",
    "cause_hours": "{verb} hours by {by}",
    "cause_guess_taken": "guess accepted by {by}",
    "cause_guess_left": "guess refused by {by}",
    "cause_override": "{verb} by {by}",
    "cause_override_over": "the override ended",
    "cause_caps": "limits can be set",
    "cause_no_caps": "limits cannot be set",
    "cause_tried": "tried",
    "cause_unload_known": "whether it can be unloaded is known",
    "cause_watts_known": "the watts at full speed are known",
    "cause_site": "site budget",
    "cause_grid": "new grid data",
    "cause_clock": "the clock was set",
    "cause_curve_found": "a speed curve was found",
    "cause_curve_simulated": "speeds under caps are simulated",
    "cause_curve_assumed": "a speed curve is assumed",
}
