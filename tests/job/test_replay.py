"""A whole job on a replayed grid: planned pauses really held, and accounts that a stranger can recompute."""

import json
import sys
from datetime import datetime, timedelta

import pytest
from house import until
from recompute import recompute

from carbontui import units
from carbontui.job.files import store
from carbontui.job.files.history import events as read_events
from carbontui.job.terms import spec
from carbontui.reports import figures, formats, run_text, story
from carbontui.text import account as account_words
from carbontui.text import figures as form

START = "2020-04-23T12:00:00Z"
FLAT_S = 20.0
STEP_S = 0.03
HEADROOM = 1.05

PACED = """\
import sys, time
import carbontui
total, pace = int(sys.argv[1]), float(sys.argv[2])
spent = 0.0
for i in range(total):
    begun = time.monotonic()
    time.sleep(max(0.0, (i + 1) * pace - spent))
    spent += time.monotonic() - begun
    carbontui.step()
"""
"""Steps that make up for what a busy machine has cost them, so that the work takes what the plan was told it takes."""

LAUNCH = """\
import json, sys, time
from carbontui import units
from carbontui.job.life import launch
from carbontui.job.terms import spec as options
from carbontui.power.backends.simulated import SimulatedSpec
steps, flat_s, script, pace = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
home = launch.claim("replay", ())
origin = time.time() + 0.5
launch.start(options.Options(
    **home, argv=(sys.executable, script, str(steps), pace),
    cwd=home["dir"], created_s=origin,
    zone="DE", grid=sys.argv[5], budget="2x", work_s=86400.0, steps=steps, ref_rate=steps / 86400.0,
    cap=False, pue=1.1,
    replay=options.Replay(start_s=units.from_iso(sys.argv[6]), speed=86400.0 / flat_s, wall_origin_s=origin),
    simulated=SimulatedSpec(),
), hold=False)
print(home["job"])
"""


def tides():
    """Fifteen days before the start and four after: four clean hours, four dirty ones, in turn, never quite alike."""
    start = datetime.fromisoformat(START.replace("Z", "+00:00"))
    for quarter in range(-15 * 96, 4 * 96):
        clean = quarter // 16 % 2 == 0
        yield f"{start + timedelta(minutes=15 * quarter):%Y-%m-%dT%H:%M:%SZ}", (90 if clean else 500) + quarter % 7


@pytest.fixture
def finished(house):
    """The directory and last status of a job that ran to its end under its plan."""
    import subprocess

    steps = round(FLAT_S / (STEP_S * HEADROOM))
    paced = house.root / "paced.py"
    paced.write_text(PACED)
    launcher = house.root / "launch.py"
    launcher.write_text(LAUNCH)
    grid = house.root / "grid.csv"
    grid.write_text("time_utc,carbon_g_per_kwh\n" + "".join(f"{time},{value}\n" for time, value in tides()))
    arguments = [str(steps), str(FLAT_S), str(paced), str(STEP_S), str(grid), START]
    done = subprocess.run(
        [sys.executable, str(launcher), *arguments], env=house.env, capture_output=True, text=True, check=True
    )
    directory = house.home / "jobs" / done.stdout.strip()
    until(lambda: (directory / "exit.json").exists(), 90, "the end of the job")
    keeper = json.loads((directory / "job.json").read_text())["pids"]["keeper"][0]
    until(lambda: "leaving" in (directory / "carbontui.log").read_text(), 60, f"keeper {keeper} to leave")
    return directory, json.loads((directory / "snapshot.json").read_text())


@pytest.mark.long
def test_planned_pauses_are_held_and_the_accounts_are_a_strangers_too(finished):
    directory, status = finished
    assert status["state"] == "done" and (status["exit"]["code"], status["exit"]["signal"]) == (0, None)
    found = recompute(directory / "journal.db", directory.parents[2] / "grid.csv")
    for key in ("energy_wall_kwh", "gco2_g"):
        assert status[key] == pytest.approx(found[key], rel=1e-3)
    assert status["avoided_g"] == pytest.approx(found["avoided_g"], abs=1e-3 * found["run_now_g"])

    states = [json.loads(data) for _, data in found["states"]]
    pauses = [s for s in states if s["state"] == "paused" and s["reason"] == "plan"]
    assert len(pauses) >= 2 and found["acks"] >= len(pauses)
    # a row that lies wholly inside a pause draws the simulated board's parked watts
    board = [row for row in found["rows"] if row[2] not in ("cpu", "dram", "host")]
    watts = sorted(joules / (t1 - t0) for t0, t1, _, joules, state in board if state == "paused" and t1 > t0)
    assert 110 < watts[len(watts) // 2] < 130
    assert status["gpus"][0]["parked_w"] == pytest.approx(118, abs=6)
    assert status["avoided_g"] > 0 and status["power_w"] is None, "it is over and draws nothing"
    assert {status["provenance"][key]["how"] for key in ("energy_gpu_kwh", "gco2_g")} == {"replay"}
    assert any("SIMULATED" in notice for notice in status["notices"])
    every_time_of_its_end_is_the_same(directory)
    plans = [one for one in read_events(directory / "journal.db", 0.0, 500, plans=True) if one.kind == "plan"]
    assert plans[0].whole_g == pytest.approx(plans[0].gco2_g, rel=0.05), "next to nothing was used yet"
    assert plans[-1].gco2_g < 0.5 * status["gco2_g"]
    assert plans[-1].whole_g == pytest.approx(status["gco2_g"], rel=0.25), "what was used before it is in the whole"


def every_time_of_its_end_is_the_same(directory):
    """A second of this replay lasts 72 minutes: what is told of the end is that of the command, not of our account."""
    job = store.load(directory)
    told, last = story.build(job), job.status()
    replay = spec.load(directory).replay
    ended_s = replay.start_s + (job.exit["at"] - replay.wall_origin_s) * replay.speed
    assert units.from_iso(last.exit.at) == pytest.approx(ended_s, abs=1e-2) == told.end_s
    summary = dict(account_words.summary(last, lambda field: ""))["finish"]
    when = form.clock(told.end_s, told.start_s)
    slack = next(figure for figure in figures.figures(told) if figure.label == "elapsed").rests_on.split(", ")[1]
    assert summary.startswith(f"{when}, {slack}")
    ended = figures.date_and_clock(told.end_s)
    assert f"ended {ended}, after {form.duration(told.elapsed_s)}" in run_text.story_of(told)[0]
    assert ended in formats.html(told) and "sensors" not in formats.html(told), "a simulated board has none"
    assert run_text.decisions(told)[-1].strip().startswith(when)
    # what the first plan said of the whole, and how far it was off, stand in its report
    assert told.first is not None and told.first.band_g is not None
    said = dict(run_text.ending(told))["first said"]
    assert said.startswith(form.grams(told.first.gco2_g)) and "forecast missed by" in said
    assert units.from_iso(formats.numbers(told)["ended"]) == pytest.approx(told.end_s, abs=1e-3)
    run = job.whole_run(60)
    assert units.from_iso(run.watts.start) + 60 * run.watts.step_s == pytest.approx(told.end_s, abs=1)
