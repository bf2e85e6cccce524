"""A total that nobody told is found: in the loops around a step, passes over loaders, bars, schedules, settings."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from later import IN_PROCESS, needs
from read_here import Both, read

from carbontui import protocol
from carbontui.client.detection import places, report, settings, sight, stated
from carbontui.client.detection.stated import Stage
from carbontui.job.worker import reading, source, values
from carbontui.job.worker.model import WorkModel
from carbontui.job.worker.model import staged as staged_by
from carbontui.job.worker.work import TotalClaim, fold, reached

pytestmark = [IN_PROCESS]

CODE = TotalClaim("code", 400.0, "range(epochs) x a pass", 395.0, 405.0, sure=True)
BAR = TotalClaim("bar", 401.0, "tqdm(total=)", 50.0)
NAME = TotalClaim("name", 64.0, "args.max_steps", 50.0)


def test_two_sources_that_agree_are_enough_to_plan_with():
    assert fold(50, [BAR]).sure is False and fold(50, [BAR]).high is None
    both = fold(50, [BAR, TotalClaim("schedule", 400.0, "OneCycleLR(total_steps=)", 50.0)])
    assert both.sure and both.source == "tqdm(total=) and OneCycleLR(total_steps=)"
    assert both.low <= 400 <= both.likely <= both.high <= 410
    assert not fold(50, [BAR, BAR]).sure, "one source twice is one source"


def test_what_the_code_says_is_believed_before_a_name():
    found = fold(50, [CODE, NAME])
    assert (found.likely, found.low, found.high, found.sure) == (400, 395, 405, True)


def test_what_was_passed_is_no_guess_any_more():
    assert fold(66, [NAME]) is None
    assert fold(404, [CODE]).likely == 404 and fold(406, [CODE]) is None
    assert fold(50, [TotalClaim("name", 2.0**60, "num_epochs", 1.0)]) is None, "the protocol would refuse it"


def test_an_upper_bound_has_the_present_step_as_its_lower_end():
    found = fold(70, [TotalClaim("code", 400.0, "range(epochs) x a pass", 70.0, at_most=True, sure=True)])
    assert (found.low, found.high, found.at_most) == (70, 400, True)


def staged(stages, done, times, text):
    return staged_by(msgspec.convert(stated.last_of(stages, 1), protocol.FrameworkStage), done, times, text)


A, B = Stage((1,), 0, 100, ended=100), Stage((1,), 100, 100, number=2)


TRIALS = [Stage((1,), 40 * n, 40, number=n + 1, ended=40 * (n + 1), times=4) for n in range(4)]
SECOND, THIRD, FOURTH = (one._replace(ended=None) for one in TRIALS[1:])


@pytest.mark.parametrize(
    ("stages", "likely", "low", "high", "at_most"),
    [
        ([TRIALS[0], SECOND], 160, 50, None, False),
        ([*TRIALS[:2], THIRD], 160, 158, 162, False),
        ([*TRIALS[:3], FOURTH], 160, 158, 162, False),
        ([*TRIALS], 160, 160, 160, False),
        ([TRIALS[0]._replace(ended=30), TRIALS[1], THIRD], 157, 85, None, False),
        ([*TRIALS[:2], THIRD._replace(times=None)], 120, 85, None, False),
        ([TRIALS[0], TRIALS[1]._replace(ended=60), THIRD._replace(until="pruning")], 160, 85, 160, True),
    ],
    ids=["the second may be longer", "two alike", "the last", "all over", "unlike", "no number", "pruned"],
)
def test_a_sweep_is_known_once_two_trials_were_alike(stages, likely, low, high, at_most):
    done = stages[-1].ended or {80: 85, 120: 130}.get(stages[-1].began, 50)
    claim = staged(stages, done, 1, "")
    assert round(claim.steps) == likely and claim.at_most is at_most
    found = fold(done, [claim])
    assert (found.low, found.high, found.sure) == (max(low, done), high, high is not None), found


@pytest.mark.parametrize(
    ("stages", "times", "likely", "low", "high", "at_most", "known"),
    [
        ([A._replace(ended=None)], 1, 100, 100, 100, False, True),
        ([A._replace(ended=None, until="EarlyStopping")], 1, 100, 50, 100, True, False),
        ([A._replace(ended=50, until="EarlyStopping")], 1, 50, 50, 50, False, True),
        ([A._replace(ended=None)], 5, 500, 100, None, False, False),  # the next may be of another length
        ([A._replace(ended=50, until="EarlyStopping")], 5, 450, 50, 450, True, False),
        ([A._replace(ended=None)], None, 100, 100, None, False, False),
        ([A._replace(ended=None, until="EarlyStopping")], None, 100, 50, None, False, False),
        ([A._replace(ended=50), B._replace(began=50)], 2, 150, 150, 150, False, True),
        ([A._replace(ended=50), B._replace(began=50)], 4, 300, 248, 353, False, False),
        ([A._replace(ended=50), B._replace(began=50)], 1, 150, 150, None, False, False),
        ([Stage((2,), 0, 30, ended=30), A._replace(began=30, ended=None)], 1, 130, 130, 130, False, True),
    ],
)
def test_the_stages_of_a_framework_are_folded(stages, times, likely, low, high, at_most, known):
    found = fold(50, [staged(stages, 50, times, "range(5)")])
    assert (found.likely, found.low, found.high, found.at_most, found.known) == (likely, low, high, at_most, known)
    assert found.sure is (high is not None)


def test_a_stage_without_an_end_says_nothing():
    assert staged([Stage((1,), 0, None)], 50, 1, "") is None


def chains_of(script, tmp_path, monkeypatch):
    """Where each call of step() in this script was made."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    monkeypatch.setattr(sight, "STARTED", 1e12)
    monkeypatch.setattr(sight, "known_files", {})
    monkeypatch.setattr(places, "OURS", "/nowhere")
    seen = []
    space = {"__name__": "__main__", "step": lambda: seen.append(places.chain()[1:])}
    exec(compile(path.read_text(), str(path), "exec"), space)
    return [tuple(place for place in one if place.code.co_filename == str(path)) for one in seen]


def nest_of(script, tmp_path, monkeypatch):
    """The loops around the first call of step() in this script."""
    return read(chains_of(script, tmp_path, monkeypatch)[0])


def behind(chain, **kinds):
    """How many statements train behind the loops around a place."""
    found = []

    def steps_of(ahead, reader):
        found.extend(ahead)
        return

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "steps_of", steps_of)
        read(chain, **kinds)
    return len(found)


FOLDS = """class KFold:
    def __init__(self, n_splits): self.n_splits = n_splits
    def split(self, x): return iter([x] * self.n_splits)
"""
PERMUTED = """class Order(list):
    def split(self, n): return [self[i:i + n] for i in range(0, len(self), n)]
    def __getitem__(self, at): return self if at is self else list.__getitem__(self, at)
def randperm(n): return Order(range(n))
"""


def whole(script, tmp_path, monkeypatch):
    found = nest_of(script, tmp_path, monkeypatch)
    times = reached(found, len(found.loops))
    return times and round(times / found.share, 6)


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        ("for epoch in range(1, 7):\n    for i in range(0, 100, 10):\n        step()", 60),
        ("n = 0\nfor _ in iter(int, 1):\n    step()\n    n += 1\n    if n >= 30: break", None),
        ("def main(n, k=4):\n    for _ in range(n * k):\n        step()\nmain(n=5)", 20),
        ("class T:\n    def __init__(self, n): self.n = n\n    def go(self):\n"
         "        for _ in range(self.n): step()\nT(9).go()", 9),
        ("def one():\n    step()\n[one() for _ in range(8)]", 8),
        (FOLDS + "def main():\n    folds = KFold(2)\n    for i, fold in enumerate(folds.split(9)): step()\nmain()", 2),
        (FOLDS + "folds = KFold(n_splits=2)\nfor fold in folds.split(9): step()", 2),
        ("def main():\n    done = 0\n    while done < 25:\n        step()\n        done += 1\nmain()", 25),
        ("def main():\n    done = 0\n    for _ in range(9):\n        for _ in range(9):\n            step()\n"
         "            done += 1\n            if done == 12: return\nmain()", 12),
        ("def main(flag=False):\n    for _ in range(9):\n        step()\n        if flag: break\nmain()", 9),
        ("def fit(n):\n    state = {'seen': 2, 'k': 0}\n    while state['seen'] < n:\n        step()\n"
         "        state['seen'] += 1\ndef main(n=9):\n    fit(n)\nmain()", 7),
        ("import itertools\nfor a, b in itertools.product([1, 2, 3], (4, 5)):\n    step()", 6),
        ("def main(n=30):\n    seen = 0\n    while True:\n        step()\n        seen += 4\n"
         "        done = seen >= n\n        if done: break\nmain()", 8),
        ("def main(to):\n    done = 0\n    while not to or done < to:\n        step()\n        done += 1\nmain(7)", 7),
        ("def main(n):\n    epoch = 0\n    while True:\n        step()\n        if epoch + 1 >= n: break\n"
         "        epoch += 1\nmain(6)", 6),
        ("def two(): return 3, 4\ndef main():\n    a, b = two()\n    for _ in range(b): step()\nmain()", 4),
        ("class C:\n    k = 2\n    def __init__(self, n): self.n = n\n    def both(self): return self.n * self.k\n"
         "def main(c):\n    for _ in range(c.both()): step()\nmain(C(5))", 10),
        ("def parts(n):\n    for i in range(0, n, 8): yield i\ndef main():\n    for e in range(2):\n"
         "        for i in parts(32): step()\nmain()", 8),
        ("class P:\n    def __init__(self, n): self.n, self.reporter = n, 0\n    def roll(self):\n"
         "        for _ in range(self.n): self.reporter += 2\n    def learn(self, most):\n"
         "        while self.reporter < most:\n            self.roll()\n            step()\nP(5).learn(55)", 6),
        ("def main():\n    start = 1\n    if len(''): start += 1\n    for i in range(start, 9):\n"
         "        if i < 8: step()\nmain()", 7),
        ("import itertools\nfor e in range(3):\n    n = len(str(e)) + 4\n    for t in itertools.count():\n"
         "        step()\n        if t >= n: break", None),
        ("def main():\n    going = True\n    while going:\n        step()\n        going = False\nmain()", None),
        ("x = 1; [int() for _ in range(3)]\nfor e in range(4):\n    for i in range(2): int(); step()", 8),
        ("def main(n):\n    for _ in range(n): step()\nx = 1; main(7); y = 2\n", 7),
        ("def fit(a, b, n):\n    for _ in range(n): step()\ndef main():\n    ab = 1, 2\n    fit(*ab, 6)\nmain()", 6),
        ("def parts(n):\n    for i in range(n): yield i\ndef epoch(over):\n    for i, x in enumerate(over):\n"
         "        step()\nfor _ in range(4): epoch(parts(5))", 20),
        (PERMUTED + "for e in range(3):\n    for k in randperm(20).split(8): step()", 9),
        (PERMUTED + "def main(n=20):\n    order = randperm(n)\n    for k in order[order].split(8): step()\nmain()", 3),
        ("def main():\n    n = 0\n    for i in range(40):\n        n += 1\n        if n % 5 == 0: continue\n"
         "        step()\nmain()", 32),
        ("for i in range(40):\n    if i in (3, 4, 99):\n        continue\n    step()", 38),
        ("class T:\n    k = 0\n    def go(self):\n        for i in range(40):\n            self.k += 1\n"
         "            if self.k % 4 != 0: step()\nT().go()", 30),
        ("from itertools import product\ngrid = {'a': [1, 2, 3], 'b': [4, 5]}\n"
         "for _ in product(*grid.values()): step()", 6),
        ("from itertools import count\ndef main(n):\n    for i in count(1):\n        step()\n"
         "        if i >= n: break\nmain(9)", 9),
        ("def make(cfg):\n    def go():\n        for _ in range(cfg['n']): step()\n    return go\nmake({'n': 7})()", 7),
        ("def parts(x, n): return [x[i:i + n] for i in range(0, len(x), n)]\ndef main(x):\n"
         "    for part in parts(x, 8): step()\nmain([str(i) for i in range(20)])", 3),
        ("for i in range(4):\n    for k in range(9):\n        step()\n        break", 4),
        ("from itertools import cycle, islice\nfor x in islice(cycle((1, 2)), 9): step()", 9),
    ],
)  # fmt: skip
def test_the_loops_around_a_step_say_how_often_it_is_made(script, steps, tmp_path, monkeypatch):
    assert whole(script, tmp_path, monkeypatch) == steps


FLAGS = """
class Stopper:
    def __init__(self): self.stop, self.bad = False, 0
    def update(self, loss): self.stop = loss > 1; self.bad += 1
class Over(Exception): pass
class Fit:
    quiet = False
    def __init__(self): self.stop, self.reporter = False, []
    def save(self): self.stop = True
    def go(self, stopper, flag=False, stop=False):
        try:
            for _ in range(9):
                step()
                {body}
        except Over: pass
Fit().go(Stopper())
"""


@pytest.mark.parametrize(
    ("body", "at_most"),
    [
        ("if sum([1]) > len(str(flag)): break", True),
        ("if self.stop: break", True),
        ("if stopper.stop: break", True),
        ("if stop: break\n                if id(self) < 9: stop = True", True),
        ("try:\n                    step()\n                    break\n                except ValueError: pass", True),
        ("if len(self.reporter) > 3: break\n                self.reporter.append(1)", True),
        ("if stopper.bad >= 3: break", True),
        ("stopper.far = _\n                if stopper.far > 99: break", True),
        ("if flag: raise Over", True),
        ("if _ >= 3 and sum([_]) > 9: break", True),
        ("if _ >= 3 and not flag: break", False),
        ("if sum([_]) < 99: pass\n                else: break", True),
        ("if flag: break\n                elif sum([_]) > 99: break", True),
        ("if sum([_]) > 9: exit()", True),
        ("if sum([_]) > 99: exit(1)", False),
        ("if flag: break", False),
        ("if self.quiet: break", False),
        ("try: pass\n                except ValueError: break", False),
    ],
)
def test_early_stopping_makes_it_an_upper_bound_and_an_option_that_is_off_does_not(
    body, at_most, tmp_path, monkeypatch
):
    assert nest_of(FLAGS.format(body=body), tmp_path, monkeypatch).loops[0].at_most is at_most


def test_epochs_without_progress_are_not_taken_for_a_limit(tmp_path, monkeypatch):
    script = """
        def main(patience=3):
            bad = 0
            for epoch in range(20):
                step()
                if epoch % 5 == 4:
                    bad = 0
                else:
                    bad += 1
                if bad >= patience + 9:
                    break
        main()
    """
    found = nest_of(script, tmp_path, monkeypatch)
    assert reached(found, 1) == 20 and found.loops[0].at_most


def test_a_counter_of_rounds_that_are_passed_by_bounds_the_steps(tmp_path, monkeypatch):
    script = (
        "def main(n, e=0):\n    while e < n:\n        e += 1\n        if e % 3 == 0: continue\n        step()\nmain(21)"
    )
    (bound,) = nest_of(script, tmp_path, monkeypatch).bounds
    assert bound.times == 14


def test_a_step_on_a_condition_makes_the_loop_an_upper_bound(tmp_path, monkeypatch):
    script = "for i in range(100):\n    if len(str(i)) > 1 and (lambda: i % 4)() == 0:\n        step()"
    assert nest_of(script, tmp_path, monkeypatch).sometimes
    (skips := tmp_path / "skips").mkdir()
    script = "for i in range(100):\n    if (lambda: i % 4 == 0)(): continue\n    step()"
    assert nest_of(script, skips, monkeypatch).sometimes
    every = nest_of("for i in range(100):\n    if i > 19 and i % 4 == 0:\n        step()", tmp_path / "..", monkeypatch)
    assert (every.sometimes, reached(every, 1)) == (False, 20)


@pytest.mark.parametrize(
    "loop",
    [
        "def one():\n    step()\n[one() for fold in range(8) if fold in KEEP]",
        "for fold in range(8):\n    if fold in KEEP:\n        step()",
        "class C: kept = KEEP\ndef one():\n    step()\n[one() for fold in range(8) if fold in C.kept]",
        "for fold in range(8):\n    if fold not in KEEP:\n        continue\n    step()",
    ],
)
def test_folds_that_are_chosen_from_a_list_are_counted(loop, tmp_path, monkeypatch):
    found = nest_of("KEEP = [0, 2, 3]\n" + loop, tmp_path, monkeypatch)
    assert (reached(found, 1), found.sometimes, found.loops[0].at_most) == (3, False, False)


def test_steps_of_an_optimizer_that_may_take_turns_promise_no_limit(tmp_path, monkeypatch):
    script = "for _ in range(30):\n    for _ in range(4): step()\n    for _ in range(8): step()"
    chains = chains_of(script, tmp_path, monkeypatch)
    monkeypatch.setattr(report, "watch", watch := places.Watch())
    both = Both()
    watch.observe = 3, chains[2], {}, False
    assert both.answered(3).guess_range[1] is not None
    watch.observe = 12, chains[9], {}, True  # the last look, until the first optimizer's steps count again
    for steps in (9, 12):
        _, high, _, sure = both.answered(steps).guess_range
        assert (high, sure) == (None, False)


def test_another_supervisor_goes_on_with_what_the_one_before_it_knew(tmp_path, monkeypatch):
    chains = chains_of("for _ in range(30): step()\nfor _ in range(8): step()", tmp_path, monkeypatch)
    monkeypatch.setattr(report, "watch", watch := places.Watch())
    both = Both()
    for steps, total in ((10, 30), (33, 38)):
        watch.observe = steps, chains[steps - 1], {}, False
        assert both.answered(steps).guess[0] == total
    known, both.work = both.total(34), WorkModel()
    both.reporter.anew()
    assert both.total(34) == known, "before anything has been read to it"
    assert both.answered(35).guess[0] == 38, "the second loop began at step 30, which is said nowhere any more"


def test_a_counter_of_the_script_says_where_a_resumed_training_is(tmp_path, monkeypatch):
    script = "done = 150\nwhile True:\n    step()\n    done += 1\n    if done > 160: break"
    (counter,) = nest_of(script, tmp_path, monkeypatch).counters
    assert (counter.name, counter.end, counter.by) == ("done", 160, 1)


@pytest.mark.parametrize(
    ("body", "last"),
    [
        ("while done < 300:\n    step()\n    done += 1", 299),
        ("while done < 300:\n    step(); done += 1", 299),
        ("while done < 300:\n    done += 1\n    step()", 300),
        ("while True:\n    step()\n    if done >= 300: break\n    done += 1", 300),
    ],
)
def test_a_loop_until_a_counter_is_full_has_just_that_many_steps(body, last, tmp_path, monkeypatch):
    (counter,) = nest_of("done = 0\n" + body, tmp_path, monkeypatch).counters
    assert counter.end == last


@pytest.mark.parametrize(
    ("last", "following"),
    [
        ("train(3)", 0),
        ("train(3)\ntrain(4)", 1),
        ("x = 1; train(3); y = 2", 0),
        ("if __name__:\n    x = 1; train(3)", 0),
        ("train(3); train(4)", 1),
        ("train(3)\nfinetune = max\nx = 0 and finetune(4)", 1),
        ("def close(n): train(n)\nclose(3)\nx = 0 and os.close(4)", 0),
        ("train(3)\ndef again(): x.backward()\nfor _ in range(0): lbfgs.step(again)", 1),
        ("try:\n    train(3)\nfinally:\n    train(4)", 1),
        ("match 1:\n    case 1:\n        train(3)\n        train(4)", 1),
        ("all([train(3), train(4)])", 1),
        ("def also(a): train(4)\nalso(train(3))", 1),
        ("def same(a): return a\nsame(train(3))", 0),
        ("import functools\nlater = functools.partial(train, 4)\ntrain(3)\nlater()", 1),
        ("TABLE = {1: train}\nTABLE[1](3)\nTABLE[int('1')](4)", 1),
        (
            "class A:\n    def fit(self): train(3)\n    def __call__(self, name): getattr(self, name)()\n"
            "    def go(self):\n        train(3)\n        self('fit')\nA().go()",
            1,
        ),
        ("from beside import calibrate, evaluate\ntrain(3)\ncalibrate(1)", 1),
        ("from beside import calibrate, evaluate\ntrain(3)\nevaluate(1)", 0),
        ("from beside import Runner\nrunner = Runner()\ntrain(3)\nrunner.run()", 1),
        ("from beside import Runner\nlogger = Runner()\ntrain(3)\nlogger.info('done')\nRunner(logger)", 0),
    ],
)
def test_training_that_follows_is_noticed(last, following, tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text(
        "class Runner:\n    def __init__(self, *_): pass\n    run = info = __init__\ncalibrate = evaluate = id\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    script = "import os\ndef train(n):\n    for _ in range(n):\n        step()\n        x = 0 and x.backward()\n"
    chain = chains_of(script + last, tmp_path, monkeypatch)[0]
    assert behind(chain) == following


ROUNDS = """
import functools
def phase(n):
    for _ in range(n):
        step()
        x = 0 and x.backward(optimizer.step())
def epoch(n, training=True):
    for _ in range(n):
        step()
        if training and 0: x.backward(optimizer.step())
def validate(n):
    for _ in range(n): x = 0 and x.backward()
def again(n):
    def around(f):
        def inner(): return [f() for _ in range(n)]
        return inner
    return around
@again(4)
def run(): phase(2)
"""


@pytest.mark.parametrize(
    ("script", "more"),
    [
        ("for _ in range(4):\n    phase(2)\n    phase(1)", True),
        (
            "for _ in range(4):\n    if _ < 9: phase(2)\n    for k in range(3): x = 0 and x.backward(opt.step())",
            True,
        ),
        ("for _ in range(4):\n    epoch(2)\n    epoch(1, training=False)", False),
        ("for _ in range(4):\n    phase(2)\n    validate(1)", False),
        ("for name in 'ab': {'a': phase, 'b': phase}[name](2)", True),
        ("list(map(phase, range(1, 3)))", True),
        ("min((1, 2), key=phase) if phase(1) else min((1, 2), key=lambda n: phase(n) or n)", False),
        ("run()", True),
        (
            "class Meta:\n    def __call__(self, *given): return phase(*given)\nm = Meta()\nm(*[int(n) for n in '3'])",
            False,
        ),
        ("phase(3)", False),
    ],
)
def test_phases_that_take_turns_and_calls_by_another_make_it_no_limit(script, more, tmp_path, monkeypatch):
    assert nest_of(ROUNDS + script, tmp_path, monkeypatch).more is more


@pytest.mark.parametrize(
    ("inside", "at_most"),
    [
        ("with suppress(Over): {}", True),
        ("try: {}\n        except module.Diverged as error: print(error)", True),
        ("try: {}\n        except module.Diverged as error: raise", False),
        ("try: {}\n        except KeyboardInterrupt: print('saved')", False),
        ("try: {}\n        except RuntimeError as error: print(error)", False),
        ("for lr in (1, 2):\n            try: {}\n            except RuntimeError: continue", True),
        (
            "for _ in (1, 2):\n            try: int()\n            except StopIteration: break\n            fit()",
            True,
        ),
        ("for _ in range(9): step(); helper()", True),
    ],
)
def test_what_is_caught_and_who_exits_make_it_an_upper_bound(inside, at_most, tmp_path, monkeypatch):
    script = (
        "import module\nfrom contextlib import suppress\nclass Over(Exception): pass\n"
        "def helper():\n    if not step: finish()\ndef finish(): exit()\n"
        f"def go():\n    if step:\n        {inside.format('fit()')}\n"
        "def fit():\n    for _ in range(9): step()\ngo()"
    )
    (tmp_path / "module.py").write_text("class Diverged(Exception): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "module", raising=False)
    assert any(one.at_most for one in nest_of(script, tmp_path, monkeypatch).loops) is at_most


MOVED = """
class Grows:
    def after(self, trainer): trainer.most += 0; trainer.until = trainer.until
class Trainer:
    def __init__(self): self.bs, self.until, self.most = 2, 9, 9; self.make()
    def make(self): self.loader = Loader([1] * self.bs)
    def lazily(self):
        if self.late is None: self.late = Loader([1])
    def grow(self, epoch):
        if epoch == 5: self.make()
    def fit(self, late=None):
        self.late, done = None, 0
        self.lazily()
        while done < self.until:
            for x in self.WHICH: pass
            self.grow(done); Grows().after(self)
            done += 1
Trainer().fit()
"""


@pytest.mark.parametrize(("which", "replaced"), [("loader", True), ("late", False)])
def test_a_loader_made_anew_on_a_condition_and_an_end_that_moves(which, replaced, tmp_path, monkeypatch):
    found = nest_of(OWN_LOADERS.partition("class Trainer")[0] + MOVED.replace("WHICH", which), tmp_path, monkeypatch)
    assert found.replaced is replaced and found.bounds == () and found.loops[0].at_most


@pytest.mark.parametrize(("set_name", "changes"), [("accum", True), ("other", False)])
def test_gradients_gathered_over_a_number_that_changes(set_name, changes, tmp_path, monkeypatch):
    script = f"accum = 1\nfor e in range(9):\n    {set_name} = {{0: 1, 6: 4}}.get(e, accum)\n    for i in range(8):\n"
    script += "        if (i + 1) % accum == 0: step()"
    assert [one.at_most for one in nest_of(script, tmp_path, monkeypatch).loops] == [changes, changes]


@pytest.mark.parametrize(("last", "following"), [("", 0), ("model.fit(2)", 1), ("x = step", 0), ("more()", 1)])
def test_a_frameworks_training_that_follows_is_noticed(last, following, tmp_path, monkeypatch):
    script = (
        f"fit = step\ndef more(): model.fit(3)\nif True:\n    fit()\n    x = 1\nif fit is None:\n    {last or 'pass'}"
    )
    (chain,) = chains_of(script, tmp_path, monkeypatch)
    assert (behind(chain, fits=True), behind(chain)) == (following, 0)


def test_a_place_has_one_key_however_often_it_is_run(tmp_path, monkeypatch):
    """The interpreter's offset in the code moves once it has specialised a call."""
    script = "def one(): step()\ndef main():\n    for _ in range(60): one(); one()\nmain()"
    chains = chains_of(script, tmp_path, monkeypatch)
    assert len(chains) == 120 and len({places.key_of(one) for one in chains}) == 2


def test_a_shared_line_says_nothing_where_columns_are_not_known(tmp_path, monkeypatch):
    (chain,) = chains_of("x = 1; step()", tmp_path, monkeypatch)
    assert read(chain).key != "[]"
    monkeypatch.setattr(sight, "column_of", lambda code, instruction: None)
    assert read(chain).key == "[]"


def test_settings_are_remembered_without_keeping_them_alive(monkeypatch):
    monkeypatch.setattr(settings, "kept", [])

    class Args:
        pass

    one = Args()
    one.trainer = {"max_epochs": 7}
    one.lr = 0.1
    settings.keep(one)
    settings.keep({"epochs": 9, "name": "x"})
    saw = values.Sighted(settings=tuple(settings.leaves()))
    assert saw.setting(("trainer", "max_epochs")) == saw.setting(("max_epochs",)) == 7
    assert saw.setting(("epochs",)) == 9 and saw.setting(("name",)) is values.UNKNOWN
    del one
    assert values.Sighted(settings=tuple(settings.leaves())).setting(("max_epochs",)) is values.UNKNOWN


@needs("omegaconf")
def test_a_resolver_of_the_script_is_not_run(launch, finish):
    script = """
        from omegaconf import OmegaConf
        from carbontui.client.detection import settings
        OmegaConf.register_new_resolver("drawn", lambda: print("drawn"))
        given = OmegaConf.create({"a": 2, "steps": "${drawn:}"})
        print(settings.leaves())
    """
    assert finish(launch(script)) == "[(('a',), 2)]\n"


def test_a_bar_that_is_over_stands_until_a_step_is_made_without_it(monkeypatch):
    task = SimpleNamespace(completed=50, total=200)
    display = SimpleNamespace(_tasks=(tasks := {0: task}))
    monkeypatch.setattr(places, "displays", [lambda: display])
    monkeypatch.setattr(report, "watch", watch := places.Watch())
    monkeypatch.setattr(stated, "watch", watch)
    watch.observe = 50, (), {}, False
    both = Both()
    assert both.answered(50).guess[0] == 200
    tasks.clear()  # an evaluation, or the end
    assert [both.total(60).guess[0] for _ in range(3)] == [200, 200, 200]
    assert both.total(61).guess is None
    tasks[0], task.completed = task, 200
    assert both.total(200).guess[0] == 200
    tasks.clear()
    assert both.total(200).guess[0] == 200 and both.total(204).guess is None


LOADED = """
import time, torch
from torch.utils.data import DataLoader
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def main(epochs):
    train, valid = DataLoader(torch.ones(40, 2), 2), DataLoader(torch.ones(9, 2), 1)
    for epoch in range(epochs):
        for batch in train:
            layer(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.02)
        for batch in valid:
            layer(batch)
main(5)
"""


@needs("torch")
def test_epochs_of_a_loader_inside_a_function_are_found_and_sure_after_one(supervisor, launch, finish):
    finish(launch(LOADED))
    last = supervisor.last()
    assert last.guess[0] == 100 and last.guess_range[3] is True
    assert last.guess_range[0] <= 100 <= last.guess_range[1] <= 110
    assert last.total is None and supervisor.ranks[0].bad == []
    assert last.epoch == 4, "passes over the training's data are epochs where the script reports none"


BALANCED = """
import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset
class Balanced(Sampler):
    def __iter__(self):
        first, second = torch.randperm(80), torch.randperm(80)
        for at in range(0, 80, 2):
            yield [*(2 * first[at : at + 2]).tolist(), *(2 * second[at : at + 2] + 1).tolist()]
    def __len__(self):
        return sum(1 for _ in self)
torch.manual_seed(0)
layer = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
for epoch in range(3):
    for rows, kinds in DataLoader(TensorDataset(torch.randn(160, 8), torch.arange(160) % 2), batch_sampler=Balanced()):
        torch.nn.functional.cross_entropy(layer(rows), kinds).backward()
        optimizer.step()
        optimizer.zero_grad()
print(layer.weight.sum().item().hex())
"""


@needs("torch")
def test_a_sampler_that_draws_to_tell_its_length_is_not_asked(launch, finish):
    alone = subprocess.run([sys.executable, "-c", BALANCED], capture_output=True, text=True, check=True)
    assert finish(launch(BALANCED)) == alone.stdout


OWN = """
import time, torch
from torch.utils.data import DataLoader
asked = 0
class Own(torch.utils.data.Dataset):
    def __len__(self):
        global asked
        asked += 1
        return 80
    def __getitem__(self, index):
        return torch.ones(2)
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def main(epochs):
    loader = DataLoader(Own(), 2, {shuffle})
    for epoch in range(epochs):
        for batch in loader:
            layer(batch).sum().backward()
            optimizer.step()
            time.sleep({pace_s})
main(3)
print(asked)
"""


@needs("torch")
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_length_of_a_scripts_own_data_set_is_what_torch_was_told(shuffle, supervisor, launch, finish):
    quick = OWN.format(shuffle=shuffle, pace_s=0)
    alone = subprocess.run([sys.executable, "-c", quick], capture_output=True, text=True, check=True)
    assert finish(launch(OWN.format(shuffle=shuffle, pace_s=0.05))) == alone.stdout
    assert {one.guess[0] for one in supervisor.ranks[0].obs if one.guess and one.step < 40} == {120}


asked = []


class Spy(dict):
    """Of a script's own class; what it is asked is written down."""

    def ask(self, *args):
        asked.append(args)

    __bool__ = __len__ = __iter__ = __lt__ = __eq__ = __neg__ = __getitem__ = __missing__ = __contains__ = ask
    get = __getattr__ = ask


class Watched:
    """Of which every attribute that is read is written down."""

    def __getattribute__(self, name):
        asked.append(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("made", [Spy, Watched])
@pytest.mark.parametrize(
    "expression",
    ["not it", "it and 2", "it < 2", "it == 2", "[it] == [2]", "2 in it", "-it", "1 if it else 2", "it['a']", "len(it)",
     "list(it)", "max(it, 2)", "it.get('a')", "it.a", "it + 2", "range(it)", "2 < 3 < it"],
)  # fmt: skip
def test_no_method_of_a_scripts_own_class_is_called(expression, made):
    asked.clear()
    (statement,) = (tree := ast.parse(expression)).body
    told = json.dumps(sight.values({"m": {"it": made()}}, frozenset(("it", "a", "get")), 99))
    space = values.Described({path[1]: values.value_of(one) for path, one in json.loads(told) if len(path) == 2})
    values.Reader(values.Sighted()).value(source.Scope(source.File(tree), None, space), statement.value)
    assert asked == []


@needs("torch")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_hostile_objects_are_asked_what_a_plain_run_asks(ranks, launch, finish):
    """36 kinds of loaders, samplers, data sets and batches, beside settings, classes, schedules, optimizers and modules
    that answer by doing something."""
    script = str(Path(__file__).with_name("hostile.py"))
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    command = [sys.executable, *several, script]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    alone = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    outcome = finish(launch(command), timeout_s=200)
    kinds, before = ({line for line in text.splitlines() if line[1:3] == " a"} for text in (outcome, alone.stdout))
    assert len(before) == 36 * ranks and kinds == before


OWN_LOADERS = """
class Loader(list):
    def __iter__(self):
        step()
        return list.__iter__(self)
def fit(loader):
    for epoch in range(2):
        for x in loader: pass
class Trainer:
    def __init__(self, n): self.loader = Loader([1] * n)
    def fit(self):
        for x in self.loader: pass
"""


@pytest.mark.parametrize(
    ("script", "around"),
    [
        ("for n in (1, 3):\n    fit(Loader([1] * n))", 0),
        ("def main(n):\n    data = [1] * n\n    fit(Loader(data))\nfor n, lr in zip([1, 3], 'ab'): main(n)", 0),
        ("for k in range(2):\n    for n in [5, 6]:\n        t = Trainer(n)\n        t.fit()", 1),
        ("loader = Loader([1])\nfor lr in (0.1, 0.2): fit(loader)", None),
        ("for fold in range(3): fit(Loader([1] * fold))", None),
        ("for fold in [0, 1, 2]: fit(Loader([1] * fold))", None),
    ],
)
def test_what_passes_have_their_length_from_is_noticed(script, around, tmp_path, monkeypatch):
    assert nest_of(OWN_LOADERS + script, tmp_path, monkeypatch).varies == around


STAGES = """
import time, torch
from torch.utils.data import DataLoader
def train(layer, loader, epochs):
    layer.train()
    o = torch.optim.SGD(layer.parameters(), lr=0.1)
    for epoch in range(epochs):
        for batch in loader:
            layer(batch).sum().backward()
            o.step()
            time.sleep(0.05)
def main():
    every, few = DataLoader(torch.ones(40, 2), 2), DataLoader(torch.ones(12, 2), 2)
    layer = torch.nn.Linear(2, 2)
    train(layer, every, 3)
    train(layer, few, 5)
main()
"""


@needs("torch")
def test_the_steps_of_a_later_stage_are_counted_from_its_loader(supervisor, launch, finish):
    finish(launch(STAGES))
    first = [one.guess for one in supervisor.ranks[0].obs if 20 < one.step < 60]
    assert first and {steps for steps, _ in first} == {90}
    assert first[0][1] == "range(epochs) x a pass + range(epochs) x loader"


@pytest.mark.parametrize(("told", "found"), [("", (60, None)), ("carbontui.report(total=77)", (None, 77))])
def test_what_the_script_says_is_no_guess(told, found, supervisor, launch, finish):
    loop = "for _ in range(max_iters):\n    time.sleep(0.02)\n    carbontui.step()\n"
    finish(launch(f"import time, carbontui\n{told}\nmax_iters = 60\n{loop}"))
    last = supervisor.last()
    assert (last.guess and last.guess[0], last.total) == found


def test_a_command_given_as_text_has_its_total(launch, finish, supervisor):
    code = "import time, carbontui\nfor epoch in range(4):\n    for i in range(10): carbontui.step(); time.sleep(0.1)"
    finish(launch([sys.executable, "-uc", code, "an argument"]))
    assert supervisor.last().guess[0] == 40


def test_texts_that_may_be_secrets_stay_in_the_training(tmp_path, monkeypatch):
    script = (
        "API_KEY, login = 'sk-1', {'password': ['sk-2'], 'name': 'me'}\ntokens = [1, 2]\nfor i in tokens:\n    step()\n"
    )
    chain = chains_of(script + "# password name\n", tmp_path, monkeypatch)[0]
    sent = json.dumps(sight.sighting(chain, False))
    assert "sk-" not in sent
    assert '"me"' in sent
    assert [one.times for one in read(chain).loops] == [2]


def test_a_sighting_is_no_longer_than_a_line_may_be(tmp_path, monkeypatch):
    noise = "".join(f"# {os.urandom(60).hex()}\n" for _ in range(2000))
    script = "large = [{'a': i, 'b': [str(i)] * 20} for i in range(900)]\nfor i in range(8):\n    step()\n" + noise
    chain = chains_of(script, tmp_path, monkeypatch)[0]
    for lacks in ((), (str(tmp_path / "script.py"),)):
        assert len(json.dumps(sight.sighting(chain, False, lacks))) < 64_000
    assert [one.times for one in read(chain).loops] == [8]
