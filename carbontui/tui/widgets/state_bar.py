"""What the job does and why, what comes next, who decided, and whether this screen is in touch: two rows, a third
where the numbers are not real."""

from __future__ import annotations

from carbontui.tui import words
from carbontui.tui.messages import Connection
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import Cells, Row, spread, width_of


class StateBar(Cells):
    """`show(picture, connection, age_s)`."""

    picture: Picture | None = None
    connection = Connection("connecting")
    age = ""
    readonly = False

    def show(self, picture: Picture | None, connection: Connection, age_s: float) -> None:
        self.picture, self.connection, self.age = picture, connection, words.age(age_s)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        picture = self.picture
        if picture is None:
            return [[(" carbontui", "title"), (f"  {self.connection.text or 'connecting'}", "dim")]]
        status = picture.status
        ink = words.STATE_STYLE[status.state]
        left: Row = [(f" {self.glyphs.states[status.state]} ", ink), (status.state.upper(), ink)]
        if status.level and not picture.over and status.level != status.state:
            left += [
                ("  at ", "dim"),
                (words.level_name(status.level, picture.plan.table if picture.plan else ()), "text"),
            ]
        held = words.override(status, picture.now_s)
        if held:
            left += [("  ", "text"), (held, "warning")]
        rows = [self._first(left, width), self._second(width, tall=height > 3)]
        if height > 3:
            rows.append(self._third(width))
        told = words.banner(status, picture.series)
        if told:
            rows = [*rows[: height - 1], [(f" {told}".ljust(width), "banner")]]
        return rows

    def _first(self, left: Row, width: int) -> Row:
        assert self.picture is not None
        status = self.picture.status
        link, ink = self._link()
        name: Row = [(status.name, "strong"), (f" {status.job}@{status.host}", "dim")]
        end: Row = [("  ", "text"), (link, ink), (" ", "text")]
        if width_of(left) + width_of(name) + width_of(end) + 2 > width:
            name = [(status.name, "strong")]
        if width_of(left) + width_of(name) + width_of(end) + 2 > width:
            name = []
        return spread(width, left, [*name, *end])

    def _link(self) -> tuple[str, str]:
        """Whether the screen is in touch, and the age of what it shows."""
        kind = self.connection.kind
        if kind == "reconnecting":
            return f"reconnecting{', data ' + self.age + ' old' if self.age else ''}", "warning"
        if kind == "refused":
            return "not connected", "fault"
        if kind == "over" or (self.picture and self.picture.over):
            return "over", "dim"
        if self.age:
            return f"data {self.age} old", "warning"
        return ("read only" if self.readonly else "live"), "dim"

    def _second(self, width: int, tall: bool) -> Row:
        assert self.picture is not None
        status = self.picture.status
        left: Row = [(f"   {status.reason.text}", "text")]
        after = words.next_change(status, self.picture.plan, self.picture.now_s)
        if not after or tall:
            return left
        row = spread(width, left, [(f"{after} ", "dim")])
        if len(row) == 1 and width_of(left) + 2 > width - width_of([(after, "dim")]):
            # both do not fit: what comes next is worth more than the end of a long sentence
            room = width - width_of([(after, "dim")]) - 4
            if room >= 24:
                return [(left[0][0][: room - 1] + self.glyphs.ellipsis, "text"), (f"  {after} ", "dim")]
        return row

    def _third(self, width: int) -> Row:
        """On a narrow screen the next change has a row of its own."""
        assert self.picture is not None
        status = self.picture.status
        after = words.next_change(status, self.picture.plan, self.picture.now_s)
        if not after and status.budget and status.budget.deadline:
            after = f"deadline {words.clock_iso(status.budget.deadline, self.picture.now_s)}"
        return [(f"   {after}", "dim")]
