"""The corpus of plain trainings is whole, and its steps are true."""

from __future__ import annotations

import corpus
import count
import pytest
from later import needs

LOOPS = {loop.name: loop for loop in corpus.read()}
KINDS = {"loader", "iterations", "schedule", "rollout", "stages", "by_hand", "open"}


def test_sixty_trainings_are_listed_and_there_and_twenty_of_them_are_held_out():
    assert len(LOOPS) == 60
    assert sum(loop.held_out for loop in LOOPS.values()) == 20
    for folder, held_out in (("loops", False), ("held_out", True)):
        there = {path.stem for path in (corpus.HERE / folder).glob("*.py")}
        assert there == {loop.name for loop in LOOPS.values() if loop.held_out is held_out}


def test_every_training_has_its_facts():
    for loop in LOOPS.values():
        assert loop.source and loop.evidence and loop.kind in KINDS, loop.name
        assert loop.steps or not loop.knowable, loop.name
        assert 0 <= loop.due <= loop.steps / 2, loop.name


def test_no_training_knows_of_carbontui():
    assert [loop.name for loop in LOOPS.values() if "carbontui" in loop.path.read_text()] == []


@needs("torch")
@pytest.mark.long
@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", ["nanogpt", "amp_skips", "em_alternation", "dcgan"])
def test_a_training_makes_the_steps_that_the_list_says(name):
    """The others: python tests/corpus/count.py."""
    assert count.count(LOOPS[name])["steps"] == LOOPS[name].steps
