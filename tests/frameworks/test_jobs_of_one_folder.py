"""Several jobs started in one folder and unloaded together: each goes on from its own checkpoint, and nothing stays."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
from pathlib import Path

import pytest
from harness import LONG_S, Outcome, Training

from carbontui.job.keeper import resume
from carbontui.system import proc

SEEDS, CYCLES = 4, int(os.environ.get("CARBONTUI_CYCLES", "2"))
"""Of unload and resume; 20 by hand for a release."""
NEEDS = {"kit": "torch", "transformers": "transformers", "lightning": "lightning"}


@pytest.mark.parametrize("kind", NEEDS)
@pytest.mark.timeout(3600)
def test_jobs_of_one_folder_each_end_with_the_weights_they_have_alone(kind, tmp_path, hook, supervisor):
    if importlib.util.find_spec(NEEDS[kind]) is None:
        pytest.skip(f"{NEEDS[kind]} is not installed (the extra `frameworks`)")
    script, steps = Path(__file__).with_name("seeds.py"), 7 * CYCLES + 30
    alone, together = [], []
    for seed in range(SEEDS):
        alone.append(Training(tmp_path / "alone", hook, supervisor, script, kind, seed, steps).alone())
        one = Training(tmp_path / "together", hook, supervisor, script, kind, seed, steps)
        one.job = f"job{seed}"
        one.marker = tmp_path / "jobs" / one.job / "resume.json"
        one.marker.parent.mkdir(parents=True)
        keeper = {"host": socket.gethostname(), "pids": {"keeper": [os.getpid(), proc.start_time(os.getpid())]}}
        one.marker.with_name("job.json").write_text(json.dumps(keeper))
        together.append(one)
    assert all(one.steps == [steps] for one in alone), alone[0].out
    before = sorted(os.listdir(tmp_path / "alone"))
    nobody = tmp_path / "nobody.sock"
    for cycle in range(CYCLES + 1):
        leave = (5 if cycle % 2 else 9) if cycle < CYCLES else 0
        step = sum(9 if earlier % 2 == 0 else 5 for earlier in range(cycle))
        lives = [one.start(leave, resume=cycle > 0, step=step, socket=nobody) for one in together]
        ends = [Outcome(life.communicate(timeout=LONG_S)[0], life.returncode) for life in lives]
        assert [one.code for one in ends] == [0] * SEEDS, ends[0].out
        for one in together:
            assert one.marker.exists() == bool(leave), ends[0].out
            one.marker.unlink(missing_ok=True)
    assert [one.steps for one in ends] == [one.steps for one in alone], ends[0].out
    assert [one.weights for one in ends] == [one.weights for one in alone]
    for one in together:
        assert (tmp_path / "together" / ".carbontui" / one.job).exists() or list(
            tmp_path.rglob(f".carbontui/{one.job}")
        )
        resume.clear(str(one.marker), one.job, {"code": 0, "unloaded": False, "stopped": False})
    assert not list(tmp_path.rglob(".carbontui")) and not list(tmp_path.rglob("*.part"))
    assert sorted(set(os.listdir(tmp_path / "together")) - {"run.pt"}) == before
