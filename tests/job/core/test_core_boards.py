"""Which boards are the job's, and which limits hold."""

from dataclasses import replace

import msgspec
import pytest
from states import board, inputs, limits, rank

from carbontui.job.supervisor.core.state import boards
from carbontui.job.supervisor.core.state.boards import Boards
from carbontui.power.messages import Capability, Outcome, Readings


def test_boards_are_those_that_the_ranks_name_each_once():
    ranks = (rank(devices=("GPU-a", "GPU-b")), rank(rank=1, devices=("GPU-b", "GPU-c")))
    known = boards.named(Boards(), ranks, 50.0)
    assert known.named == ("GPU-a", "GPU-b", "GPU-c") and known.named_mono_s == 50.0


def test_boards_once_named_stay_the_jobs_while_its_ranks_reconnect():
    known = Boards(named=("GPU-a",), named_mono_s=5.0)
    assert boards.named(known, (), 50.0) is known
    assert boards.named(known, (rank(),), 50.0) is known
    assert boards.named(known, (rank(devices=("GPU-a",)),), 50.0) is known, "the same boards are no news"


def test_boards_watched_well_after_they_were_named_are_the_jobs_own():
    known = Boards(named=("GPU-a",), named_mono_s=1080.0)
    seen = inputs(boards=(board("GPU-a"),))
    assert boards.settled(known, seen).own == frozenset()
    assert boards.settled(Boards(named=("GPU-a",), named_mono_s=1060.0), seen).own == {"GPU-a"}


def test_what_a_silent_driver_showed_last_makes_no_board_the_jobs_own():
    seen = inputs(readings=Readings(mono_s=1080.0, devices=(board("GPU-a"), board("GPU-z"))))
    assert boards.settled(Boards(named=("GPU-a",), named_mono_s=1.0), seen).own == frozenset()


def test_a_board_that_is_not_watched_is_not_the_jobs():
    seen = inputs(boards=(board("GPU-a"), board("GPU-z", watched=False)))
    assert boards.settled(Boards(named=("GPU-a",), named_mono_s=1.0), seen).own == {"GPU-a"}


def test_boards_with_its_processes_are_the_jobs_where_the_training_names_none():
    by_process = inputs(readings=Readings(mono_s=1099.5, by_process=True, devices=(board("GPU-a"),)))
    assert boards.shown(Boards(), by_process).shown == ("GPU-a",)
    assert boards.shown(Boards(), inputs(boards=(board("GPU-a"),))).shown == (), "all visible ones are nobody's word"
    named = Boards(named=("GPU-b",))
    assert boards.shown(named, by_process) is named, "what the training says stands above it"


def test_energy_of_boards_without_its_processes_is_taken_back():
    known = Boards(shown=("GPU-a",), shown_mono_s=1071.0)
    seen = inputs(boards=(board("GPU-a"),), metered=frozenset({"GPU-a", "GPU-z"}))
    assert boards.foreign_boards(known, seen) == ()
    assert boards.foreign_boards(known, replace(seen, mono_s=1101.0)) == ("GPU-z",)


def test_a_metered_board_that_the_driver_does_not_show_any_more_is_missed():
    seen = inputs(boards=(board("GPU-a"),), metered=frozenset({"GPU-a", "GPU-b"}))
    assert boards.unseen(Boards(), seen) == {"GPU-b"}
    assert boards.unseen(Boards(named=("GPU-a",)), seen) == frozenset(), "it was never this job's"
    assert boards.unseen(Boards(named=("GPU-a",), own=frozenset({"GPU-b"})), seen) == {"GPU-b"}


def test_a_cap_that_every_board_refused_holds_nowhere():
    no = Outcome("GPU-a", False, "no_permission", text="only root may")
    seen = inputs(boards=(board(),), limits=limits(asked=True, outcomes={"GPU-a": no}))
    assert boards.refused_cap(300.0, seen) == (300.0, "no_permission", "only root may")


@pytest.mark.parametrize(
    "news",
    [
        {"asked": False, "outcomes": {"GPU-a": Outcome("GPU-a", False, "error")}},
        {"asked": True, "pending": True, "outcomes": {"GPU-a": Outcome("GPU-a", False, "error")}},
        {"asked": True, "outcomes": {}},
        {"asked": True, "outcomes": {"GPU-a": Outcome("GPU-a", True, "applied")}},
    ],
)
def test_a_cap_is_not_refused_while_one_board_holds_it_or_has_yet_to_answer(news):
    assert boards.refused_cap(300.0, inputs(boards=(board(),), limits=limits(**news))).watts is None


def test_one_board_of_two_that_takes_the_cap_is_enough_not_to_call_it_refused():
    outcomes = {"GPU-a": Outcome("GPU-a", False, "lost"), "GPU-b": Outcome("GPU-b", True, "applied")}
    seen = inputs(boards=(board(), board("GPU-b")), limits=limits(asked=True, outcomes=outcomes))
    assert boards.refused_cap(300.0, seen).watts is None


def test_a_board_that_does_not_tell_of_limits_yet_speaks_against_none():
    untold = board("GPU-b", caps={})
    assert boards.take_limits((board(), untold))
    assert not boards.take_limits((board(), board("GPU-b", caps={"limit": Capability("no_effect")})))


def test_what_a_successor_reads_of_the_boards_is_what_was_kept():
    kept = boards.to_kept(Boards(("GPU-a",), 3.0, own=frozenset({"GPU-a"})), 300.0, ("GPU-b",))
    again = boards.restored(msgspec.json.decode(msgspec.json.encode(kept)), 70.0)
    left = boards.LeftAlone(300.0, ("GPU-b",))
    assert again == Boards(("GPU-a",), 70.0, own=frozenset({"GPU-a"}), left=left)


@pytest.mark.parametrize("kept", [None, {}, {"named": None}, {"named": []}, {"new field": 1}])
def test_a_predecessor_that_knew_no_boards_leaves_none(kept):
    assert boards.restored(kept, 70.0) == Boards()


@pytest.mark.parametrize("kept", [{"named": 5}, {"own": "GPU-a"}, {"left": []}, [1]])
def test_boards_kept_in_another_shape_are_refused(kept):
    with pytest.raises(msgspec.ValidationError):
        boards.restored(kept, 70.0)
