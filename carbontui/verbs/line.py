"""`line`: one job in a few words, for the status bar of tmux or a shell prompt."""

from __future__ import annotations

import click

from carbontui import protocol, units
from carbontui.job import store
from carbontui.verbs import talk

_SHAPES = {
    "starting": "◌",
    "waiting": "○",
    "running": "▶",
    "throttled": "◐",
    "pausing": "◑",
    "paused": "‖",
    "unloaded": "△",
    "done": "✓",
    "failed": "✗",
    "stopped": "■",
    "lost": "?",
}
_CHANGES = {"pause": "‖", "off": "‖", "unload": "△", "plan": "▶", "full": "▶"}


def words(status: protocol.Status) -> str:
    """'▶ 31% 246W ‖17:30 −9%': state, progress, watts, the next change and when, CO2 at the end against run-now."""
    parts = [_SHAPES[status.state]]
    if status.steps_total:
        parts.append(f"{min(1.0, status.step / status.steps_total):.0%}")
    if status.state not in protocol.LIVE_STATES:
        return " ".join((*parts, status.state))
    if status.power_w is not None:
        parts.append(units.fmt_watts(status.power_w).replace(" ", ""))
    if status.next is not None:
        now = units.from_iso(status.measured_at)
        when = units.fmt_clock(units.from_iso(status.next.at), now)
        parts.append(f"{_CHANGES.get(status.next.level, '◐')}{when}")
    end = status.at_end
    if end is not None and end.avoided_g is not None and end.run_now_g:
        share = -end.avoided_g / end.run_now_g
        parts.append(f"{'−' if share < 0 else '+'}{abs(share):.0%}")
    return " ".join(parts)


@click.command()
@click.argument("job", required=False)
@click.option("--json", "as_json", is_flag=True, help="The parts as JSON.")
def line(job: str | None, as_json: bool) -> None:
    """Print one job in a few words, for a status bar.

    Nothing while no job runs.

    tmux: set -g status-right '#(carbontui line)'
    """
    live = [found for found in store.jobs() if found.live and not found.foreign] if job is None else [talk.find(job)]
    if not live:
        return
    talk.warn_lost(live[0])
    status = live[0].status() if job is not None and not live[0].live else talk.live_status(live[0])
    more = f" +{len(live) - 1}" if len(live) > 1 else ""
    if as_json:
        told = {"job": status.job, "state": status.state, "line": words(status) + more, "power_w": status.power_w}
        click.echo(talk.as_json(told))
    else:
        click.echo(words(status) + more)
