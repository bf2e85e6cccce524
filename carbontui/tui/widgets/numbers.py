"""The account so far and the training's own figures, in aligned columns, each with its provenance mark."""

from carbontui import protocol, units
from carbontui.text import account, situation
from carbontui.text import figures as form
from carbontui.text.sources import COUNTS, called
from carbontui.tui.model import state_text
from carbontui.tui.model.loglines import LogRow, bar, text_of
from carbontui.tui.model.view_state import ViewState
from carbontui.tui.widgets.cells import CellRow, ViewCells, spread
from carbontui.tui.widgets.scale import bars

_LABEL = 8
_VALUE = 10


class Numbers(ViewCells):
    """Rows that do not fit the height are left out from the end."""

    TITLE = "CO₂ and energy"
    printed: tuple[int, int] | None = None
    """(done, total) of the bar that it prints: shown, and marked as such, where no steps are reported."""

    def receive(self, rows: list[LogRow]) -> None:
        """The newest rows of the output."""
        printed = bar(text_of(row) for row in rows)
        if printed != self.printed:
            self.printed = printed
            self.redraw()

    def draw_view(self, view_state: ViewState, width: int, height: int) -> list[CellRow]:
        status, self._width = view_state.status, width
        account = self._account(status)
        training = self._training(view_state, width)
        if height < 4:
            # no room for more: progress and watts, then what was emitted
            label, *told = (text.strip() for text, _ in training[0])
            done = " ".join(told) + " steps" * (label == "step")
            watts = state_text.marked(form.watts(status.power_w), state_text.mark(status, "power_w"))
            first = spread(width, [(f" {done}", "text")], [(f"{watts} ", "text")])
            far = self._line("so far", form.grams(status.gco2_g), state_text.mark(status, "gco2_g"), "CO₂ emitted")
            return [first, far, *account][:height]
        head = [self.heading(width, self.TITLE, "i: where from")]
        if height >= len(account) + len(training) + 2:
            return [*head, *account, self.heading(width, "training"), *training]
        # two short columns where rows are scarce
        return [*head, *account[: max(0, height - 1 - len(training))], *training][:height]

    _width = 0

    def _line(
        self, label: str, value: str, mark: str = "", note: str = "", style_name: str = "text", short: str = ""
    ) -> CellRow:
        """`short` is shown where there is no room for the note."""
        room = self._width - _LABEL - _VALUE - 4
        note = note if len(note) <= room else short if len(short) <= room else ""
        return [
            (f" {label:<{_LABEL}}", "dim"),
            (f"{value:>{_VALUE}}", style_name),
            (f" {mark:<1}", "dim"),
            (f" {note}" if note else "", style_name if style_name != "text" else "dim"),
        ]

    def _account(self, status: protocol.Status) -> list[CellRow]:
        """Grams expected at the end come first: until then a plan that pauses is behind before it is ahead."""
        m, end = state_text.mark, status.at_end
        rows: list[CellRow] = []
        if end is not None:
            rows.append(self._line("at end", form.grams(end.gco2_g), m(status, "at_end"), _band(end)))
            if end.run_now_g is not None:
                told, style_name, short = _against(end)
                label, (value, _), *rest = self._line(
                    "run now", form.grams(end.run_now_g), m(status, "at_end"), told, style_name, short
                )
                rows.append([label, (value, "text"), *rest])  # what is good is the difference
        grams = "–" if status.gco2_g is None else form.grams(status.gco2_g)
        mark = m(status, "gco2_g") if status.gco2_g is not None else ""
        avoided = status.avoided_g
        if avoided is None or end is None or status.run_now_g is None:
            rows.append(self._line("so far", grams, mark, "CO₂ emitted"))
        else:
            side, even = ("below" if avoided >= 0 else "above"), abs(avoided) < form.LEAST_G
            told, short = "as much as run now", "as much"
            if not even:
                size = form.grams(abs(avoided))
                told, short = f"{size} {side} run now", f"{size} {side}"
            rows.append(self._line("so far", grams, mark, told, short=short))
            if not even and avoided < 0 and end.avoided_g is not None and end.avoided_g > 0:
                rows.append([(f" {'':<{_LABEL}}", "dim"), ("pauses cost first, then pay off", "dim")])
        rows += [
            self._line("besides", form.grams(apart.gco2_g), "", f"by the {apart.reason}", short=apart.reason)
            for apart in status.excluded
        ]
        if end is None:
            said = account.share(avoided, status.run_now_g)
            share = short = "" if said is None else f"{form.percent(said)} of running now"
            if avoided is not None and status.run_now_g is None:
                share, short = account.NOTHING_HELD, "full speed throughout"
            style_name = "running" if (avoided or 0) > 0 else "text"
            shown = "" if status.run_now_g is None else m(status, "avoided_g")
            rows.append(self._line("avoided", form.grams(avoided), shown, share, style_name, short))
        kind = "" if status.boundary is None else status.boundary.kind
        value, mark = form.kwh(status.energy_wall_kwh), m(status, "energy_wall_kwh")
        rows.append(self._line("energy", value, mark, COUNTS.get(kind, ""), short=called(kind)))
        if status.cost is not None:
            rows.append(self._line("cost", form.money(status.cost.value, status.cost.currency), m(status, "cost")))
        rows += [self._allowance(entry, status) for entry in status.allowances]
        return rows

    def _allowance(self, entry: protocol.AllowanceStatus, status: protocol.Status) -> CellRow:
        """The job's allowance, how much of it is used, and whether it will suffice."""
        label = {"carbon": "CO₂ max", "cost": "cost max", "energy": "kWh max"}[entry.kind]
        shown = {"carbon": form.grams, "energy": form.kwh}.get(entry.kind)
        value = shown(entry.most) if shown else form.money(entry.most, entry.unit)
        now_s, used = units.from_iso(status.measured_at), f"{form.percent(entry.used / entry.most)} used"
        if entry.used >= entry.most:
            return self._line(label, value, "", used, "fault")
        if entry.used_up_at is None:
            return self._line(label, value, "", used if entry.expected is None else f"{used}, lasts to the end")
        sign = state_text.mark(status, "at_end")
        return self._line(label, value, sign, f"{used}, gone {situation.clock(entry.used_up_at, now_s)}", "warning")

    def _training(self, view_state: ViewState, width: int) -> list[CellRow]:
        status = view_state.status
        total, done = "", form.percent(situation.done(status) or 0.0)
        if status.guess is not None and not status.guess.agreed:
            total = f"of {state_text.count(status.guess.steps)}? (a guess)"
        elif status.steps_total:
            total = f"{done} of {state_text.count(status.steps_total)}{state_text.mark(status, 'steps_total')}"
        rate = status.rate_steps_per_s
        speed = "–" if rate is None else f"{rate:.2f} /s" if rate < 100 else f"{rate:.0f} /s"
        steps = "–" if status.step is None else state_text.count(status.step)
        first = self._line("step", steps, "", total, short=done if status.steps_total else "")
        if status.guess is None and not status.steps_total:
            first = self._work(status) or first
        rows = [first]
        eta = "" if view_state.over else f"ends {situation.finish(status, view_state.now_s)}"
        rows.append(self._line("rate", speed, "", eta if status.finish_expected else ""))
        if status.last_loss is not None and not status.last_loss.finite:
            return [*rows, self._line("loss", situation.loss(status), "", situation.since(status.last_loss))]
        losses, room = view_state.series.loss, width - _LABEL - _VALUE - 5
        spark = bars(losses, room) if len(losses) > 1 and room > 3 else ""
        rows.append([*self._line("loss", situation.loss(status) or "–")[:3], (f" {spark}", "capped")])
        return rows

    def _work(self, status: protocol.Status) -> CellRow | None:
        """Progress where no steps are reported: the share of the work done, else the progress bar it prints."""
        done_s, total_s, printed, share = status.work_done_s, status.work_total_s, self.printed, situation.done(status)
        if done_s is not None and total_s and share is not None:
            return self._line("work", form.duration(done_s), "", f"{form.percent(share)} of {form.duration(total_s)}")
        if printed is not None:
            told = f"{form.percent(printed[0] / printed[1])} of {state_text.count(printed[1])} printed"
            return self._line("bar", state_text.count(printed[0]), "", told)
        return None


def _band(end: protocol.AtEnd) -> str:
    if end.gco2_lo_g is None or end.gco2_hi_g is None:
        return "CO₂ expected"
    return form.between(form.grams, end.gco2_lo_g, end.gco2_hi_g)


def _against(end: protocol.AtEnd) -> tuple[str, str, str]:
    """The plan's total against run-now, its ink, and shorter: ('plan −316 g, −7%', ink, '−7%')."""
    if end.run_now_g is None or end.avoided_g is None:
        return "", "text", ""
    share = account.share(end.avoided_g, end.run_now_g)
    if share is None:
        return "as much", "text", "as much"
    short = form.signed(-share, form.percent)
    told = f"plan {form.change(-end.avoided_g)}, {short}"
    return told, "running" if share > 0 else "warning", short
