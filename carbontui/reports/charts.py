"""Charts of a run as inline SVG: no script, no request, readable in black and white.

States are distinguished by hatching and text, lines by their dashes and a label at their end; colour is redundant.
"""

import math
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from carbontui import units
from carbontui.account.elapsed import EVENT, EVENT_HELD
from carbontui.reports.figures import STATE_WORDS
from carbontui.reports.story import RunStory
from carbontui.text import figures

WIDTH, LEFT, RIGHT = 920.0, 62.0, 130.0
PLOT = WIDTH - LEFT - RIGHT
STRIP = {
    "running": ("var(--running)", ""),
    "throttled": ("var(--throttled)", "h-cap"),
    "paused": ("var(--paused)", "h-pause"),
    EVENT: ("var(--throttled)", "h-cap"),
    EVENT_HELD: ("var(--paused)", "h-pause"),
    "pausing": ("var(--paused)", "h-pause"),
    "unloaded": ("var(--unloaded)", "h-off"),
    "waiting": ("var(--waiting)", "h-off"),
    "starting": ("var(--waiting)", ""),
}
"""Fill and hatch of each state; the page defines the colours, of light and of dark."""
STEPS_S = tuple(60 * minutes for minutes in (5, 10, 30, 60, 180, 360, 720))
STEPS_S += tuple(86400 * days for days in (1, 2, 5, 7, 30))
"""Seconds between two times of the axis."""
VISIBLE = 2.0
"""A box narrower than this is a line."""
HATCHES = (
    '<defs><pattern id="h-pause" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<path d="M0 7L7 0" stroke="var(--hatch-pause)" stroke-width="1"/></pattern>'
    '<pattern id="h-cap" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path d="M0 3H6" stroke="var(--hatch-cap)" stroke-width="1"/></pattern>'
    '<pattern id="h-off" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<circle cx="3" cy="3" r="1" fill="var(--soft)"/></pattern></defs>'
)


def timeline(story: RunStory) -> str:
    """Power above carbon intensity, and the state, over time."""
    chart = story.chart
    times = _Times(story)
    top, middle, bottom, low = (18.0, 150.0), (190.0, 306.0), 322.0, 340.0
    watts = _Scale(chart.watts, *top)
    grams = _Scale(chart.intensity, *middle)
    body = [
        watts.axis("W"),
        _area(chart.watts, times, watts),
        _end(watts, chart.watts, "power"),
        grams.axis("g/kWh"),
        _line(chart.intensity, times, grams, "var(--line)", "none"),
        _end(grams, chart.intensity, "intensity"),
        _strip(story, times, bottom),
        times.axis(low, [top[0], low]),
    ]
    wide = {span.state for span in story.spans if times.x(span.end_s) - times.x(span.start_s) >= VISIBLE}
    seen = [state for state in STRIP if state in wide]
    body.append(_legend(seen, low + 25))
    return _svg(low + 46.0, "Power, carbon intensity and state over time", body)


def cumulated(story: RunStory) -> str:
    """Grams so far, emitted and by run-now; '' where neither is known."""
    chart = story.chart
    if story.gco2_g is None or not any(chart.emitted_g):
        return ""
    times = _Times(story)
    both: list[float | None] = [*chart.emitted_g, *chart.run_now_g]
    scale = _Scale(both, 18.0, 170.0)
    largest = max(value for value in both if value is not None)
    unit, factor = ("kg", 1000.0) if largest >= 1000 else ("g", 1.0)
    body = [scale.axis(f"{unit} CO2", factor), _line(chart.emitted_g, times, scale, "var(--power)", "none")]
    ends = [("emitted", chart.emitted_g)]
    if chart.run_now_g:
        body.append(_line(chart.run_now_g, times, scale, "var(--line)", "5 4"))
        ends.append(("run now", chart.run_now_g))
    heights = _apart([scale.y(values[-1]) for _, values in ends])
    for (name, values), y in zip(ends, heights, strict=True):
        body.append(_label(f"{name} {figures.grams(values[-1])}", y + 4))
    body.append(times.axis(170.0, [18.0, 170.0]))
    return _svg(196.0, "CO2 so far, emitted and if run at once", body)


def losses(story: RunStory) -> str:
    """Loss over time; '' where the training reported none."""
    if len(story.chart.loss) < 2:
        return ""
    times = _Times(story)
    scale = _Scale([loss for _, loss in story.chart.loss], 18.0, 130.0, zero=False)
    points = " ".join(f"{times.x(at):.1f},{scale.y(loss):.1f}" for at, loss in story.chart.loss)
    line = f'<polyline points="{points}" fill="none" stroke="var(--line)" stroke-width="1.3"/>'
    return _svg(156.0, "Loss over time", [scale.axis("loss"), line, times.axis(130.0, [18.0, 130.0])])


class _Times:
    """The horizontal axis: the run from start to end."""

    def __init__(self, story: RunStory) -> None:
        self.start_s = story.chart.start_s
        self.end_s = max(story.end_s, self.start_s + 1.0)
        self.step_s = story.chart.step_s

    def x(self, at_s: float) -> float:
        share = (at_s - self.start_s) / (self.end_s - self.start_s)
        return LEFT + PLOT * min(1.0, max(0.0, share))

    def column(self, index: int) -> tuple[float, float]:
        at = self.start_s + index * self.step_s
        return self.x(at), self.x(at + self.step_s)

    def axis(self, y: float, lines: Sequence[float]) -> str:
        length = self.end_s - self.start_s
        step = next((s for s in STEPS_S if length / s <= 8), 60 * 86400)
        ahead_s = units.local_offset_s(self.start_s)
        first = math.ceil((self.start_s + ahead_s) / step) * step - ahead_s
        found = [f'<line x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y}" y2="{y}" class="axis"/>']
        at = float(first)
        while at <= self.end_s:
            x = self.x(at)
            found.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{lines[0]}" y2="{lines[1]}" class="grid"/>')
            text = figures.day(at) if step >= 86400 else figures.clock(at, self.start_s)
            found.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{escape(text)}</text>')
            at += step
        return "".join(found)


class _Scale:
    """A vertical axis over the known values, from zero unless told otherwise."""

    def __init__(self, values: Iterable[float | None], top: float, bottom: float, *, zero: bool = True) -> None:
        known = [value for value in values if value is not None]
        self.lo = 0.0 if zero else min(known, default=0.0)
        highest = max(known, default=1.0)
        self.step = _nice((highest - self.lo) / 4 or 1.0)
        self.lo = math.floor(self.lo / self.step) * self.step
        self.hi = max(self.lo + self.step, math.ceil(highest / self.step - 1e-9) * self.step)
        self.top, self.bottom = top, bottom

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * (value - self.lo) / (self.hi - self.lo)

    def axis(self, unit: str, factor: float = 1.0) -> str:
        found = [f'<text x="4" y="{self.top - 9:.1f}">{escape(unit)}</text>']
        for index in range(round((self.hi - self.lo) / self.step) + 1):
            value = self.lo + index * self.step
            y = self.y(value)
            found.append(f'<line x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            found.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value / factor:g}</text>')
        return "".join(found)


def _nice(step: float) -> float:
    power = 10 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next((m * power for m in (1.0, 2.0, 5.0) if m * power >= step), 10.0 * power)


def _runs(values: Sequence[float | None]) -> Iterable[tuple[int, list[float]]]:
    """The known stretches of a series: (first column, values)."""
    first, found = 0, list[float]()
    for index, value in enumerate([*values, None]):
        if value is not None:
            if not found:
                first = index
            found.append(value)
        elif found:
            yield first, found
            found = []


def _steps(first: int, values: list[float], times: _Times, scale: _Scale) -> str:
    points = []
    for offset, value in enumerate(values):
        left, right = times.column(first + offset)
        y = scale.y(value)
        points += [f"{left:.1f},{y:.1f}", f"{right:.1f},{y:.1f}"]
    return " ".join(points)


def _line(values: Sequence[float | None], times: _Times, scale: _Scale, stroke: str, dash: str) -> str:
    return "".join(
        f'<polyline points="{_steps(first, run, times, scale)}" fill="none" stroke="{stroke}"'
        f' stroke-width="1.5" stroke-dasharray="{dash}"/>'
        for first, run in _runs(values)
    )


def _area(values: Sequence[float | None], times: _Times, scale: _Scale) -> str:
    found = []
    for first, run in _runs(values):
        left, right = times.column(first)[0], times.column(first + len(run) - 1)[1]
        y0 = scale.y(scale.lo)
        points = f"{left:.1f},{y0:.1f} {_steps(first, run, times, scale)} {right:.1f},{y0:.1f}"
        found.append(f'<polygon points="{points}" fill="var(--power)" fill-opacity="0.16" stroke="none"/>')
    return "".join(found) + _line(values, times, scale, "var(--power)", "none")


def _end(scale: _Scale, values: Sequence[float | None], name: str) -> str:
    last = next((value for value in reversed(values) if value is not None), None)
    return "" if last is None else _label(name, scale.y(last) + 4)


def _label(text: str, y: float) -> str:
    """Beside the plot, at its right end."""
    return f'<text x="{LEFT + PLOT + 6:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _apart(heights: list[float]) -> list[float]:
    """Labels at least a line apart."""
    if len(heights) == 2 and abs(heights[0] - heights[1]) < 14:
        middle = sum(heights) / 2
        return [middle + 7, middle - 7] if heights[0] >= heights[1] else [middle - 7, middle + 7]
    return heights


def _legend(states: Iterable[str], y: float) -> str:
    """A box and a label for each of the `states`, in a row."""
    found, left = list[str](), LEFT
    for state in states:
        words = _words(state)
        found += _box(state, left, y, 14.0, 12.0)
        found.append(f'<text x="{left + 19:.1f}" y="{y + 10:.1f}">{escape(words)}</text>')
        left += 40.0 + 7.0 * len(words)
    return "".join(found)


def _words(state: str) -> str:
    return STATE_WORDS.get(state, state).split(",")[0]


def _box(state: str, x: float, y: float, width: float, height: float, title: str = "") -> list[str]:
    fill, hatch = STRIP[state]
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    named = f"><title>{escape(title)}</title></rect>" if title else "/>"
    drawn = [f'<rect {box} fill="{fill}" stroke="var(--edge)" stroke-width="0.5"{named}']
    return [*drawn, f'<rect {box} fill="url(#{hatch})" opacity="0.5"/>'] if hatch else drawn


def _strip(story: RunStory, times: _Times, y: float) -> str:
    """The states in a row."""
    found = [HATCHES]
    for span in story.spans:
        left, right = times.x(span.start_s), times.x(span.end_s)
        if right - left < 0.3 or span.state not in STRIP:
            continue
        found += _box(span.state, left, y, right - left, 18.0, title=_words(span.state))
    return "".join([*found, _label("state", y + 13)])


def _svg(height: float, title: str, body: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )
