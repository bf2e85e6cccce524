"""One row per GPU: watts now against its cap and its parked line, on one scale, so that rows compare."""

from __future__ import annotations

from carbontui import protocol
from carbontui.text import figures, marks
from carbontui.text.situation import OTHERS
from carbontui.tui.model import words
from carbontui.tui.model.picture import Picture
from carbontui.tui.terminal import glyphs
from carbontui.tui.widgets import boards
from carbontui.tui.widgets.cells import CellRow, PictureCells, fit, spread


class WattRows(PictureCells):
    """Rows give way to two columns, then to one line for all, where the screen is small."""

    with_heading = False

    @staticmethod
    def wanted(gpus: int, width: int, most: int) -> int:
        """Rows to give `gpus` boards, heading not counted: one each, two columns, or one line."""
        if gpus <= most:
            return max(1, gpus)
        pairs = (gpus + 1) // 2
        return pairs if pairs <= most and width >= 76 else 1

    def draw_picture(self, picture: Picture, width: int, height: int) -> list[CellRow]:
        status = picture.status
        if not self.with_heading:
            return self._boards(status, width, height)
        tick = glyphs.TICK
        key: CellRow = [(tick, "paused"), (" parked  ", "dim"), (tick, "capped"), (" cap", "dim")]
        shared = any(gpu.own_w is not None for gpu in status.gpus)
        title = f"boards: this job's part of each, {OTHERS}" if shared else "boards"
        head = self.heading(width, title, key if status.gpus else "")
        return [head, *self._boards(status, width, height - 1)]

    def _boards(self, status: protocol.Status, width: int, height: int) -> list[CellRow]:
        gpus = status.gpus
        if not gpus:
            return [[(" no GPU: ", "dim"), (self._host(status), "text")]]
        top = max([*(g.limit_w or 0.0 for g in gpus), *(g.power_w or 0.0 for g in gpus), 1.0])
        if len(gpus) <= height:
            return [self._board(status, i, gpu, width, top) for i, gpu in enumerate(gpus)]
        if (len(gpus) + 1) // 2 <= height and width >= 76:
            half = (width - 2) // 2
            rows = []
            for i in range(height):
                row: CellRow = []
                for index in (i, i + (len(gpus) + 1) // 2):
                    if index < len(gpus):
                        row += [*fit(self._board(status, index, gpus[index], half, top), half), ("  ", "text")]
                rows.append(row)
            return rows
        shared = any(gpu.own_w is not None for gpu in gpus)
        return [self._shared(gpus, width) if shared else boards.line(gpus, width)]

    def _host(self, status: protocol.Status) -> str:
        return f"{words.marked(figures.watts(status.power_w), words.mark(status, 'power_w'))} for CPU and memory"

    def _board(self, status: protocol.Status, index: int, gpu: protocol.Gpu, width: int, top: float) -> CellRow:
        name = _short(gpu.name)
        number = boards.number(gpu, index)
        label = f" {number} {name:<12} " if width >= 56 else f" {number} "
        watts = "–" if gpu.power_w is None else f"{gpu.power_w:.0f}"
        limit = "–" if gpu.limit_w is None else f"{gpu.limit_w:.0f}"
        mark = words.mark(status, f"gpus.{index}.power_w") or " "
        numbers = f" {watts:>4} / {limit:>4} W {mark}"
        if gpu.own_w is not None:  # others use it too: how much of its draw is this job's
            numbers = f" {gpu.own_w:>4.0f} of {watts:>4} W {marks.ESTIMATED}"
        busy = "" if gpu.util is None or width < 58 else f" {figures.percent(gpu.util):>5}"
        memory = "" if gpu.memory_used_b is None or width < 76 else f" {gpu.memory_used_b / 2**30:>5.1f} GiB"
        space = width - len(label) - len(numbers) - len(busy) - len(memory)
        still = status.state in ("paused", "unloaded", "waiting")
        ink = "paused" if still else words.STATE_STYLE.get(status.state, "running")
        # the numbers are left of the bar: Textual sends a row from its left edge to the last change
        return [
            (label, "dim"),
            (numbers, "text"),
            (busy, "dim"),
            (memory + "  ", "dim"),
            *self._gauge(gpu, space - 3, top, ink if ink in ("paused", "capped") else "running"),
        ]

    def _gauge(self, gpu: protocol.Gpu, width: int, top: float, ink: str) -> CellRow:
        """A bar to watts now, a tick at the parked line and one at the cap."""
        if width < 4:
            return []
        drawn = gpu.power_w if gpu.own_w is None else gpu.own_w
        filled = round((drawn or 0.0) / top * width)
        cells: CellRow = [(glyphs.TRACK, ink if x < filled else "faint") for x in range(width)]
        for watts, tick_ink in ((gpu.parked_w, "paused"), (gpu.limit_w, "capped")):
            if watts:
                cells[min(width - 1, max(0, round(watts / top * width) - 1))] = (glyphs.TICK, tick_ink)
        return cells

    def _shared(self, gpus: tuple[protocol.Gpu, ...], width: int) -> CellRow:
        own = sum((gpu.power_w if gpu.own_w is None else gpu.own_w) or 0.0 for gpu in gpus)
        drawn = figures.watts(sum(gpu.power_w or 0.0 for gpu in gpus))
        told = words.marked(f"{figures.watts(own)} of {drawn} this job's", marks.ESTIMATED)
        lead = (f" {len(gpus)} × {_short(gpus[0].name)}  ", "dim")
        return spread(width, [lead, (told, "text")], [(OTHERS, "dim")])


def _short(name: str) -> str:
    """'H100 80GB' of 'NVIDIA H100 80GB HBM3': as many words as fit a dozen letters."""
    short = name.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("Tesla ")
    while len(short) > 12 and " " in short:
        short = short.rpartition(" ")[0]
    return short[:12]
