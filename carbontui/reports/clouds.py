"""A run's work on rented boards, for its page: the regions that would have emitted least, at dated example prices."""

from __future__ import annotations

from carbontui import config
from carbontui.account import compare
from carbontui.reports import elsewhere, tables
from carbontui.reports.figures import ReportTable
from carbontui.reports.story import RunStory
from carbontui.text import figures as form

ROWS = 8
TITLE = "The same work in clouds"
HEAD = ("where", "time", "energy", "CO2", "price (USD)", "how")
CAVEAT = (
    "Example prices are out of date within weeks; the CO2 is the yearly mean of a region's grid. Speeds of other boards"
    " are a rule of thumb."
)


def table(story: RunStory) -> ReportTable | None:
    """The job's own row and those of the least CO2, one per region; None where boards or work are not known."""
    every = tables.boards()
    try:
        work = elsewhere.work_of(story, config.Settings(), given=False)
        here = elsewhere.board_of(story, None, every)
    except (ValueError, LookupError, IndexError):
        return None
    rows = compare.on_boards(work, here, every, precision="fp16", values={})
    rented = [row for row in compare.rented(work, rows, tables.cloud_prices()) if row.gco2_g is not None]
    least: dict[str, compare.Elsewhere] = {}
    for row in sorted(rented, key=lambda row: (row.gco2_g or 0.0, row.cost or 0.0)):
        least.setdefault(" ".join(row.name.split()[:2]), row)
    own = [row._replace(name=f"here: {row.name}") for row in rows if row.here]
    shown = [*own, *list(least.values())[:ROWS]]
    return ReportTable(TITLE, HEAD, [_cells(row) for row in shown]) if least else None


def _cells(row: compare.Elsewhere) -> tuple[str, ...]:
    price = "" if row.cost is None else f"{row.cost:,.2f}"
    return row.name, form.duration(row.time_s), form.kwh(row.kwh), form.grams(row.gco2_g), price, row.how.split(";")[0]
