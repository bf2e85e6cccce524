"""Every training people have: the same result alone, paused, and unloaded; each case is a row of results.md."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
from pathlib import Path

import pytest
from cases import CASES, COLUMNS, GUESSED, Case
from harness import Training

pytestmark = pytest.mark.timeout(1500)


def note(case: Case, row: dict[str, bool | str]) -> None:
    """Kept where CARBONTUI_TABLE says; table.py makes results.md of it."""
    folder = os.environ.get("CARBONTUI_TABLE")
    if folder:
        # what it is installed as: a table is made of several environments
        installed = importlib.metadata.packages_distributions()
        versions = {installed[name][0]: importlib.metadata.version(installed[name][0]) for name in case.needs}
        told = {"case": case.name, "versions": versions, **row}
        (Path(folder) / f"{CASES.index(case):02}.json").write_text(json.dumps(told))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_training_is_the_same_however_it_is_disturbed(case, tmp_path, hook, supervisor):
    for package in case.needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed (the extra `frameworks`)")

    def training(name: str, *more: str) -> Training:
        made = Training(tmp_path / name, hook, supervisor, case.script, *case.args, *more, ranks=case.ranks)
        made.torchrun = case.torchrun
        return made

    row: dict[str, bool | str] = {}
    alone = training("alone").alone()
    assert alone.code == 0, alone.out
    through, held = training("paused").paused()
    assert through.code == 0, through.out
    obs = supervisor.last()
    row["steps"] = obs.start_step + obs.step == case.steps
    guessed = obs.total is None and obs.guess is not None and obs.guess[0] == case.steps
    silent = obs.total is None and obs.guess is None
    row["total"] = case.total if case.total and silent else GUESSED if guessed else obs.total == case.steps
    row["pause"] = len(held) == 1 and 0 < max(held) <= case.steps
    row["identical"] = through.weights == alone.weights != []
    row["unload"] = row["resume"] = case.unload
    codes = [through.code]
    if not case.unload:
        whole = training("whole", *case.unload_args).alone() if case.unload_args else alone
        left = training("left", *case.unload_args)
        if case.ranks > 1:
            code, last = left.unloaded(case.leave_at[0])
            lives = [code, last.code]
        else:
            every = list(left.lives(*case.leave_at))
            lives, last = [life.code for life in every], every[-1]
        codes += lives
        row["unload"] = lives == [0] * (len(case.leave_at) + 1)
        row["resume"] = last.weights == whole.weights != [] and last.steps[:1] == whole.steps[:1]
    row["exit"] = set(codes) == {0}
    assert set(row) == set(COLUMNS)
    note(case, row)
    assert not [column for column in COLUMNS if row[column] is False], row
