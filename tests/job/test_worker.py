"""What the worker offers beside a plan: other budgets that can be carried out, around what a person has said."""

import base64
import hashlib
import json
import os
import socket
import zlib

import msgspec
import pytest

from carbontui.job.worker import handle
from carbontui.job.worker import process as worker
from carbontui.job.worker.messages import Pauses, PlanAsk, PreviewAsk
from carbontui.plan.evaluation import evaluate
from carbontui.plan.planner import solve
from carbontui.plan.problem import ProblemFile, ProblemInitial, ProblemLevel, ProblemSlots, ProblemSwitch
from carbontui.plan.rolling import broken, replan

LEVELS = (ProblemLevel("pause", 20.0, 0.0), ProblemLevel("full", 400.0, 1.0))
STEP_S = 900.0


AN_HOUR = Pauses(max_pause_s=3600.0, pausing=(0,))


def problem(slots=96, work_slots=24):
    """A clean hour after every six dirty ones: without a limit long pauses pay."""
    return ProblemFile(
        slots=ProblemSlots((STEP_S,) * slots, tuple(50 if k % 28 >= 24 else 700 + k for k in range(slots))),
        levels=LEVELS,
        switch=ProblemSwitch(((0, 20), (5, 0)), ((0, 300), (300, 0))),
        initial=ProblemInitial(1),
        work_s=work_slots * STEP_S,
    )


def pauses_s(levels):
    return [count * STEP_S for level, count in levels if level == 0]


def test_no_budget_is_offered_whose_plan_pauses_longer_than_allowed():
    free = worker.solve_plan(PlanAsk(problem=problem())).frontier
    assert max(s for point in free for s in pauses_s(point.levels)) > 2 * 3600
    answer = worker.solve_plan(PlanAsk(problem=problem(), pauses=AN_HOUR))
    assert len(answer.frontier) > 3
    for point in answer.frontier:
        assert all(s <= 3601 for s in pauses_s(point.levels))
        levels = [level for level, count in point.levels for _ in range(count)]
        did = evaluate(problem().problem(), levels)
        assert did.feasible
        assert (did.gco2, did.finish_s) == pytest.approx((point.gco2_g, point.finish_s))


def test_later_and_no_better_is_not_shown():
    answer = worker.solve_plan(PlanAsk(problem=problem(), curve=problem(slots=192), pauses=AN_HOUR))
    worth = [point.objective for point in answer.frontier]
    assert worth == sorted(worth, reverse=True)
    later = [point for point in answer.frontier if point.finish_s > answer.plan.finish_s]
    assert all(point.objective < answer.plan.objective for point in later)


def test_other_budgets_and_previews_are_made_around_a_persons_word():
    fixed = dict.fromkeys(range(8), 1)
    answer = worker.solve_plan(PlanAsk(problem=problem(), fixed=fixed))
    assert answer.frontier and all(point.levels[0][0] == 1 for point in answer.frontier)
    assert all(point.levels[0][1] >= 8 for point in answer.frontier)
    assert worker.preview_plan(PreviewAsk(problem=problem(), fixed=fixed)).plan.levels[:8] == (1,) * 8
    held = dict.fromkeys(range(8), 0)
    paused = worker.preview_plan(PreviewAsk(problem=problem(), fixed=held)).plan
    assert paused.levels[:8] == (0,) * 8 and paused.finish_s <= 96 * STEP_S


def test_breaking_pauses_one_by_one_is_never_worse_than_breaking_them_all_at_once():
    whole = problem(slots=400, work_slots=60).problem()
    chosen, _ = replan(whole, None, max_pause_s=3600.0)
    simply = evaluate(whole, broken(whole, solve(whole).levels, 3600.0))
    assert simply.feasible and chosen.objective <= simply.objective * (1 + 1e-9)


def test_a_person_may_pause_longer_than_any_plan_and_to_the_very_end():
    fixed = dict.fromkeys(range(12), 0)
    offers = worker.solve_plan(PlanAsk(problem=problem(), fixed=fixed, pauses=AN_HOUR)).frontier
    assert offers and all(point.levels[0][0] == 0 and point.levels[0][1] >= 12 for point in offers)
    answer = worker.solve_plan(PlanAsk(problem=problem(), fixed=dict.fromkeys(range(96), 0), pauses=AN_HOUR))
    assert answer.frontier == () and answer.plan.finish_s > 96 * STEP_S


@pytest.fixture
async def live(tmp_path):
    """A real worker process, behind its handle."""
    made = handle.WorkerHandle(tmp_path, lambda _: None)
    yield made
    made.drop()


async def test_a_plan_crosses_to_the_worker_and_back_whole(live):
    ask = PlanAsk(problem=problem(), fixed={0: 1, 90: 0}, pauses=AN_HOUR, uncertainty=0.05, currency="EUR")
    assert await live.plan(ask) == worker.solve_plan(ask)
    preview = PreviewAsk(problem=problem(), fixed={3: 0})
    assert await live.preview(preview) == worker.preview_plan(preview)


async def test_a_problem_that_is_none_is_refused_in_words_and_the_worker_stays(live):
    with pytest.raises(handle.WorkFailed, match="work_s"):
        await live.plan(PlanAsk(problem=msgspec.structs.replace(problem(), work_s="much")))
    assert (await live.preview(PreviewAsk(problem=problem()))).plan.finish_s > 0


def test_questions_of_another_version_are_read_by_name_and_refused_by_their_id():
    asked = {
        "id": 7,
        "kind": "plan",
        "problem": problem().problem().to_dict(),
        "fixed": {"0": 1},
        "frontier": True,
        "of_later": [1],
    }
    told = worker.answer(json.dumps(asked).encode())
    assert (told.id, told.ok) == (7, True)
    # what the version before reads of an answer
    plain = msgspec.json.decode(told.answer)
    assert plain["plan"]["levels"][0] == 1 and {"gco2", "lower_bound", "stage"} <= plain["plan"].keys()
    assert {"name", "gco2", "cost", "finish_s", "violations"} <= plain["baselines"][0].keys()
    assert {"finish_s", "gco2_g", "cost", "kwh", "levels"} <= plain["frontier"][0].keys()
    told = worker.answer(b'{"id": 8, "kind": "dream", "problem": {}}')
    assert (told.id, told.ok) == (8, False) and "dream" in told.error
    assert not worker.answer(b"[]").ok


def test_a_supervisor_that_was_killed_leaves_no_traceback_of_its_worker():
    ours, theirs = socket.socketpair()
    ours.sendall(msgspec.json.encode(PreviewAsk(problem=problem())) + b"\n")
    ours.close()
    worker.serve(theirs)  # its answer finds nobody


def test_a_script_is_read_by_its_path_or_from_its_text_and_damage_is_refused(tmp_path):
    text = "for i in range(7):\n    step()\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    packed = base64.b64encode(zlib.compress(text.encode())).decode()

    def read(path, **more):
        place = {"chain": [[str(path), "<module>", 1, 2, 4, "__main__"]], "files": {str(path): digest}, **more}
        line = json.dumps({"id": 4, "kind": "read", "place": place}).encode()
        return msgspec.json.decode(worker.answer(line).answer)

    (tmp_path / "other.py").write_text("another text")
    os.mkfifo(tmp_path / "pipe.py")
    for path in ("<string>", tmp_path / "elsewhere.py", tmp_path / "other.py", tmp_path / "pipe.py", "/dev/zero"):
        assert read(path)["lacks"] == [str(path)], "not there, no file, or not what the training runs"
    assert read("<string>", texts={"<string>": packed})["nest"][0] == [[1, 7, False, "range(7)"]]
    (tmp_path / "train.py").write_text(text)
    assert "lacks" not in read(tmp_path / "train.py")
    assert not worker.answer(b'{"id": 5, "kind": "read", "place": {"chain": 3}}').ok
