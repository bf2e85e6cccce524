"""Joules into rows and grams: whatever is booked, an independent reader of the rows finds the same."""

import math
import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from states import outlook

from carbontui import units
from carbontui.account import accounts
from carbontui.account.accounts import RunNow
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.record.chart_history import WattHistory
from carbontui.job.supervisor.record.energy_ledger import EnergyLedger
from carbontui.job.supervisor.record.restoring import restore
from carbontui.job.terms import spec as options
from carbontui.job.terms.clock import Clock
from carbontui.power.messages import Sample

pieces = st.lists(
    st.tuples(st.floats(0.1, 2000.0), st.floats(0.0, 1e7), st.sampled_from(["running", "paused"])),
    min_size=1,
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(pieces, st.lists(st.floats(10.0, 900.0), min_size=1, max_size=8))
def test_rows_bins_and_total_agree(spans, grid):
    ledger = EnergyLedger(pue=1.2)
    at, wall = 1_000_000.0, 0.0
    for seconds, joules, state in spans:
        ledger.add("GPU-1", at, at + seconds, joules, "counter", state, wall, gpu=True)
        at, wall = at + seconds, wall + 1.0
    total = sum(joules for _, joules, _ in spans)
    rows = ledger.drain(everything=True)
    assert sum(row[3] for row in rows) == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert ledger.gpu_kwh == pytest.approx(units.joules_to_kwh(total), rel=1e-12, abs=1e-15)

    def lookup(start):
        return grid[int(start // accounts.BIN_S) % len(grid)]

    by_rows = sum(units.joules_to_kwh(j) * lookup(t0 // accounts.BIN_S * accounts.BIN_S) for t0, _, _, j, _, _ in rows)
    by_bins = sum(units.joules_to_kwh(joules) * lookup(start) for start, joules in ledger.bins.items())
    assert by_bins == pytest.approx(by_rows, rel=1e-9, abs=1e-12)


def test_a_row_ends_where_the_state_changes_and_where_a_bin_ends():
    ledger = EnergyLedger()
    ledger.add("g", 0.0, 100.0, 10.0, "counter", "running", 0.0, gpu=True)
    ledger.add("g", 100.0, 200.0, 10.0, "counter", "running", 1.0, gpu=True)
    ledger.add("g", 200.0, 250.0, 1.0, "counter", "paused", 2.0, gpu=True)
    ledger.add("g", 250.0, 350.0, 2.0, "counter", "paused", 3.0, gpu=True)
    rows = ledger.drain(everything=True)
    assert [(r[0], r[1], r[5]) for r in rows] == [(0, 200, "running"), (200, 300, "paused"), (300, 350, "paused")]
    assert rows[1][3] == pytest.approx(2.0)


def test_an_idle_gpu_counts_before_the_start_and_unloaded_only_where_it_is_held():
    for kind, gives_back, counts in (
        ("held", False, (1.0, 1.0)), ("held", True, (1.0, 0.0)), ("given-back", False, (0.0, 0.0)),
        ("always-on", False, (0.0, 0.0)),
    ):  # fmt: skip
        for state, kwh in zip(("waiting", "unloaded"), counts, strict=True):
            ledger = EnergyLedger(boundary=kind, gives_back=gives_back)
            ledger.add("g", 0.0, 60.0, 3.6e6, "counter", state, 0.0, gpu=True)
            assert ledger.gpu_kwh == pytest.approx(kwh) and len(ledger.drain(everything=True)) == kwh


def running(weights, values):
    sums = accounts.Running()
    sums.renew(-math.inf, sorted(weights.items()), values)
    return sums


def test_unknown_intensity_is_counted_at_the_known_mean_and_marked():
    total = running({0.0: 3.6e6, 300.0: 3.6e6}, {0.0: 200.0}).total(None)
    assert units.joules_to_kwh(total.value) == pytest.approx(400.0) and total.unknown == 3.6e6
    total = running({0.0: 3.6e6, 300.0: 3.6e6}, {0.0: 200.0}).total(50.0)
    assert units.joules_to_kwh(total.value) == pytest.approx(250.0) and total.unknown == 0


def test_run_now_follows_the_realised_grid():
    total = accounts.FromStart(100.0).total(400.0, {0.0: 100.0, 300.0: 300.0}, None)
    assert total.value == pytest.approx(200.0 * 100 + 200.0 * 300) and total.weight == pytest.approx(400.0)


def plain(weights, values, otherwise):
    """The definition: all bins in order of time."""
    value = known = unknown = 0.0
    for start, weight in weights:
        if values.get(start) is None:
            unknown += weight
        else:
            value, known = value + weight * values[start], known + weight
    if otherwise is not None:
        return value + unknown * otherwise
    return value * ((known + unknown) / known) if unknown and known else value


def seconds(start_s, end_s):
    start = start_s // 300 * 300
    while start + 300 <= end_s:
        yield start, start + 300 - max(start, start_s)
        start += 300
    yield start, end_s - max(start, start_s)


changes = st.lists(
    st.tuples(st.sampled_from("jjgp?"), st.integers(-40, 40), st.floats(0.5, 1e6), st.none() | st.floats(1.0, 900.0)),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(changes, st.floats(0.0, 1e4))
def test_sums_of_the_books_equal_the_plain_sum_to_the_last_bit(tmp_path_factory, steps, start_s):
    """Whatever comes late, is revised, or is asked in between: joules, intensities (g), prices, questions."""
    spec = options.Options(
        job="b", name="b", dir="", argv=(), cwd="", log="", socket="", created_s=start_s, pue=1.3, currency="EUR"
    )
    folder = tmp_path_factory.getbasetemp()
    account = Accounting(spec, Clock(), Journal(folder / "no" / "such.db"), "boot")
    for kind, index, number, known in [*steps, ("?", 7, 5e3, None), ("?", 3, 4e3, 80.0)]:
        start = 300.0 * index
        if kind == "j":
            account.ledger.bins[start] += number
        elif kind == "g":
            account.intensity[start] = number
        elif kind == "p":
            account.price[start] = number
        else:
            sums = account.totals(start_s=start_s, run_now=RunNow(number, 700.0), nowcast=known, gpus=1)
            joules = sorted(account.ledger.bins.items())
            grams = units.joules_to_kwh(plain(joules, account.intensity, known)) * 1.3
            if sums.gco2_g is None:
                assert known is None and not any(at in account.intensity for at, j in joules if j)
            else:
                assert sums.gco2_g == grams
            if sums.avoided_g is not None:
                at_full_speed = plain(seconds(start_s, start_s + number), account.intensity, known)
                assert sums.avoided_g == units.joules_to_kwh(700.0 * at_full_speed) - grams
            if sums.cost is not None:
                assert sums.cost.value == round(units.joules_to_kwh(plain(joules, account.price, None)) * 1.3, 9)


def test_money_is_not_counted_from_the_start_where_no_price_is_known(tmp_path):
    """It would stand at zero until the first joule, and then be gone."""
    spec = options.Options(job="b", name="b", dir="", argv=(), cwd="", log="", socket="", created_s=0.0, currency="EUR")

    def cost(given):
        account = Accounting(given, Clock(), Journal(tmp_path / "none.db"), "boot")
        before = account.totals(start_s=0.0, run_now=None, nowcast=None, gpus=1).cost
        account.ledger.bins[0.0] += 3.6e6
        return before, account.totals(start_s=0.0, run_now=None, nowcast=None, gpus=1).cost

    assert cost(spec) == (None, None)
    assert [found and found.value for found in cost(structs.replace(spec, price_per_kwh=0.3))] == [0.0, 0.3]
    assert None not in cost(structs.replace(spec, gpu_price=2.0))


def test_a_successor_goes_on_with_the_same_books():
    ledger = EnergyLedger()
    ledger.add("g", 0.0, 700.0, 5.0, "counter", "running", 0.0, gpu=True)
    ledger.add("g", 700.0, 800.0, 2.0, "counter", "paused", 1.0, gpu=True)
    written = [(t0, t1, joules, state) for t0, t1, _, joules, _, state in ledger.drain()]
    other = EnergyLedger()
    other.restore(ledger.to_dict(), written, 2.0)
    assert other.gpu_j == ledger.gpu_j and dict(other.bins) == pytest.approx(dict(ledger.bins))
    assert [row[2:] for row in other.drain(everything=True)] == [row[2:] for row in ledger.drain(everything=True)]


def test_what_is_taken_back_is_gone_from_rows_and_sums_alike(tmp_path):
    spec = options.Options(job="t", name="t", dir="", argv=(), cwd="", log="", socket="", created_s=0.0)
    account = Accounting(spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    for board, watts in (("GPU-ours", 300.0), ("GPU-theirs", 500.0)):
        for at in range(0, 700, 10):
            joules = 10 * watts
            account.ledger.add(board, 1e6 + at, 1e6 + at + 10, joules, "counter", "running", float(at), gpu=True)
            account.watts.add(board, 1e6 + at, 1e6 + at + 10, joules)
    account.write()
    account.write(everything=True)
    assert account.take_back("GPU-theirs", account.journal.disown("GPU-theirs")) == pytest.approx(350_000.0)
    account.write(everything=True)
    account.journal.commit()
    rows = account.journal.energy_rows()
    assert sum(row[2] for row in rows) == pytest.approx(210_000.0)
    assert account.ledger.gpu_j == pytest.approx(210_000.0) == sum(account.ledger.bins.values())
    assert account.ledger.by_how["counter"] == pytest.approx(210_000.0)
    assert set(filter(None, account.watts.watts().total_w)) == {300.0}


def test_an_expected_price_is_booked_as_an_estimate_until_it_is_published(tmp_path):
    spec = options.Options(job="t", name="t", dir="", argv=(), cwd="", log="", socket="", created_s=0.0, currency="EUR")
    account = Accounting(spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    seen = outlook(300.0, 300.0, 300.0, realised=2, price=(0.2, -0.03, 0.1))
    account.prices(replace(seen, price_lo=(0.2, -0.05, 0.0), price_hi=(0.2, 0.01, 0.2), price_source="a market"))
    account.write(everything=True)
    account.journal.commit()
    read = "select kind, value, source from grid where signal='price' order by start"
    journal = sqlite3.connect(tmp_path / "j.db")
    booked = list(journal.execute(read))
    assert booked[:2] == [("actual", 0.2, "a market"), ("estimated", -0.03, "a market")]
    account.prices(replace(seen, price=(0.2, 0.04, 0.1), price_lo=(0.2, 0.04, 0.0), price_hi=(0.2, 0.04, 0.2)))
    account.journal.commit()
    assert list(journal.execute(read))[1][:2] == ("actual", 0.04)


def test_the_chart_shows_no_total_where_a_board_is_missing():
    columns = WattHistory(0.0, 60.0)
    for at in range(0, 300, 5):
        columns.add("cpu", at, at + 5, 50.0)
        columns.add("GPU-1", at + 1, at + 6, 500.0)
        if at < 115:
            columns.add("GPU-2", at, at + 5, 1500.0)
    columns.add("cpu", 300.0, 301.0, 10.0)  # the board's word for this column is about to come
    assert columns.watts().total_w == (410.0, 410.0, None, None, None, None)
    alone = WattHistory(0.0, 60.0)
    for at in range(0, 120, 5):
        alone.add("cpu", at, at + 5, 50.0)
        alone.add("GPU-1", at, at + 5, 500.0)
    alone.add("cpu", 120.0, 121.0, 10.0)
    assert alone.watts().total_w == (110.0, 110.0, 10.0)


def test_the_hosts_watts_count_while_a_job_holds_the_machine(tmp_path) -> None:
    account = Accounting(
        options.Options(job="b", name="b", dir="", argv=(), cwd="", log="", socket="", created_s=1e9),
        Clock(),
        Journal(tmp_path / "j.db"),
        "boot",
    )
    for second in range(11):
        account.pass_time(1e9 + second, 1.0, "running", host_w=50.0)
    for second in range(11, 21):
        account.pass_time(1e9 + second, 1.0, "waiting", host_w=50.0)
    assert account.ledger.wall_kwh * units.J_PER_KWH == pytest.approx(500.0)


def test_a_replay_stands_still_until_its_origin(tmp_path) -> None:
    """While the command is loaded, no hours pass and no joules of them are booked."""
    clock = Clock(speed=1000.0, wall_origin_s=2e9, job_origin_s=1.5e9)
    assert (clock.at_wall(2e9 - 5.0), clock.at_wall(2e9 + 5.0)) == (1.5e9, 1.5e9 + 5000.0)
    spec = options.Options(job="b", name="b", dir=str(tmp_path), argv=(), cwd="", log="", socket="", created_s=2e9)
    account = Accounting(spec, clock, Journal(tmp_path / "j.db"), "boot")
    samples = [
        Sample(uuid="GPU-a", mono_s=float(second), wall_s=2e9 - 10.0 + second, energy_uj=second * 200_000_000)
        for second in range(21)
    ]
    account.meter_samples(samples, "running", frozenset({"GPU-a"}))
    assert account.ledger.gpu_kwh == pytest.approx(units.joules_to_kwh(10 * 1000.0 * 200.0), rel=1e-6)


def test_a_start_by_the_scheduler_does_not_book_what_others_drew_in_the_meantime(tmp_path) -> None:
    def life(attempt: int, seconds: range) -> Accounting:
        spec = options.Options(
            job="c", name="c", dir=str(tmp_path), argv=(), cwd="", log="", socket="", created_s=2e9, attempt=attempt
        )
        account = Accounting(spec, Clock(), Journal(tmp_path / "j.db"), "boot")
        restore(account)
        counted = [
            Sample(uuid="GPU-a", mono_s=float(at), wall_s=2e9 + at, energy_uj=at * 200_000_000, power_w=200.0)
            for at in seconds
        ]
        account.meter_samples(counted, "running", frozenset({"GPU-a"}))
        account.write(everything=True)
        account.keep()
        account.journal.commit()
        return account

    life(0, range(11))
    # its supervisor is another one: the counter fills the time in between
    assert life(0, range(20, 31)).ledger.gpu_j == pytest.approx(30 * 200.0)
    # an hour in the queue, on the same node again: the boards were others'
    assert life(1, range(3630, 3641)).ledger.gpu_j == pytest.approx(40 * 200.0)
