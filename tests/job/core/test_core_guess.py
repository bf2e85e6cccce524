"""A guessed total: shown as a guess, planned with once a person agrees, given up for the script's own word."""

from dataclasses import replace

import pytest
from drawn import drawn
from msgspec import structs, to_builtins
from states import inputs, job_state, rank, shown

from carbontui import protocol
from carbontui.job.supervisor.core import advance, commands
from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.state import job as state
from carbontui.job.supervisor.core.state import progress
from carbontui.job.supervisor.core.state.progress import restored
from carbontui.job.supervisor.core.view import notices

GUESS = (5000, "CosineAnnealingLR(T_max=)")


def received(job, **fields):
    one = rank(rate=10.0, **{"guess": GUESS, **fields})
    return state.with_rank(job, one, inputs(ranks=(one,)))


def unknown(**fields):
    """A job of which nobody told how much it is, at 10 steps a second."""
    made = job_state(work_s=None, **fields)
    return replace(made, progress=structs.replace(made.progress, given_rate=10.0))


def do(job, accept=True):
    seen = inputs(ranks=(rank(guess=GUESS),))
    return commands.apply(job, protocol.Cmd(7, "guess", {"accept": accept}), seen, "ada@pts/1")


def told(job):
    return shown(job, inputs(ranks=(rank(),)))


def test_a_guess_is_shown_with_its_source_and_nothing_is_planned_with_it():
    job = received(unknown())
    assert job.progress.total_s is None
    assert told(job).guess == protocol.Guess(5000, GUESS[1], agreed=False, low=10) and told(job).steps_total is None
    why = drawn(finish.why_no_shifting(job, inputs()))
    assert "5000 total steps are a guess, from CosineAnnealingLR(T_max=)" in why
    assert "carbontui learn total --accept" in why


def test_once_a_person_agrees_it_is_planned_with_and_still_called_a_guess():
    job, reply = do(received(unknown()))
    assert not reply.answer.exit_code and drawn(reply.answer).startswith("planning with 5,000 steps")
    assert [type(effect).__name__ for effect in reply.effects] == ["Record", "Replan", "Keep"]
    assert reply.effects[0].facts["by"] == "ada@pts/1" and reply.effects[0].facts["source"] == GUESS[1]
    assert job.progress.total_s == 500.0 and finish.why_no_shifting(job, inputs()) is None
    shown = told(job)
    assert shown.steps_total == 5000 and shown.guess.agreed
    assert shown.provenance["steps_total"].how == "estimated" and GUESS[1] in shown.provenance["steps_total"].source
    kept = restored(unknown().progress, to_builtins(job.progress))
    assert kept.guessed and kept.steps_total == 5000
    assert received(job, guess=(6000, GUESS[1])).progress.steps_total == 6000  # corrected by its own source
    assert received(job, guess=(9, "args.max_iters")).progress.steps_total == 5000  # another source: not agreed to


def test_what_was_agreed_to_can_be_taken_back():
    job = do(do(received(unknown()))[0], accept=False)[0]
    assert job.progress.total_s is None and not told(job).guess.agreed


def test_run_with_guess_needs_no_further_word():
    assert received(unknown(guess=True)).progress.steps_total == 5000


def test_the_scripts_word_replaces_a_guess():
    job = received(do(received(unknown()))[0], guess=None, total=400)
    assert job.progress.steps_total == 400 and told(job).guess is None
    assert do(job)[1].answer.exit_code == 3


def test_a_total_that_is_no_longer_certain_is_a_guess_again():
    job = received(
        received(unknown(), guess=None, total=60), guess=(120, "a fit"), guess_range=(120, None, False, False)
    )
    assert job.progress.steps_total is None and told(job).guess.steps == 120
    given = received(received(job_state(steps=60), guess=None, total=60))
    assert given.progress.steps_total == 60


def test_a_persons_steps_stand_above_a_guess():
    job = received(job_state(work_s=None, steps=100, guess=True))
    assert job.progress.steps_total == 100
    refused = do(job)[1].answer
    assert refused.exit_code and refused.said == protocol.statement("no_guess_needed", steps=100)


def test_without_a_guess_there_is_nothing_to_agree_to():
    job, reply = do(unknown())
    assert reply.answer.exit_code == 3 and job == unknown()


def test_the_next_training_of_a_command_is_guessed_anew():
    job = do(received(unknown()))[0]
    work = progress.with_process(job.progress, "host 8 1", frozenset(), fresh=True)
    assert (work.guess, work.steps_total) == (None, None)
    work = progress.with_guess(work, GUESS, None)
    assert work.steps_total == work.before + 5000  # the same source: still agreed to


@pytest.mark.parametrize("total", [None, 400])
def test_a_rank_without_a_guess_guesses_nothing(total):
    job = received(unknown(), guess=None, total=total)
    assert told(job).guess is None and job.progress.steps_total == total


SURE = {"guess": (5000, "range(args.epochs) x a pass"), "guess_range": (4900, 5100, False, True)}


def test_a_total_that_an_epoch_bore_out_is_planned_with_and_has_an_interval():
    job = received(unknown(), **SURE)
    assert job.progress.total_s == 500.0 and finish.why_no_shifting(job, inputs()) is None
    assert told(job).guess == protocol.Guess(*SURE["guess"], agreed=True, low=4900, high=5100)
    assert "accepted" not in told(job).provenance["steps_total"].source


def test_a_deadline_is_kept_if_a_guessed_total_is_at_its_upper_end():
    work = received(unknown(), **SURE).progress
    assert work.longest_left_s - work.left_s == pytest.approx(10.0)
    assert received(unknown(steps=5000)).progress.longest_left_s == work.left_s


def test_a_guess_that_is_no_longer_offered_or_was_passed_is_withdrawn_and_said():
    job = received(unknown(), **SURE)
    gone = received(job, guess=None)
    assert gone.progress.total_s is None and told(gone).guess is None
    lines = [drawn(line) for line in notices.notices(gone, inputs(), ())]
    assert any("withdrawn: 5,000 total steps" in line for line in lines)
    passed = received(job, step=5200, **SURE)
    assert passed.progress.total_s is None and passed.progress.withdrawn == SURE["guess"]
    open_again = received(job, guess=(7000, "a pass"), guess_range=(10, None, False, False))
    assert open_again.progress.total_s is None and told(open_again).guess.steps == 7000
    _, effects = advance.advance(job, advance.RankChanged(rank(rate=10.0, guess=None), inputs()))
    assert [type(effect).__name__ for effect in effects] == ["Record", "LogLine"]
    assert received(passed, guess=(9000, "b"), guess_range=(8900, 9100, False, True)).progress.withdrawn is None


def test_a_training_that_was_loaded_again_keeps_its_guess_until_it_makes_another():
    job = received(unknown(), **SURE)
    assert received(job, guess=None, process="node1 77 1", restart=1).progress.guess == SURE["guess"]


def test_a_person_may_refuse_every_guess_however_sure():
    job = do(received(unknown(), **SURE), accept=False)[0]
    assert job.progress.total_s is None
    assert received(job, **SURE).progress.total_s is None
    assert do(job)[0].progress.total_s == 500.0
