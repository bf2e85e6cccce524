"""Trainings that show no step: what is read of real processes, what is judged of it, and when it is said."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from drawn import drawn
from house import until
from later import needs
from states import RUNNING, inputs, job_state, plan_of, rank

from carbontui import protocol
from carbontui.client import inject
from carbontui.client.detection import unseen
from carbontui.client.detection.unseen import Cause
from carbontui.job.supervisor.core.effects import Record, effects
from carbontui.job.supervisor.core.planning import finish
from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.state.job import with_inputs
from carbontui.job.supervisor.shell import watches
from carbontui.job.supervisor.shell.watches import UnseenWatch
from carbontui.system import proc

STAY = "\nprint('ready', flush=True)\nimport time; time.sleep(600)\n"
LAYER = "import torch\nlayer = torch.nn.Linear(2, 2)\ndef grad(): layer(torch.ones(1, 2)).sum().backward()\n"
ACCUMULATION = """
optimizer = torch.optim.Adam(layer.parameters())
for _ in range(50): grad()
"""
RECORDED = """
from carbontui.client import device
device.capturing = lambda: True
grad(); optimizer.step()
"""
MAPPED = """
import mmap, pathlib
library = pathlib.Path("site/jaxlib/libjax.so")
library.parent.mkdir(parents=True, exist_ok=True)
library.write_bytes(bytes(4096))
with library.open("rb") as file:
    held = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
"""
PYTHON = [sys.executable]
CASES = {
    "pythonpath": (["env", "PYTHONPATH=", *PYTHON], ""),
    "isolated": ([*PYTHON, "-I"], ""),
    "no-site": ([*PYTHON, "-S"], ""),
    "no-environment": (["env", "-i", "PATH=/bin", *PYTHON], ""),
    "framework": (PYTHON, MAPPED),
    "no-loop": (PYTHON, ""),
}


@pytest.fixture
def start(tmp_path):
    """Starts a command as a job does, with a script; the process and what is judged of it."""
    hook = inject.build(tmp_path / "hook")
    started = []

    def begin(name, command, script):
        marker = tmp_path / f"{name}.json"
        env = inject.environment(os.environ, hook_dir=hook, socket=tmp_path / "none", job="t", marker=marker)
        path = tmp_path / f"{name}.py"
        path.write_text(script)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([*command, str(path)], env=env, cwd=tmp_path, text=True, **pipes)
        started.append(process)

        def with_allowances():
            found = watches.processes([process.pid, *proc.descendants(process.pid)], Path(f"{marker}.evidence"))
            return unseen.judge(found, str(hook)).code

        return process, with_allowances

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_the_cause_is_read_from_real_processes(start):
    started = {code: start(code, command, script + STAY) for code, (command, script) in CASES.items()}
    for code, (process, with_allowances) in started.items():
        assert process.stdout.readline() == "ready\n", code
        assert with_allowances() == code


@needs("torch")
def test_the_cause_is_read_from_what_is_done_with_torch(start):
    stages = {"preparing": ACCUMULATION, "cuda-graph": RECORDED}
    asked = "print('ready', flush=True); input()\n"
    process, with_allowances = start("stages", PYTHON, LAYER + "".join(stage + asked for stage in stages.values()))
    for code in stages:
        assert process.stdout.readline() == "ready\n"
        assert with_allowances() == code
        process.stdin.write("\n")
        process.stdin.flush()


def test_nothing_is_said_of_a_command_that_is_young_waits_or_steps(tmp_path):
    busy = subprocess.Popen([sys.executable, "-c", "while True: sum(range(1000))"], env={})
    idle = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={})
    seen = UnseenWatch(tmp_path)
    try:
        until(lambda: proc.cpu_s(busy.pid) > 0.1)
        cpu_s, watches.CPU_S = watches.CPU_S, 0.1
        assert seen.observe(busy.pid, watches.AGE_S - 1, 100.0, stepped=False) is None
        assert seen.observe(idle.pid, 60.0, 110.0, stepped=False) is None
        assert seen.observe(busy.pid, 60.0, 120.0, stepped=False).code == "no-environment"
        assert seen.observe(busy.pid, 60.0, 121.0, stepped=True) is None
    finally:
        watches.CPU_S = cpu_s
        for process in (busy, idle):
            process.kill()
            process.communicate()


CAUSE = Cause("isolated", "python -I ignores PYTHONPATH, which brings the hook; run `carbontui hook --install`")


def said(state, seen):
    return control.decide(state, seen)[1]


@pytest.mark.parametrize(
    "fields", [{"work_s": None}, {"zone": None}, {"plan": plan_of()}], ids=["work", "zone", "plan"]
)
def test_the_state_line_says_why_no_step_is_seen_and_takes_it_back_at_the_first(fields):
    zone = fields.pop("zone", "DE")
    state, seen = job_state(**fields), inputs(zone=zone, unseen=CAUSE)
    told = said(state, seen)
    assert (told.state, told.why.code) == ("running", "no_client")
    assert drawn(told) == f"no step seen yet: {CAUSE.text}"
    assert said(state, inputs(zone=zone, ranks=(rank(),))).why.code != "no_client"


def test_a_loop_whose_steps_are_not_seen_says_within_a_minute_what_helps():
    state = job_state(work_s=None)
    assert said(state, inputs(child=replace(RUNNING, age_s=5.0))).why.code == "no_work"
    later = said(state, inputs(child=replace(RUNNING, age_s=45.0)))
    assert later.why.code == "no_client" and "carbontui.step()" in drawn(later)


def test_a_pause_that_nothing_hears_says_why():
    state = job_state()
    state = replace(state, override=replace(state.override, current=protocol.Override("pause", None, None, "ada")))
    told = said(state, inputs(unseen=CAUSE))
    assert told.state == "pausing" and CAUSE.text in drawn(told)


def test_a_training_that_cannot_be_held_is_not_paused_by_a_plan():
    for unresponsive in ({"cannot_hold": "ranks"}, {"captured": True, "quiet_s": 30.0}):
        seen = inputs(ranks=(rank(**unresponsive), rank(rank=1, process="host 8 1")))
        assert finish.why_no_shifting(job_state(), seen).code == "no_client"
    for fine in ({"captured": True}, {"quiet_s": 30.0}):
        assert finish.why_no_shifting(job_state(), inputs(ranks=(rank(**fine),))) is None


def test_a_trial_of_a_sweep_is_named_in_the_journal_where_it_begins():
    before = job_state()
    seen = inputs(ranks=(rank(trial="trial 3 of study", step=90),))
    after = with_inputs(before, seen)
    told = [one for one in effects(before, after, seen, renew=False) if isinstance(one, Record)]
    assert [(one.kind, one.facts) for one in told] == [("trial", {"name": "trial 3 of study", "step": 90})]
    assert with_inputs(after, inputs(ranks=(rank(),))).trial == "trial 3 of study"


def test_why_no_step_is_seen_is_journaled_once_it_is_known():
    state = job_state()
    first = replace(state, decision=said(state, inputs(child=replace(RUNNING, age_s=40.0))))
    known = replace(state, decision=said(state, inputs(unseen=CAUSE)))
    told = [one for one in effects(first, known, inputs(), renew=False) if isinstance(one, Record)]
    assert [drawn(one.facts["text"]) for one in told] == [f"no step seen yet: {CAUSE.text}"]
    assert not [one for one in effects(known, known, inputs(), renew=False) if isinstance(one, Record)]
