"""What a shell completes: verbs, zones and the jobs that there are."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def completed(house, words: str) -> list[str]:
    """What bash would be offered for the last word."""
    house.env |= {"_CARBONTUI_COMPLETE": "bash_complete", "COMP_WORDS": f"carbontui {words}"}
    house.env["COMP_CWORD"] = str(len(words.split(" ")))
    try:
        answer = house.cli(check=True).stdout
    finally:
        for name in ("_CARBONTUI_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
            del house.env[name]
    return [line.partition(",")[2] for line in answer.splitlines() if line]


def test_verbs_zones_and_live_jobs_are_completed(house):
    job = house.start()
    assert completed(house, "pa") == ["pause"]
    assert completed(house, "run --zone DK-") == ["DK-DK1", "DK-DK2"]
    assert completed(house, "pause ") == ["t"] == completed(house, "status t")
    job.let_end()
    job.until_over()
    assert completed(house, "pause ") == [] and completed(house, "status ") == ["t"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_takes(house, shell):
    house.env["_CARBONTUI_COMPLETE"] = f"{shell}_source"
    script = house.cli(check=True).stdout
    assert "_CARBONTUI_COMPLETE" in script
    if where := shutil.which(shell):
        done = subprocess.run([where, "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
