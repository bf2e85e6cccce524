"""A job's last hour of events is kept, and what `doctor --bundle` packs of it replays and names nobody."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import replay
from house import SCRIPT, until
from states import CAP, FULL, PAUSE, board, inputs, job_state, plan_of, rank

from carbontui import protocol
from carbontui.job.supervisor.core.advance import Booked, CalibrationSaid, Command, RankChanged, Tick
from carbontui.job.supervisor.core.rules import control
from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.core.state.override import Overrides
from carbontui.job.supervisor.record import events_ring
from carbontui.job.supervisor.record.events_ring import EventsRing
from carbontui.job.supervisor.shell.door import Door, Faults
from carbontui.protocol import statement

RUNS = int(os.environ.get("BUNDLE_RUNS", "2"))
"""Fuzzed runs; 50 by hand."""
VERBS = (("pause",), ("pause", "--for", "2s"), ("resume",), ("boost",), ("boost", "--for", "3s"), ("budget", "2x"))
CANARY = "quokka7ball"


def door_with(ring: EventsRing, **fields) -> Door:
    state = job_state(plan=plan_of(FULL, PAUSE), **fields)
    return Door(state, Faults(print), perform=lambda effect: None, record=ring.add)


def segments(folder: Path) -> list[Path]:
    return sorted((folder / events_ring.FOLDER).glob("*.z"))


def replayed(folder: Path) -> list[replay.Step]:
    return [step for each in segments(folder) for step in replay.steps(events_ring.read(each))]


def test_every_kind_of_event_is_replayed_to_the_same(tmp_path):
    job = door_with(ring := EventsRing(tmp_path, lambda work: work()), last_metrics={"accuracy": float("nan")})
    seen = inputs(boards=(board(),), ranks=(rank(devices=("GPU-a",), guess=(9, "max_iters")),), alive=frozenset("ba"))
    for cmd in (protocol.Cmd(1, "pause", {"for_s": 60.0}), protocol.Cmd(2, "cap", {"value_w": 1e9})):
        job.dispatch(Command(cmd, "ada", seen))
    job.dispatch(Booked(Totals(1.0, float("inf"), None)))
    job.dispatch(CalibrationSaid(CAP, statement("calibration_starts")))
    job.dispatch(RankChanged(seen.ranks[0], seen))
    job.dispatch(Tick(seen))
    ring.flush()
    steps = replayed(tmp_path)
    assert [type(step.event) for step in steps] == [Command, Command, Booked, CalibrationSaid, RankChanged, Tick]
    assert [step.differences for step in steps] == [{}] * 6
    assert steps[-1].event == Tick(seen)


def test_an_event_that_raised_is_kept_as_one_that_raised(tmp_path, monkeypatch):
    job = door_with(ring := EventsRing(tmp_path, lambda work: work()))
    with monkeypatch.context() as patch:
        patch.setattr(control, "decide", lambda *_: 1 / 0)
        job.dispatch(Tick(inputs()))
        ring.flush()
        assert [step.differences for step in replayed(tmp_path)] == [{}]
    (step,) = replayed(tmp_path)
    assert step.differences["effects"][0] is None, "today's code decides"


def test_the_tail_of_the_events_replays_without_their_beginning_and_has_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(events_ring, "SEGMENT_B", 4_000)
    monkeypatch.setattr(events_ring, "KEPT_B", 12_000)
    monkeypatch.setattr(events_ring, "FLUSH_S", 0.0)
    job = door_with(EventsRing(tmp_path, lambda work: work()))
    for n in range(400):
        job.dispatch(Tick(inputs(1_800_000_000.0 + n, boards=(board(power_w=600.0 + n),), ranks=(rank(step=n),))))
        assert sum(path.stat().st_size for path in segments(tmp_path)) < 20_000
    steps = replayed(tmp_path)
    assert len(segments(tmp_path)) > 2 and 20 < len(steps) < 400 and steps[-1].event.inputs.leader.step == 399
    assert not any(step.differences for step in steps)
    last = segments(tmp_path)[0]
    last.write_bytes(last.read_bytes()[:-7])
    assert len(list(replay.steps(events_ring.read(last)))) > 0, "of a file that was cut off the rest is read"


def test_a_disk_that_refuses_the_events_hurts_nothing_and_is_tried_again(tmp_path, monkeypatch):
    folder = tmp_path / "events"
    folder.write_text("in the way")
    monkeypatch.setattr(events_ring, "FLUSH_S", 0.0)
    monkeypatch.setattr(events_ring, "AGAIN_S", 0.0)
    job = door_with(EventsRing(tmp_path, lambda work: work()))
    job.dispatch(Tick(inputs()))
    assert job.state.renewed_mono_s > 0
    folder.unlink()
    job.dispatch(Tick(inputs()))
    job.dispatch(Tick(inputs()))
    assert len(replayed(tmp_path)) >= 1


@pytest.fixture
def bundle(house, tmp_path):
    """The bundle of a real job whose canary was in arguments, environment, output, a provider's URL and the keys."""
    house.env |= {"SECRET_NAME": CANARY, "CARBONTUI_GRID_URLS": f"energy-charts=http://{CANARY}.example/{CANARY}"}
    keys = house.home / "keys.env"
    keys.parent.mkdir(mode=0o700)
    keys.write_text(f"ENTSOE_TOKEN={CANARY}\n")
    keys.chmod(0o600)
    house.env["CARBONTUI_OFFLINE"] = "0"
    script = house.root / f"{CANARY}.py"
    script.write_text(f"print({CANARY!r}, flush=True)\n{SCRIPT}")
    marks = house.root / "t.steps"
    command = [house.python, script, 100_000, 0.01, 0, marks, f"--{CANARY}=1", CANARY]
    done = house.cli("run", "--detach", "--zone", "DE", "--work", "8h", "--", *command, check=True)
    until(marks.exists, what="a step")
    for verb in ("pause", "resume", "boost"):
        house.cli(verb, check=True)
    path = tmp_path / "report.zip"
    said = house.cli("doctor", "--bundle", path, check=True).stdout
    assert done.stdout.strip() in said and CANARY in (house.home / "jobs" / done.stdout.strip() / "run.log").read_text()
    return path


def test_a_bundle_names_nobody_and_replays_and_shows_a_broken_rule(bundle, monkeypatch, capsys):
    with zipfile.ZipFile(bundle) as packed:
        names = set(packed.namelist())
        content = b"".join(map(packed.read, names)) + "".join(names).encode()
    for private in (CANARY, os.uname().nodename, str(Path.home()), str(bundle.parent), sys.executable):
        assert private.encode() not in content, private
    assert {"versions.json", "job.json", "orders.log", "journal/event.json", "carbontui.log", "snapshot.json"} < names
    assert not {"run.log", "environment.json"} & names
    command = [sys.executable, "-m", "tests.replay", str(bundle)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.endswith("decisions, all equal\n"), done
    decide = control.decide
    monkeypatch.setattr(control, "decide", lambda state, seen: decide(replace(state, override=Overrides()), seen))
    assert replay.main(str(bundle)) == 1 and "Tick at" in capsys.readouterr().out


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_fuzzed_run_with_orders_and_deaths_is_replayed_to_the_same(house, tmp_path, seed):
    dice = random.Random(seed)
    job = house.start("--zone", "DE", "--work", "8h", "--budget", dice.choice(("1x", "2x", "8h")))
    job.tell("boost")  # the plan may have it wait
    job.until_steps()
    for _ in range(6):
        if dice.random() < 0.3:
            os.kill(job.pids()[dice.choice(("supervisor", "child"))], signal.SIGSTOP)
            time.sleep(dice.random())
            for role in ("supervisor", "child"):
                os.kill(job.pids()[role], signal.SIGCONT)
        elif dice.random() < 0.3:
            os.kill(job.pids()["supervisor"], signal.SIGKILL)
            job.until_connected()
        else:
            house.cli(*dice.choice(VERBS))
    path = tmp_path / "report.zip"
    house.cli("doctor", "--bundle", path, job.id, check=True)
    steps = list(replay.bundled(path))
    assert len(steps) > 5 and [step.differences for step in steps if step.differences] == []
