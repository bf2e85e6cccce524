from dataclasses import replace

import msgspec
import pytest
from msgspec import convert, to_builtins

from carbontui.job.supervisor.core.state import override as overrides
from carbontui.job.supervisor.core.state.override import Overrides, apply, expire
from carbontui.protocol import statement


def test_an_override_says_who_and_ends_by_the_clock():
    held = apply(Overrides(), "pause", by="ada@pts/1", expected_gen=0, until_s=500.0)
    assert held.current.by == "ada@pts/1" and held.current.until == "1970-01-01T00:08:20.000Z" and held.gen == 1
    assert expire(held, 499.0) is held
    over = expire(held, 500.0)
    assert over.current is None and over.gen == 2


def test_the_slower_of_two_hands_is_told_who_was_faster():
    held = apply(Overrides(), "pause", by="ada@pts/1", expected_gen=0)
    with pytest.raises(overrides.OverrideError) as refused:
        apply(held, "boost", by="bob@pts/2", expected_gen=0)
    assert refused.value.said == statement("changed_first", by="ada@pts/1", mode="pause")
    assert apply(held, "boost", by="bob@pts/2", expected_gen=1).current.mode == "boost"
    assert apply(held, "resume", by="cron", expected_gen=None).current is None


def test_what_a_successor_reads_is_what_was_held():
    held = apply(Overrides(), "cap", by="a", expected_gen=0, until_s=9.0, value_w=300.0)
    assert convert(to_builtins(held), Overrides) == held
    assert convert(to_builtins(Overrides()), Overrides) == Overrides() == convert({}, Overrides)


def test_an_override_until_beyond_the_calendar_is_not_taken_over():
    held = apply(Overrides(), "boost", by="a", expected_gen=0, until_s=9.0)
    with pytest.raises(msgspec.ValidationError):
        convert(to_builtins(replace(held, until_s=1e15)), Overrides)
