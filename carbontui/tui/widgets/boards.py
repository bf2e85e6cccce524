"""Boards: all of them in one line, and a row each with its last half hour and why it is not faster."""

from collections.abc import Sequence
from itertools import groupby, pairwise, zip_longest

from carbontui import protocol
from carbontui.text import figures, situation
from carbontui.text.situation import OTHERS
from carbontui.tui.model import state_text
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.terminal import palette
from carbontui.tui.widgets.cells import CellRow, ViewCells, fit, spread, width_of
from carbontui.tui.widgets.scale import bars


class WattRows(ViewCells):
    """Rows give way to two columns, then to one line for all, where the screen is small."""

    with_heading = False

    @staticmethod
    def wanted(gpus: int, width: int, most: int) -> int:
        """Rows to give `gpus` boards, heading not counted: one each, two columns, or one line."""
        if gpus <= most:
            return max(1, gpus)
        pairs = (gpus + 1) // 2
        return pairs if pairs <= most and width >= 76 else 1

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        status = view_state.status
        if not self.with_heading:
            return self._boards(status, width, height)
        tick = palette.TICK
        key: CellRow = [(tick, "paused"), (" paused  ", "dim"), (tick, "capped"), (" cap", "dim")]
        shared = any(gpu.own_w is not None for gpu in status.gpus)
        title = f"GPUs: this job's part of each, {OTHERS}" if shared else "GPUs"
        head = self.heading(width, title, key if status.gpus else "")
        return [head, *self._boards(status, width, height - 1)]

    def _boards(self, status: protocol.Status, width: int, height: int) -> list[CellRow]:
        gpus = status.gpus
        if not gpus:
            watts = state_text.marked(figures.watts(status.power_w), state_text.mark(status, "power_w"))
            return [[(" no GPU: ", "dim"), (f"{watts} for CPU and memory", "text")]]
        top = max([*(g.limit_w or 0.0 for g in gpus), *(g.power_w or 0.0 for g in gpus), 1.0])
        if len(gpus) <= height:
            return [self._board(status, i, gpu, width, top) for i, gpu in enumerate(gpus)]
        half, tall = (width - 2) // 2, (len(gpus) + 1) // 2
        if tall <= height and width >= 76:
            cells = [fit(self._board(status, i, gpu, half, top), half) for i, gpu in enumerate(gpus)]
            return [
                [*left, ("  ", "text"), *right] for left, right in zip_longest(cells[:tall], cells[tall:], fillvalue=())
            ]
        shared = any(gpu.own_w is not None for gpu in gpus)
        return [self._shared(gpus, width) if shared else line(gpus, width)]

    def _board(self, status: protocol.Status, index: int, gpu: protocol.Gpu, width: int, top: float) -> CellRow:
        name = _short(gpu.name)
        place = number(gpu, index, len(status.gpus))
        label = f" {place} {name:<12} " if width >= 56 else f" {place} "
        watts = "–" if gpu.power_w is None else f"{gpu.power_w:.0f}"
        limit = "–" if gpu.limit_w is None else f"{gpu.limit_w:.0f}"
        mark = state_text.mark(status, f"gpus.{index}.power_w") or " "
        numbers = f" {watts:>4} / {limit:>4} W {mark}"
        if gpu.own_w is not None:  # others use it too: how much of its draw is this job's
            numbers = f" {gpu.own_w:>4.0f} of {watts:>4} W {figures.ESTIMATED}"
        busy = "" if gpu.util is None or width < 58 else f" {figures.percent(gpu.util):>5}"
        memory = "" if gpu.memory_used_b is None or width < 76 else f" {gpu.memory_used_b / 2**30:>5.1f} GiB"
        space = width - len(label) - len(numbers) - len(busy) - len(memory)
        still = status.state in ("paused", "unloaded", "waiting")
        style_name = "paused" if still else state_text.STATE_STYLE.get(status.state, "running")
        # the numbers are left of the bar: Textual sends a row from its left edge to the last change
        return [
            (label, "dim"),
            (numbers, "text"),
            (busy, "dim"),
            (memory + "  ", "dim"),
            *self._gauge(gpu, space - 3, top, style_name if style_name in ("paused", "capped") else "running"),
        ]

    def _gauge(self, gpu: protocol.Gpu, width: int, top: float, style_name: str) -> CellRow:
        """A bar to watts now, a tick at the parked line and one at the cap."""
        if width < 4:
            return []
        drawn = gpu.power_w if gpu.own_w is None else gpu.own_w
        filled, ticks = round((drawn or 0.0) / top * width), dict[int, str]()
        for watts, tick_ink in ((gpu.parked_w, "paused"), (gpu.limit_w, "capped")):
            if watts:
                ticks[min(width - 1, max(0, round(watts / top * width) - 1))] = tick_ink
        cuts = sorted({0, filled, width, *ticks, *(at + 1 for at in ticks)})
        return [
            (palette.TICK, ticks[a]) if a in ticks else (palette.TRACK * (b - a), style_name if a < filled else "faint")
            for a, b in pairwise(cuts)
        ]

    def _shared(self, gpus: tuple[protocol.Gpu, ...], width: int) -> CellRow:
        own = sum((gpu.power_w if gpu.own_w is None else gpu.own_w) or 0.0 for gpu in gpus)
        drawn = figures.watts(sum(gpu.power_w or 0.0 for gpu in gpus))
        told = state_text.marked(f"{figures.watts(own)} of {drawn} this job's", figures.ESTIMATED)
        lead = (f" {len(gpus)} × {_short(gpus[0].name)}  ", "dim")
        return spread(width, [lead, (told, "text")], [(OTHERS, "dim")])


def _short(name: str) -> str:
    """'H100 80GB' of 'NVIDIA H100 80GB HBM3': as many words as fit a dozen letters."""
    short = name.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("Tesla ")
    while len(short) > 12 and " " in short:
        short = short.rpartition(" ")[0]
    return short[:12]


HOTTER_C = 3.0
"""A board this much above the coolest is worth a mark."""
SLOWER = 0.98
"""A busy board whose clock is below this share of the fastest one's holds the others up."""
BUSY = 0.5
HISTORY_S = 1800.0


def hottest(gpus: Sequence[protocol.Gpu]) -> protocol.Gpu | None:
    """The hottest board; None where all are about as warm."""
    known = [gpu for gpu in gpus if gpu.temp_c is not None]
    warm = max(known, key=lambda gpu: gpu.temp_c or 0.0, default=None)
    least = min((gpu.temp_c or 0.0 for gpu in known), default=0.0)
    return warm if warm is not None and (warm.temp_c or 0.0) - least >= HOTTER_C else None


def slowest(gpus: Sequence[protocol.Gpu]) -> protocol.Gpu | None:
    """The busy board with the lowest clock; None where they run alike."""
    known = [gpu for gpu in gpus if gpu.sm_mhz is not None and (gpu.util or 0.0) >= BUSY]
    slow = min(known, key=lambda gpu: gpu.sm_mhz or 0.0, default=None)
    most = max((gpu.sm_mhz or 0.0 for gpu in known), default=0.0)
    return slow if slow is not None and (slow.sm_mhz or 0.0) < SLOWER * most else None


def model(name: str) -> str:
    """'H100' of 'NVIDIA H100 80GB HBM3', 'RTX 4090' of 'NVIDIA GeForce RTX 4090'."""
    words = [word for word in name.split() if word not in ("NVIDIA", "GeForce", "Tesla", "AMD", "Instinct")]
    first = words[:2] if words[:1] in (["RTX"], ["GTX"], ["simulated"]) else words[:1]
    return " ".join(first)[:12]


def number(gpu: protocol.Gpu, place: int, of: int = 1) -> str:
    """As wide as the last of `of` boards."""
    index = place if gpu.index is None else gpu.index
    return f"{gpu.node}:{index}" if gpu.node else str(index).rjust(len(str(of - 1)))


def _span(gpus: Sequence[protocol.Gpu]) -> str:
    """'0-7'; '8 ×' where the numbers leave gaps."""
    indices = [place if gpu.index is None else gpu.index for place, gpu in enumerate(gpus)]
    whole = indices == list(range(indices[0], indices[0] + len(indices))) and not any(gpu.node for gpu in gpus)
    if not whole:
        return f"{len(gpus)} ×"
    return f"{indices[0]}-{indices[-1]}" if len(indices) > 1 else str(indices[0])


def line(gpus: Sequence[protocol.Gpu], width: int, host: str = "") -> CellRow:
    """' 0-7 H100  389 397 405 ... / 465 W  ▆▆▇▇▇▇██  host 13 W': what fits of it."""
    if not gpus:
        return [(" no GPU  ", "dim"), (host, "text")]
    hot, slow = hottest(gpus), slowest(gpus)
    limits = sorted({round(gpu.limit_w) for gpu in gpus if gpu.limit_w})
    limit = "" if not limits else f"{limits[0]}" if len(limits) == 1 else f"{limits[0]}–{limits[-1]}"
    row: CellRow = [(f" {_span(gpus)} {model(gpus[0].name)} ", "dim")]
    for gpu in gpus:
        row.append((f" {'–' if gpu.power_w is None else f'{gpu.power_w:.0f}':>3}", "strong"))
        row += [(palette.POINTER, "warning")] if gpu is hot else []
        row += [(palette.LEAST, "preview")] if gpu is slow else []
    powers = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    if width_of(row) + len(limit) + 5 > width:
        unreadable = f", {len(gpus) - len(powers)} unknown" if len(powers) < len(gpus) else ""
        ends = dict.fromkeys(f"{end(powers):.0f}" for end in (min, max)) if powers else ()
        each = f" {'–'.join(ends)} W each{unreadable}" if powers else " watts unknown"
        row = [row[0], (each, "strong")]
    row.append((f" / {limit} W" if limit else " W", "dim"))
    top = max([*limits, *powers, 1.0])
    pieces: list[CellRow] = [
        [("  ", "dim"), (bars([gpu.power_w for gpu in gpus], len(gpus), (0.0, top)), "running")],
        [(f"  {host}", "dim")] if host else [],
        [(f"  {palette.POINTER} hottest {hot.temp_c:.0f} °C", "dim")] if hot else [],
        [(f"  {palette.LEAST} slowest {slow.sm_mhz:.0f} MHz", "dim")] if slow else [],
    ]
    for piece in pieces if len(gpus) > 1 else pieces[1:]:
        if width_of(row) + width_of(piece) <= width:
            row += piece
    return row


def rows(gpus: Sequence[protocol.Gpu], watts: protocol.Watts | None, width: int) -> list[CellRow]:
    """The page: a row for each board, and beneath it what others do there."""
    if not gpus:
        return []
    top = max([*(gpu.limit_w or 0.0 for gpu in gpus), *(gpu.power_w or 0.0 for gpu in gpus), 1.0])
    back = 0 if watts is None else max(2, round(HISTORY_S / watts.step_s))
    span = "" if watts is None else figures.duration(back * watts.step_s)
    past = 0 if watts is None else max(0, min(30, width - 84))
    slow, hot = slowest(gpus), hottest(gpus)
    head = f"{'GPUs':<16}{'W / limit':>11}  {f'last {span} 0-{top:.0f} W'[:past]:<{past}}{'°C':>4} {'MHz':>5}"
    found: list[CellRow] = [[(f"{head} {'busy':>6} {'memory':>10}  why not faster", "dim")]]
    for place, gpu in enumerate(gpus):
        history = () if watts is None else watts.gpus_w.get(gpu.uuid, ())[-back:]
        limit = "–" if gpu.limit_w is None else f"{gpu.limit_w:.0f}"
        now = "–" if gpu.power_w is None else f"{gpu.power_w:.0f}"
        row: CellRow = [(f"{number(gpu, place, len(gpus))} {model(gpu.name)}"[:15].ljust(16), "text")]
        row += [(f"{now:>5}", "strong"), (f" /{limit:>4}  ", "dim")]
        row.append((bars(history, past, (0.0, top)).ljust(past) if past else "", "running"))
        row.append((f"{_known(gpu.temp_c):>4}", "warning" if gpu is hot else "text"))
        row.append((f" {_known(gpu.sm_mhz):>5}", "preview" if gpu is slow else "text"))
        row.append((f" {'–' if gpu.util is None else figures.percent(gpu.util):>6}", "text"))
        row.append((f" {_memory(gpu):>10}", "text"))
        row.append((f"  {_slowed_by(gpu, slow)}", "warning" if gpu is slow or gpu.slowed else "dim"))
        found.append(row)
    for told, same in groupby(enumerate(gpus), key=lambda one: _alike(one[1])):
        numbers = [number(gpu, place) for place, gpu in same]
        span = numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        found += [[(f" {span:<6} ", "dim"), (told, "text")]] if told else []
    parked = [gpu.parked_w for gpu in gpus if gpu.parked_w is not None]
    if parked:
        each = figures.between(lambda watts: f"{watts:.0f} W", min(parked), max(parked)) or f"{parked[0]:.0f} W"
        found.append([(" paused ", "dim"), (f"{each} with the model in memory", "text")])
    return found


def _known(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _memory(gpu: protocol.Gpu) -> str:
    if gpu.memory_used_b is None:
        return "–"
    used = gpu.memory_used_b / 2**30
    return f"{used:.0f}/{gpu.memory_total_b / 2**30:.0f} GiB" if gpu.memory_total_b else f"{used:.1f} GiB"


def _slowed_by(gpu: protocol.Gpu, slow: protocol.Gpu | None) -> str:
    why = gpu.slowed or ("not busy" if gpu.util is not None and gpu.util < BUSY else "")
    return f"slowest: others wait{f'; {why}' if why else ''}" if gpu is slow else why or "at its full clock"


def _alike(gpu: protocol.Gpu) -> str:
    """Who uses the board, and what of it is the job's."""
    return " · ".join(filter(None, (gpu.users, situation.own_part(gpu))))


def drawn_w(gpus: Sequence[protocol.Gpu], host_w: float | None) -> float | None:
    """Watts of all boards and the host; None where neither is known."""
    known = [watts for watts in (*(gpu.power_w for gpu in gpus), host_w) if watts is not None]
    return sum(known) if known else None


def merged(jobs: Sequence[protocol.Status], own: Sequence[protocol.Gpu]) -> tuple[protocol.Gpu, ...]:
    """The boards of this machine: as its jobs read them, the rest as this program does. So every shell shows the same,
    also one without a driver. A job on several machines has boards that are not here."""
    found = {gpu.uuid: gpu for gpu in own}
    found |= {gpu.uuid: gpu for job in jobs for gpu in job.gpus if gpu.node is None and gpu.power_w is not None}
    return tuple(sorted(found.values(), key=lambda gpu: (gpu.index is None, gpu.index or 0)))
