"""Screen text for states, times, levels and provenance marks. Pure functions on the protocol's structs."""

from carbontui import protocol
from carbontui.text import figures, situation
from carbontui.text.statements import rendered
from carbontui.tui.model.view_state import ViewState

clock, count, mark, marked = figures.clock, figures.count, figures.mark, figures.marked
STATE_STYLE = {
    "starting": "dim",
    "waiting": "paused",
    "running": "running",
    "throttled": "capped",
    "pausing": "paused",
    "paused": "paused",
    "unloaded": "unloaded",
    "done": "running",
    "failed": "fault",
    "stopped": "warning",
    "lost": "fault",
}
KIND_STYLE = {
    "full": "running",
    "cap": "capped",
    "duty": "capped",
    "pause": "paused",
    "unload": "unloaded",
    "off": "unloaded",
}

SIGNALS = {
    "average_lifecycle": "average, lifecycle",
    "average_direct": "average, direct",
    "marginal": "marginal",
    "given": "as given",
}


def way_on(status: protocol.Status) -> str:
    """The key a user who does not want the present state would press next, or ''."""
    if status.state not in protocol.LIVE_STATES or status.moved_to is not None:
        return ""
    if status.guess is not None and not status.guess.agreed and status.state == "running":
        return f"g: plan with {count(status.guess.steps)} steps"
    if status.override is not None:
        return "r: resume the plan"
    if status.state == "waiting":
        return "b: start it now"
    if status.state in ("paused", "unloaded"):
        return "b: run it now"
    return "p: pause it"


def banner(status: protocol.Status, series: protocol.ChartSeries) -> str:
    """What must stay in sight: 'SIMULATED GPU · REPLAY 3600× …', 'grid: my.csv'; '' for a real job on a live grid."""
    grid = status.provenance.get("intensity")
    parts = []
    power = [found.how for field, found in status.provenance.items() if field.endswith("power_w")]
    if "simulated" in power:
        parts.append("SIMULATED GPU")
    if series.replay_speed is not None:
        parts.append(f"REPLAY {series.replay_speed:.0f}× of recorded grid data")
    elif status.replayed:
        parts.append("REPLAY of recorded data")
    elif grid is not None and grid.how == "replay":
        parts.append(grid.source)  # live, on a file of the user's
    return " · ".join(parts)


def age(seconds: float) -> str:
    """How old the data is, in coarse steps so that a still screen stays still: '' while fresh."""
    if seconds < 5:
        return ""
    if seconds < 60:
        return f"{max(step for step in (5, 10, 20, 30) if step <= seconds)} s"
    return figures.duration(seconds // 60 * 60)


def last_event(view_state: ViewState) -> str:
    """'20:24 ada@pts/3 paused it': the newest user command, or ''."""
    last = next(reversed(view_state.status.events), None)
    now_s = view_state.now_s
    return "" if last is None else f"{situation.clock(last.at, now_s)} {rendered(last.said, last.text, now_s)}"


def in_force(view_state: ViewState) -> protocol.FrontierPoint | None:
    """The totals of the plan in force for the whole job; None without a plan."""
    frontier = view_state.frontier
    if frontier is None or frontier.chosen is None or frontier.chosen >= len(frontier.points):
        return None
    return frontier.points[frontier.chosen]
