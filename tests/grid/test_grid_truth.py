"""Forecast accuracy: scored once the hours are realised, bounded in size, kept for the next supervisor."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from grid_site import Request, Site, good, level

from carbontui.grid import truth
from carbontui.grid.feed import Feed
from carbontui.grid.types import GridForecast, Row
from carbontui.system import untrusted
from carbontui.text import sources

HOUR = 3600.0
NOW = 1896998400.0 + 20 * HOUR


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW

    def __call__(self) -> float:
        return self.now_s


def outlook(now_s: float, off: float = 1.1, band: float = 0.15) -> GridForecast:
    """A forecast that is a tenth too high, its band a little wider than that."""
    start_s = math.floor(now_s / HOUR) * HOUR
    mean = tuple(off * level(start_s + k * HOUR) for k in range(50))
    lo, hi = (tuple(value * factor for value in mean) for factor in (1 - band, 1 + band))
    return GridForecast("GB", "average_direct", start_s, HOUR, mean, lo, hi, 0, "x", "forecast", now_s)


def rows(until_s: float, days: float = 4) -> list[Row]:
    first = math.floor((until_s - days * 86400) / HOUR)
    return [Row(k * HOUR, HOUR, level(k * HOUR)) for k in range(first, math.floor(until_s / HOUR))]


def elapsed(hours: int, **how: float) -> truth.ForecastRecord:
    record = truth.ForecastRecord()
    for hour in range(hours):
        now_s = NOW + hour * HOUR + 300
        record = truth.judged(record, rows(now_s), now_s)
        record = truth.issued(record, outlook(now_s, **how), now_s)
    return record


def test_an_interpolated_or_stuck_value_judges_nothing() -> None:
    record = truth.issued(truth.ForecastRecord(), outlook(NOW), NOW)
    later = [row._replace(suspect=row.start_s >= NOW) for row in rows(NOW + 8 * HOUR)]
    assert not truth.judged(record, later, NOW + 8 * HOUR).judged


def test_each_lead_is_judged_by_the_hour_that_came() -> None:
    found = {lead.lead_h: lead for lead in truth.accuracy(elapsed(24 * 5))}
    assert set(found) == {1, 6, 24, 48}
    for lead in found.values():
        assert lead.error == pytest.approx(0.1, abs=1e-6) and lead.coverage == 1.0
        assert lead.naive == pytest.approx(0.0, abs=1e-9)  # the invented grid repeats itself day by day
    assert found[48].hours == 24 * 5 - 49 and found[1].hours == 24 * 5 - 2


def test_a_band_that_is_too_narrow_shows_as_such() -> None:
    assert all(lead.coverage == 0.0 for lead in truth.accuracy(elapsed(24 * 4, band=0.01)))


def test_an_hour_is_said_once_and_not_judged_before_it_has_come() -> None:
    record = truth.issued(truth.ForecastRecord(), outlook(NOW + 60), NOW + 60)
    assert truth.issued(record, outlook(NOW + 1800, off=9.0), NOW + 1800) is record
    early = truth.judged(record, rows(NOW + HOUR), NOW + HOUR)
    assert early.judged == () and len(early.open) == 4
    later = truth.judged(record, rows(NOW + 2 * HOUR), NOW + 2 * HOUR)
    assert [one.target_s for one in later.judged] == [NOW + HOUR] and len(later.open) == 3


def test_what_is_kept_stays_below_a_bound_and_values_that_never_come_are_given_up() -> None:
    record = elapsed(24 * 40)
    assert len(record.judged) <= 4 * (24 * 28 + 1) and len(record.open) <= 4 * 49
    assert len(msgspec.json.encode(record)) < 400_000
    silent = truth.issued(truth.ForecastRecord(), outlook(NOW), NOW)
    assert truth.judged(silent, [], NOW + 10 * 86400).open == ()


def test_too_few_hours_say_nothing() -> None:
    few = elapsed(20)
    assert truth.accuracy(few) == () and truth.difference_error(few) is None


def test_a_constant_bias_is_no_error_of_a_difference_but_noise_is() -> None:
    flat = truth.ForecastRecord()
    for hour in range(24 * 4):
        now_s = NOW + hour * HOUR + 300
        past = [Row(row.start_s, HOUR, 200.0) for row in rows(now_s)]
        said = outlook(now_s)
        noisy = tuple(240.0 + (40.0 if hour % 2 == k % 2 else 0.0) * (k in (6, 24)) for k in range(50))
        flat = truth.judged(flat, past, now_s)
        flat = truth.issued(
            flat,
            GridForecast(
                said.zone, said.signal, said.start_s, HOUR, noisy, said.lo, said.hi, 0, "x", "forecast", now_s
            ),
            now_s,
        )
    constant = elapsed(24 * 4)
    assert truth.difference_error(constant) == pytest.approx(0.1 * 1.2533 * mean_step(), rel=0.3)
    assert truth.difference_error(flat) > 0.05


def mean_step() -> float:
    """Mean difference between the judged leads of the invented grid, as a share of its level."""
    pairs = [(1, 6), (6, 24), (24, 48)]
    steps = [abs(level(NOW + (h + b) * HOUR) - level(NOW + (h + a) * HOUR)) for h in range(24) for a, b in pairs]
    return sum(steps) / len(steps) / 300


def test_a_damaged_record_is_refused() -> None:
    for broken in (b'{"open": 7}', b'{"issued_s": 0, "open": [[1, null, 1, 1, 1]]}'):
        with pytest.raises(ValueError):
            untrusted.decode(broken, truth.ForecastRecord)
    record = elapsed(24 * 3)
    assert untrusted.decode(msgspec.json.encode(record), truth.ForecastRecord) == record


async def test_a_job_keeps_its_truth_and_grid_shows_it(site: Site, tmp_path: Path) -> None:
    clock = Clock()
    feed = Feed("GB", settings=site.settings(), now=clock, cache=tmp_path, http=site.http())
    for _ in range(24 * 3 + 3):
        site.respond = good("neso", clock.now_s)
        hour_s = math.floor(clock.now_s / HOUR) * HOUR
        mean = [1.1 * level(hour_s + 900 * k) for k in range(4 * 60)]
        feed.adopt(
            {"now_s": hour_s, "step_s": 900.0, "mean": mean, "lo": mean, "hi": mean, "provenance": "own forecast"}
        )
        await feed.refresh()
        clock.now_s += HOUR
    looking = Feed("GB", settings=site.settings(), now=clock, cache=tmp_path, http=site.http())
    assert looking.accuracy == ()
    await looking.refresh()
    for each in (feed, looking):
        assert {lead.lead_h for lead in each.accuracy} == {1, 6, 24, 48}
        assert all(lead.error == pytest.approx(0.1, abs=0.02) for lead in each.accuracy)
        assert 0.0 < each.outlook(clock.now_s, 0.0, HOUR, 900.0).difference_error < 0.2
    shown = sources.accuracy(looking.accuracy)
    assert "off by 10, 10, 10, 10 % at 1, 6, 24, 48 h" in shown and "80 % band held" in shown


async def test_what_was_published_of_hours_without_a_value_outlives_a_respawn(site: Site, tmp_path: Path) -> None:
    clock = Clock()
    late = good("energy-charts", NOW)

    def respond(request: Request):
        return late(request) if "start" in request.query else good("energy-charts", clock.now_s)(request)

    site.respond = respond
    feed = Feed("DE", settings=site.settings(), now=clock, cache=tmp_path, http=site.http())
    await feed.refresh()
    clock.now_s += 2 * HOUR
    await feed.refresh()
    successor = Feed("DE", settings=site.settings(), now=clock, cache=tmp_path, http=site.http())
    await successor.refresh()
    for each in (feed, successor):
        seen = each.outlook(clock.now_s, 2 * HOUR, HOUR, 900.0)
        assert None not in seen.mean[: seen.realised]
        assert all(
            value == pytest.approx(level(seen.start_s + 900 * k), abs=2) for k, value in enumerate(seen.mean[:8])
        )
    issues = successor.forecast_request(clock.now_s, 96, 900.0)["published"]
    assert all(min(issue["times_s"]) > issue["issued_at_s"] - 900 for issue in issues)
