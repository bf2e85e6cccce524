"""Input that no table foresaw: digits of other scripts, names that a shell would run, zones that cannot be."""

from __future__ import annotations

import sqlite3
import time

import pytest
from click.shell_completion import CompletionItem

from carbontui import units
from carbontui.commands.support import command
from carbontui.job.files.journal import Journal
from carbontui.job.terms import budget
from carbontui.text import figures


@pytest.mark.parametrize("text", ["３００", "٣٠٠", "３００W", "300\u0660"])
def test_digits_of_other_scripts_are_no_power_and_no_time(text) -> None:
    for parse in (units.parse_watts, units.parse_power, lambda one: units.parse_duration(f"{one}h")):
        with pytest.raises(ValueError, match=r"300|３|٣"):
            parse(text)
    with pytest.raises(ValueError, match="is not"):
        budget.parse_until("１８:00", 1e9)


def test_a_time_zone_that_cannot_be_is_taken_as_utc(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "XXX24YYY")
    time.tzset()
    try:
        assert figures.clock_name(1.7e9) == "UTC" and units.local_offset_s(1.7e9) == 0.0
        assert budget.parse_until("18:00", 1.7e9) > 1.7e9
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("name", ["$(touch x)", "`x`", "a;b", "a'b", "~root", "-rf", "*"])
def test_completion_offers_no_name_that_a_shell_would_read_otherwise(house, name, monkeypatch) -> None:
    class One:
        id, live = "20260101-000000-aaaa", True

    One.name = name
    monkeypatch.setattr("carbontui.job.files.store.jobs", lambda: [One])
    offered: list[CompletionItem] = command.any_jobs(None, None, "")
    assert [item.value for item in offered] == [One.id]


def test_a_journal_that_cannot_be_opened_says_so_once(tmp_path, monkeypatch) -> None:
    def broken(*args, **kwargs):
        raise sqlite3.OperationalError("unable to open")

    monkeypatch.setattr(sqlite3, "connect", broken)
    journal = Journal(tmp_path / "journal.db")
    journal.event(1.0, 1.0, "x")
    assert not journal.commit() and not journal.commit()
    assert journal.fault.count("journal not written") == 1
