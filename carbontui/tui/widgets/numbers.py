"""The account so far and the training's own figures, in aligned columns, each with the mark of its provenance."""

from __future__ import annotations

from itertools import pairwise

from carbontui import protocol, units
from carbontui.tui import words
from carbontui.tui.picture import Picture
from carbontui.tui.widgets.cells import CellRow, Cells

_LABEL = 8
_VALUE = 10


class Numbers(Cells):
    """`show(picture)`; what does not fit the height is left out from the end."""

    picture: Picture | None = None

    def show(self, picture: Picture) -> None:
        self.picture = picture
        self.redraw()

    def draw(self, width: int, height: int) -> list[CellRow]:
        picture, self._width = self.picture, width
        if picture is None:
            return [self.heading(width, "so far")]
        status = picture.status
        account = self._account(status)
        training = self._training(picture, width)
        if height < 4:
            return [*training[:1], *account[1:3]][:height]
        head = [self.heading(width, "so far", "i: where from")]
        if height >= len(account) + len(training) + 2:
            return [*head, *account, self.heading(width, "training"), *training]
        # two short columns where rows are scarce
        return [*head, *account[: max(0, height - 1 - len(training))], *training][:height]

    _width = 0

    def _line(self, label: str, value: str, mark: str = "", note: str = "", ink: str = "text") -> CellRow:
        return [
            (f" {label:<{_LABEL}}", "dim"),
            (f"{value:>{_VALUE}}", ink),
            (f" {mark:<1}", "dim"),
            (f" {note}" if len(note) <= self._width - _LABEL - _VALUE - 4 else "", "dim"),
        ]

    def _account(self, status: protocol.Status) -> list[CellRow]:
        m = words.mark
        rows = [
            self._line("energy", units.fmt_kwh(status.energy_wall_kwh), m(status, "energy_wall_kwh")),
            self._line("emitted", "–")
            if status.gco2_g is None
            else self._line("emitted", units.fmt_grams(status.gco2_g), m(status, "gco2_g"), "CO₂"),
        ]
        said = words.avoided_share(status)
        share = "" if said is None else f"{said:.0%} of run-now"
        ink = "running" if (status.avoided_g or 0) > 0 else "text"
        mark = "" if status.avoided_g is None else m(status, "avoided_g")
        rows.append(self._line("avoided", units.fmt_grams(status.avoided_g), mark, share, ink))
        if status.cost is not None:
            rows.append(self._line("cost", units.fmt_money(status.cost.value, status.cost.currency), m(status, "cost")))
        return rows

    def _training(self, picture: Picture, width: int) -> list[CellRow]:
        status = picture.status
        total = f"of {words.count(status.steps_total)}" if status.steps_total else ""
        if status.steps_total:
            total += f", {min(1.0, status.step / status.steps_total):.0%}"
        rate = status.rate_steps_per_s
        speed = "–" if rate is None else f"{rate:.2f} /s" if rate < 100 else f"{rate:.0f} /s"
        rows = [self._line("step", words.count(status.step), "", total)]
        eta = "" if picture.over else f"ends {words.finish(status, picture.now_s)}"
        rows.append(self._line("rate", speed, "", eta if status.finish_expected else ""))
        loss = "–" if status.loss is None else f"{status.loss:.4g}"
        spark = self._spark(picture.series.loss, width - _LABEL - _VALUE - 5)
        rows.append([*self._line("loss", loss)[:3], (f" {spark}", "capped")])
        return rows

    def _spark(self, values: tuple[float, ...], columns: int) -> str:
        """The loss so far in one row, its lowest to its highest value."""
        if len(values) < 2 or columns < 4:
            return ""
        columns = min(columns, len(values))
        bounds = [round(i * len(values) / columns) for i in range(columns + 1)]
        parts = [values[a:b] for a, b in pairwise(bounds)]
        cells = [sum(part) / len(part) for part in parts if part]
        low, high = min(cells), max(cells)
        span = (high - low) or 1.0
        return "".join(self.glyphs.bar[1 + round((v - low) / span * 7)] for v in cells)
