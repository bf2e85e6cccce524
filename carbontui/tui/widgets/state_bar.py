"""What the job does and why, what comes next, who decided, and whether this screen is connected: two rows, a third if
the numbers are not real."""

import textwrap
import time

from carbontui.text import account, situation
from carbontui.tui.model import state_text
from carbontui.tui.model.feed import Connection
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, Cells, cut, spread, width_of

_NAME_LEAST = 8
READ_S = 3.0
"""A headline of a replay stands at least this long."""


class StateBar(Cells):
    """`show(picture, connection, age_s, at_once=...)`."""

    view_state: ViewState | None = None
    connection = Connection("connecting")
    _since_s = 0.0
    age = ""
    error = ""
    """Of a failed job, the last line of its traceback."""
    readonly = False

    def show(
        self, view_state: ViewState | None, connection: Connection, age_s: float, *, at_once: bool = False
    ) -> None:
        self.connection, self.age = connection, state_text.age(age_s)
        now_s = time.monotonic()
        if at_once or not self._still_read(view_state, now_s):
            self.view_state, self._since_s = view_state, now_s
        self.redraw()

    def _still_read(self, view_state: ViewState | None, now_s: float) -> bool:
        """Whether what stands there is to stay a while: a replay plans every second or two, faster than one reads."""
        shown = self.view_state
        if shown is None or view_state is None or now_s - self._since_s >= READ_S:
            return False
        old, new = shown.status, view_state.status
        applied = (one.situation and one.situation.applied for one in (old, new))
        same = old.state == new.state and len(set(applied)) == 1 and old.override == new.override
        return same and view_state.series.replay_speed is not None

    def draw(self, width: int, height: int) -> list[CellRow]:
        view_state = self.view_state
        if view_state is None:
            return [[(" carbontui", "title"), (f"  {self.connection.text or 'connecting'}", "dim")]]
        status = view_state.status
        style_name = state_text.STATE_STYLE[status.state]
        left: CellRow = [
            (f" {palette.STATES[status.state]} ", style_name),
            (situation.state(status).upper(), style_name),
        ]
        if at := situation.at_level(status, view_state.plan):
            left.append((f"  {at}", "text"))
        if refused := situation.refused(status):
            left.append((f"; {refused}", "warning"))
        if diverged := situation.diverged(status):
            left.append((f"; {diverged}", "fault"))
        if (held := situation.held_up(status)) and width_of(left) + len(held) + _NAME_LEAST + 12 <= width:
            left.append((f"; {held}", "warning"))
        level_in_force = situation.author(status, view_state.now_s)
        if level_in_force and width_of(left) + len(level_in_force) + len(self._link()[0]) + _NAME_LEAST + 7 <= width:
            left += [("  ", "text"), (level_in_force, "warning")]
        told = state_text.banner(status, view_state.series)
        space = height - bool(told)
        rows = [self._first(left, width), *self._rest(width, space - 1)]
        if told:
            rows = [*rows[:space], *[[] for _ in range(space - len(rows))], [(f" {told}".ljust(width), "banner")]]
        return rows

    def _first(self, left: CellRow, width: int) -> CellRow:
        assert self.view_state is not None
        status = self.view_state.status
        link, style_name = self._link()
        name: CellRow = [(status.name, "strong"), (f" {status.job}@{status.host}", "dim")]
        end: CellRow = [("  ", "text"), (link, style_name), (" ", "text")]
        if link not in ("live", "read only", "over") and width_of(left) + width_of(end) + 2 > width:
            left = left[:2]  # what is not of now matters more than at which level
        room = width - width_of(left) - width_of(end) - 2
        if width_of(name) > room:
            name = [(status.name, "strong")]
        if width_of(name) > room:
            # a name cut short still tells one job from another; below a few letters it tells nothing
            name = [(cut(status.name, room), "strong")] if room > 6 else []
        return spread(width, left, [*name, *end] if name else end[1:])

    def _link(self) -> tuple[str, str]:
        """Whether the screen is connected, and the age of its data."""
        kind = self.connection.kind
        if kind == "reconnecting":
            return f"reconnecting{', data ' + self.age + ' old' if self.age else ''}", "warning"
        if kind == "refused":
            return "not connected", "fault"
        if kind == "over" or (self.view_state and self.view_state.over):
            return "over", "dim"
        if self.age:
            return f"data {self.age} old", "warning"
        return ("read only" if self.readonly else "live"), "dim"

    def _rest(self, width: int, rows: int) -> list[CellRow]:
        """What it saves, until when, and one key, on two rows where one is too narrow; then the reason in what is
        left."""
        first, second = self._verdict(width)
        head: list[CellRow] = [first, [(f"   {second}", "text")]] if second and rows > 2 else [first]
        space = rows - len(head)
        rest: list[CellRow] = [[(f"   {line}", "text")] for line in _wrapped(self.why(), width - 4, space)]
        return [*head, *rest]

    def why(self) -> str:
        assert self.view_state is not None
        gone = self.connection.text if self.connection.kind == "refused" else ""  # where it is now, or why not seen
        return gone or self.error or situation.why(self.view_state.status, self.view_state.plan, self.view_state.now_s)

    def _verdict(self, width: int) -> tuple[CellRow, str]:
        """The row; and when the next change comes, where that did not fit."""
        view_state = self.view_state
        assert view_state is not None
        status, said = view_state.status, account.verdict(view_state.status)
        row: CellRow = [("   ", "text")]
        style_name = "running" if "−" in said else "warning" if "+" in said else "strong"
        row += [(said, style_name)] if said else []
        coming = brief = done = ""
        if view_state.over:
            choices: tuple[tuple[str, ...], ...] = ((f"ended {account.in_time(status, brief=True)}",),)
        else:
            coming = situation.next_change(status, view_state.plan, view_state.now_s)
            brief = coming.rpartition(", in ")[0] or coming  # cut short, 'in 4 h 36' would read as 'in 4 h'
            done = f"done {situation.finish(status, view_state.now_s)}" if status.finish_expected else ""
            key = "" if self.readonly or self.connection.kind != "live" else state_text.way_on(status)
            choices = (done, coming, key), (coming, key), (done, brief, key), (brief, key), (done, key), (key,), ()
        kept = next(
            (some for some in choices if width_of(row) + sum(len(one) + 3 for one in some if one) <= width), choices[-1]
        )
        for one in filter(None, kept):
            row.append((f" · {one}" if len(row) > 1 else one, "text"))
        told = view_state.over or any(one and one in kept for one in (coming, brief, done))
        return row, "" if told else brief or done


def _wrapped(text: str, width: int, rows: int) -> list[str]:
    """In that many rows at most. What is too long for them ends with a clause where one ends in the last row's second
    half: 'after 275 ...' makes a reader guess at the unit."""
    lines = textwrap.wrap(text, max(8, width), max_lines=rows, placeholder=" …") if rows > 0 else []
    if lines and lines[-1].endswith(" …"):
        end = max(lines[-1].rfind(mark) for mark in (", ", "; "))
        if end >= width // 2:
            lines[-1] = f"{lines[-1][:end]} …"
    return lines
