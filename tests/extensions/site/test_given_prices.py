"""Prices that a cluster's fleet sets for jobs that run: the file between them."""

from __future__ import annotations

import pytest

from carbontui.extensions.site import given
from carbontui.extensions.site.given import PricesError
from carbontui.headroom import GivenPrices

NOW = 1_800_000_000.0


def test_what_is_written_is_read_and_forgotten_when_nobody_renews_it(tmp_path):
    path = tmp_path / "prices.json"
    assert given.read(path, NOW) is None
    given.write(path, NOW + 60, 1800.0, [0.0, 120.5, 0.0], now_s=NOW)
    found = given.read(path, NOW + 3600)
    assert found == GivenPrices(start_s=NOW + 60, slot_s=1800.0, g_per_kwh=(0.0, 120.5, 0.0))
    assert given.read(path, NOW + given.STALE_S + 1) is None
    assert path.stat().st_mode & 0o777 == 0o644 and list(tmp_path.iterdir()) == [path]


def test_a_span_has_the_mean_of_its_prices_and_none_outside():
    prices = GivenPrices(start_s=0.0, slot_s=100.0, g_per_kwh=(10.0, 30.0))
    assert prices.over(50.0, 150.0) == pytest.approx(20.0)
    assert prices.over(150.0, 250.0) == pytest.approx(15.0)
    assert prices.over(500.0, 600.0) == prices.over(-200.0, -100.0) == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": "carbontui.site_prices/1"}', "{", '{"schema": "x", "made_at": "2027-01-15T08:00:00.000Z",'
     ' "first_slot": "2027-01-15T08:00:00.000Z", "slot_s": 1800, "g_per_kwh": [1]}',
     '{"schema": "carbontui.site_prices/1", "made_at": "2027-01-15T08:00:00.000Z",'
     ' "first_slot": "2027-01-15T08:00:00.000Z", "slot_s": 1800, "g_per_kwh": [-1]}'],
)  # fmt: skip
def test_a_file_that_is_none_is_one_line_that_names_it(tmp_path, text):
    path = tmp_path / "prices.json"
    path.write_text(text)
    with pytest.raises(PricesError, match=r"prices.json: .*carbontui fleet --prices"):
        given.read(path, NOW)


def test_a_file_that_everybody_may_write_does_not_count(tmp_path):
    path = tmp_path / "prices.json"
    given.write(path, NOW, 1800.0, [5.0], now_s=NOW)
    path.chmod(0o666)
    with pytest.raises(PricesError, match="writable by everybody"):
        given.read(path, NOW)
    with pytest.raises(PricesError, match="No such file"):
        given.write(tmp_path / "no" / "prices.json", NOW, 1800.0, [5.0], now_s=NOW)
