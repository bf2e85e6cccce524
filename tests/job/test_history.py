"""The past of a job: exact from sums as from rows, off the event loop, and never empty without a word."""

import pytest

from carbontui import protocol, units
from carbontui.job.files import journal
from carbontui.job.files.history import HistoryError, read, whole
from carbontui.job.files.journal import Journal

START = 1_800_000_123.0
DAY_S = 86400.0


def drawn(book, *, boards=2, days=2.0, row_s=100.0):
    """Rows as the ledger writes them: none crosses a bin of five minutes; a gap of an hour in the middle."""
    gap = START + days * DAY_S / 2
    for board in range(boards):
        at = START
        while at < START + days * DAY_S:
            end = min(at + row_s, (at // 300 + 1) * 300)
            if not gap <= at < gap + 3600:
                book.energy(at, end, f"GPU-{board}", (200 + board * 50 + at % 97) * (end - at), "counter", "running")
            at = end


@pytest.fixture
def book(tmp_path):
    made = Journal(tmp_path / "journal.db")
    yield made
    made.close()


def row_by_row(book, start, span_s, columns):
    """Mean watts per column from the rows alone."""
    step, joules = span_s / columns, [None] * columns
    with journal.read(book.path) as db:
        for t0, t1, drew in db.execute(
            "select t0, t1, joules from energy where t0 < ? and t1 > ?", (start + span_s, start)
        ):
            for at in range(max(0, int((t0 - start) // step)), min(columns, int((t1 - start) // step) + 1)):
                part = min(t1, start + (at + 1) * step) - max(t0, start + at * step)
                if part > 0:
                    joules[at] = (joules[at] or 0.0) + drew * part / (t1 - t0)
    return [None if drew is None else drew / step for drew in joules]


SPANS = [
    (START, 2 * DAY_S, 240),
    (START + 77.7, 1.9 * DAY_S, 2000),
    (START + DAY_S, 0.5 * DAY_S, 240),
    (START - DAY_S, 4 * DAY_S, 7),
    (START, 1e9, 3),
    (START + 3600.5, 600.0, 240),
]


@pytest.mark.parametrize("span", SPANS)
def test_any_span_is_the_same_from_sums_as_from_rows(book, span):
    drawn(book)
    assert book.commit()
    past = read(book.path, *span)
    expected = row_by_row(book, *span)
    assert [watts is None for watts in past.watts] == [watts is None for watts in expected]
    known = [(a, b) for a, b in zip(past.watts, expected, strict=True) if b is not None]
    assert known and all(a == pytest.approx(b, rel=1e-6) for a, b in known)


def test_a_journal_that_cannot_be_read_is_said_and_not_shown_as_an_empty_past(tmp_path, book):
    book.close()
    (tmp_path / "journal.db").write_bytes(b"not a database at all" * 400)
    with pytest.raises(HistoryError, match=r"journal\.db: it cannot be read"):
        read(book.path, *SPANS[0])


def test_levels_are_those_in_force_at_the_middle_of_each_column(book):
    for at, state, level in [(-900, "running", "full"), (250, "throttled", "cap 200 W"), (650, "paused", "full")]:
        book.event(START + at, 0.0, "state", state=state, level=level, level_kind=level.split()[0])
    assert book.commit()
    past = read(book.path, START, 1000.0, 5)
    assert past.levels == ("full", "cap 200 W", "cap 200 W", "pause", "pause")
    past = read(book.path, START - 2000.0, 3000.0, 3)
    assert past.levels == (None, "full", "cap 200 W") and past.kinds == (None, "full", "cap")


def test_the_kind_of_a_past_level_is_what_was_recorded_and_not_its_name(book):
    """A cap is decided before the board holds it: the state is still `running`."""
    recorded = [(100, "running", "250", "cap"), (300, "throttled", "half", "duty"), (500, "throttled", "250", "cap")]
    for at, state, level, kind in [*recorded, (700, "running", "x", "no kind"), (900, "paused", "x", "cap")]:
        book.event(START + at, 0.0, "state", state=state, level=level, level_kind=kind)
    assert book.commit()
    past = read(book.path, START, 1000.0, 5)
    assert past.kinds == ("cap", "duty", "cap", "full", "pause")


def test_a_job_that_is_over_is_seen_from_its_first_joule_to_its_last_word(book):
    drawn(book, days=1.0)
    hours = [(START + 3600.0 * n, 3600.0, 100.0 + n, "actual", "average_direct", "test") for n in range(24)]
    book.grid([*hours, (START, 3600.0, 0.3, "actual", "price", "test")])
    assert book.commit()
    status = protocol.Status(
        job="t", name="t", host="h", measured_at=units.iso(START + DAY_S), state="done",
        reason=protocol.Reason("exited", "it ended"), intensity=protocol.Intensity(123.0, "average_direct", "DE"),
    )  # fmt: skip
    run = whole(book.path, status, 48)
    assert units.from_iso(run.watts.start) == pytest.approx(START, abs=1.0)
    assert run.watts.step_s == pytest.approx(1800.0, rel=1e-3)
    assert run.intensity_g == tuple(100.0 + n // 2 for n in range(48))
    assert run.watts.total_w[25] is None and run.watts.total_w[10] > 400


def test_of_a_job_that_booked_nothing_there_is_no_past(book):
    reason = protocol.Reason("exited", "it ended")
    status = protocol.Status(job="t", name="t", host="h", measured_at=units.iso(START), state="failed", reason=reason)
    assert whole(book.path, status, 48) is None
