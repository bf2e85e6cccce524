"""A whole job on the simulated NVML: caps by command, everything killed, calibration given up for a person's word."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from house import NOBODY, House, Job, until
from nvml_machine import machine_with  # noqa: F401
from nvmlsim import Sim
from prometheus_client.parser import text_string_to_metric_families
from test_capd import Service

from carbontui.power.curves.curve import Curve, Point
from carbontui.power.curves.files import fingerprint, save


class UserHouse(House):
    """One whose command line is run by an ordinary user: as root, by uid 65534, which keeps of root's powers that of
    looking into folders, for the interpreter may lie where only root may look."""

    look = "+dac_read_search"
    prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
              f"--inh-caps={look}", f"--ambient-caps={look}") if os.geteuid() == 0 else ()  # fmt: skip
    sim: Sim


@pytest.fixture
def capped_house(request: pytest.FixtureRequest, house, machine_with: Callable, tmp_path: Path):
    """(house, sim): jobs of this house see one simulated H100 that their own script keeps busy. With the parameter
    "capd" they may not set its limit, belong to an ordinary user, and a capd runs on the machine."""
    sim = machine_with()
    sim.load(1.0)
    if getattr(request, "param", "root") == "root":
        house.env |= sim.env()
        house.env.pop("CUDA_VISIBLE_DEVICES", None)
        yield house, sim
        return
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("no setpriv to become another user with")
    sim.set("permission", 3)
    sim.state.chmod(0o666)
    capd = Service(sim, tmp_path)
    for place in (sim.state, sim.library, capd.socket):
        for folder in place.parents:
            with contextlib.suppress(OSError):
                folder.chmod(folder.stat().st_mode | 0o011)
    theirs = UserHouse(folder := request.getfixturevalue("ordinary_folder"), None)
    theirs.sim = sim
    # whether a file may be run is asked without the powers that were kept
    theirs.python = folder / Path(sys.executable).name
    theirs.python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    theirs.python.chmod(0o755)
    theirs.env |= sim.env() | {"CARBONTUI_CAPD": str(capd.socket), "HOME": str(folder)}
    theirs.env.pop("CUDA_VISIBLE_DEVICES", None)
    yield theirs, sim
    theirs.end()
    capd.kill()


BOTH = pytest.mark.parametrize("capped_house", ["root", "capd"], indirect=True)
"""What a user without root has on a box with capd: the same, by the same tests."""


def watched(house: House, *options: str, name: str = "t") -> Job:
    """A job that trains, whose board is in its status, with its own process on it."""
    job: Job = house.start(*options, name=name)
    job.until_steps()
    until(lambda: job.status().get("gpus"), what="the board in status")
    on_board(house, job)
    return job


def on_board(house: House, job: Job) -> None:
    """Where capd asks whose board it is, the training must be seen on it."""
    if isinstance(house, UserHouse):
        house.sim.process(job.pids()["child"], level=0.0)
        until(lambda: (g := job.status().get("gpus")) and (g[0]["memory_used_b"] or 0) > 30 << 30, what="its memory")


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@BOTH
def test_cap_verb_sets_and_resume_gives_back(capped_house) -> None:
    house, sim = capped_house
    job = watched(house)
    done = house.cli("cap", "300W", job.id)
    assert done.returncode == 0, done.stderr
    until(lambda: sim.get("limit_mw") == 300_000, what="the limit")
    status = job.until_state("throttled")
    assert (
        status["gpus"][0]["limit_w"] in (300.0, 700.0) and status["provenance"]["gpus.0.power_w"]["how"] == "measured"
    )
    assert house.cli("cap", "100W", job.id).returncode != 0, "below what the board takes"
    house.cli("resume", job.id, check=True)
    until(lambda: sim.get("limit_mw") == 700_000, what="the limit found")
    house.cli("cap", "300W", job.id, check=True)
    until(lambda: sim.get("limit_mw") == 300_000, what="the limit")
    house.cli("stop", "--now", "--yes", job.id, check=True)
    assert sim.get("limit_mw") == 700_000, "stop returns when limits are back"


def test_a_cap_that_cannot_be_set_is_refused_with_the_mend(capped_house) -> None:
    house, sim = capped_house
    sim.set("permission", 2)
    job = watched(house)
    done = house.cli("cap", "300W", job.id)
    assert done.returncode == 4
    assert "nvidia-smi -i GPU-" in done.stderr
    assert "fix: give the container" in house.cli("doctor").stdout or os.geteuid() != 0
    assert sim.get("writes") == 0


@BOTH
def test_the_answer_to_a_cap_says_what_became_of_it(capped_house) -> None:
    house, sim = capped_house
    job = watched(house, "--allow-raise", "--work", "2h")
    above = house.cli("cap", "900W", job.id)
    assert above.returncode == 4 and "at most 700 W" in above.stderr
    assert "capped at 300.5 W per GPU" in house.cli("cap", "300.5W", job.id).stdout and sim.get("limit_mw") == 300_500
    house.cli("resume", job.id, check=True)
    refused = house.cli("calibrate", job.id)
    assert refused.returncode == 1 and "no slack" in refused.stderr, "a budget of 1.0x has none"
    sim.process(os.getpid(), level=0.1)
    assert "not capped: another process" in house.cli("cap", "300W", job.id).stdout
    assert sim.get("limit_mw") == 700_000


def test_everything_killed_the_next_run_gives_the_limit_back(capped_house) -> None:
    house, sim = capped_house
    job = watched(house)
    house.cli("cap", "300W", job.id, check=True)
    until(lambda: sim.get("limit_mw") == 300_000, what="the limit")
    until(lambda: json.loads((job.dir / "snapshot.json").read_text())["gpus"], what="the board in the snapshot")
    pids = job.pids()
    agent = job.status()["pids"]["agent"]
    # stopped first, so that none of them lives long enough to replace or restore anything
    for pid in (pids["keeper"], pids["supervisor"]):
        os.kill(pid, signal.SIGSTOP)
    for pid in (agent, pids["supervisor"], pids["keeper"]):
        killed(pid)
    assert sim.get("limit_mw") == 300_000
    steps = job.steps()
    until(lambda: job.steps() > steps + 5, what="training going on")
    assert job.status()["gpus"][0].get("power_w") is None, "nobody looks any more: no watts of the past"
    listing = house.cli("ls")
    assert "-pl 700" in listing.stderr + listing.stdout, "looking verbs name the stale lease"
    assert sim.get("limit_mw") == 300_000, "and change nothing"
    house.start(name="next")
    until(lambda: sim.get("limit_mw") == 700_000, what="the limit found")
    killed(pids["child"])


@BOTH
def test_a_child_that_is_killed_leaves_a_bare_board_at_the_limit_found(capped_house) -> None:
    house, sim = capped_house
    sim.load(0.0, context=False)
    job = house.start()
    job.until_steps()
    child = job.pids()["child"]
    sim.process(child, memory_b=30 * 2**30, level=1.0)
    until(lambda: (job.status().get("gpus") or [{}])[0].get("memory_used_b"), what="the child's memory in status")
    house.cli("cap", "300W", job.id, check=True)
    until(lambda: sim.get("limit_mw") == 300_000, what="the limit")
    killed(child)
    until(lambda: sim.get("limit_mw") == 700_000, what="the limit found")
    sim.reap()
    assert (sim.get("memory_b"), sim.get("power_w")) == (0, 70)
    job.until_exit()


def test_doctor_mends(capped_house, tmp_path: Path) -> None:
    house, sim = capped_house
    job = watched(house)
    house.cli("cap", "300W", job.id, check=True)
    until(lambda: sim.get("limit_mw") == 300_000, what="the limit")
    pids, agent = job.pids(), job.status()["pids"]["agent"]
    for pid in (pids["keeper"], pids["supervisor"]):
        os.kill(pid, signal.SIGSTOP)
    sim.process(pids["child"], level=0.5)
    killed(agent)
    alive = house.cli("doctor").stdout
    assert "left GPU" not in alive, "its supervisor is there, and the next agent takes the lease over"
    assert "other processes" not in alive, "a job of ours is no stranger"
    for pid in (pids["supervisor"], pids["keeper"], pids["child"]):
        killed(pid)
    assert house.cli("doctor").returncode == 1
    assert sim.get("limit_mw") == 300_000
    mended = house.cli("doctor", "--mend")
    assert mended.returncode == 0 and "restored, 700 W" in mended.stdout
    assert sim.get("limit_mw") == 700_000


def test_a_curve_of_an_earlier_run_is_used_again(capped_house) -> None:
    house, sim = capped_house
    command = [sys.executable, str(house.script), "100000", "0.01", "0", str(house.root / "t.steps")]
    point = {"power_se": 2.0, "speed_se": 0.004}
    levels = (
        Point(kind="cap", cap_w=400.0, power_w=396.0, speed=0.83, **point),
        Point(kind="full", cap_w=None, power_w=680.0, speed=1.0, **point),
    )
    mark = fingerprint(command, house.root)
    curve = Curve(
        gpu="NVIDIA H100 80GB HBM3",
        gpus=1,
        fingerprint=mark,
        measured_s=1.0,
        rate_steps_per_s=99.0,
        points=levels,
        levels=levels,
    )
    save(curve, house.home / "curves")
    job = house.start()
    job.until_steps()
    shown = until(
        lambda: (d := house.cli("calibrate", "--show", job.id)).returncode == 0 and d, every=0.3, what="the curve"
    )
    assert "cap 400 W" in shown.stdout and "83.0 %" in shown.stdout
    house.cli("stop", "--now", "--yes", job.id, check=True)
    sim.set("limit_mw", 500_000)
    lower = house.start()
    log = house.home / "jobs" / lower.id / "carbontui.log"
    until(lambda: "500 W are allowed now" in log.read_text(), what="the refusal of a curve of 680 W")
    assert house.cli("calibrate", "--show", lower.id).returncode == 3


def test_a_persons_word_ends_a_calibration(capped_house) -> None:
    house, sim = capped_house
    job = watched(house)
    until(lambda: job.status().get("clients"), what="its first step at the supervisor")
    assert house.cli("calibrate", "--show", job.id).returncode == 3
    done = house.cli("calibrate", job.id)
    assert done.returncode == 0, done.stderr
    until(lambda: job.status()["reason"]["code"] == "calibrating", what="the calibration")
    assert house.cli("calibrate", job.id).returncode == 1, "one at a time"
    house.cli("pause", job.id, check=True)
    status = job.until_state("paused")
    assert status["reason"]["code"] == "override"
    refused = house.cli("calibrate", job.id)
    assert refused.returncode == 1 and "override" in refused.stderr
    assert sim.get("limit_mw") == 700_000
    assert not list(house.home.glob("curves/*")), "nothing half-learned is kept"


def test_sigstop_parks_the_board_and_is_refused_while_two_processes_use_it(capped_house) -> None:
    house, sim = capped_house
    sim.load(0.0)
    program = ["/bin/sh", "-c", "while true; do sleep 0.05; done"]
    job = house.cli("run", "--detach", "--sigstop", "--", *program, check=True).stdout.strip()

    def status():
        return json.loads(house.cli("status", job, "--json").stdout)

    child = until(lambda: status()["pids"]["child"], what="the program")
    sim.process(child, level=1.0)
    until(lambda: (gpus := status()["gpus"]) and gpus[0]["power_w"] > 600, what="its watts")
    assert "SIGSTOP" in house.cli("pause", job, check=True).stdout

    def parked() -> bool:
        sim.reap()  # the signal was sent before the answer, and may take hold after it
        return status()["gpus"][0]["power_w"] < 130

    until(parked, what="parked watts")
    assert status()["state"] == "paused" and status()["gpus"][0]["memory_used_b"] > 2**30
    house.cli("resume", job, check=True)
    sim.process(os.getpid())
    until(
        lambda: "2 processes use NVIDIA H100" in house.cli("pause", job, check=True).stdout,
        timeout=60,
        what="the refusal",
    )


def test_no_saving_is_claimed_for_the_moment_before_the_first_sample(capped_house) -> None:
    house, _sim = capped_house
    job = house.start("--zone", "DE")
    job.until_steps(400)
    status = until(lambda: (s := job.status()).get("gco2_g") and s, what="grams")
    assert not status["avoided_g"] and status["account"]["so_far"]["run_now_g"] is None
    assert status["gpus"][0]["power_w"] > 0


def test_the_sum_of_boards_is_unknown_while_one_of_them_cannot_be_read(house, machine_with: Callable) -> None:
    sim = machine_with(2)
    for key in ("has_fields", "has_counter", "has_power"):
        sim.set(key, 0, device=1)
    house.env |= sim.env()
    house.env.pop("CUDA_VISIBLE_DEVICES", None)
    job = house.start()
    job.until_steps()
    until(lambda: len(job.status().get("gpus", ())) == 2, what="both boards")
    status = job.status()
    assert [gpu.get("power_w") for gpu in status["gpus"]] == [70.0, None] and status.get("power_w") is None
    assert any(text.startswith("GPU 1: no watts can be read") for text in status["notices"])


def test_what_happens_to_limits_unasked_is_journaled_and_a_lost_board_leaves_no_sum(
    house, machine_with: Callable
) -> None:
    sim = machine_with(2)
    for board in (0, 1):
        sim.load(1.0, device=board)
    house.env |= sim.env()
    house.env.pop("CUDA_VISIBLE_DEVICES", None)
    job = house.start()
    job.until_steps()
    until(lambda: len(job.status().get("gpus", ())) == 2, what="both boards")
    house.cli("cap", "400W", job.id, check=True)

    def limits() -> list[dict]:
        with contextlib.closing(sqlite3.connect(house.home / "jobs" / job.id / "journal.db")) as db:
            return [json.loads(row[0]) for row in db.execute("select data from event where kind='limit' order by at")]

    assert job.status()["power_w"] > 400
    sim.set("limit_mw", 500_000)
    adopted = until(lambda: [e for e in limits() if e["code"] == "outside"], what="the outside change in the journal")
    assert [(e["asked"], e["watts"]) for e in adopted] == [(False, 500.0)]
    sim.set("lost", 1, device=1)
    status = until(lambda: (s := job.status())["gpus"][1].get("power_w") is None and s, what="the lost board")
    assert status["gpus"][0]["power_w"] > 100 and status.get("power_w") is None
    killed(status["pids"]["agent"])
    status = until(lambda: (s := job.status()) and len(s["gpus"]) == 1 and s, what="an agent that cannot see it")
    assert status["gpus"][0]["power_w"] is not None and status.get("power_w") is None
    assert "not in it" in status["provenance"]["energy_gpu_kwh"]["source"]
    assert any("cannot be seen" in text for text in status["notices"])
    assert "GPU 1" in (said := house.cli("doctor").stdout) and "lost" in said
    stopped = house.cli("stop", "--now", "--yes", job.id)
    assert stopped.returncode == 1 and "still set: GPU-51a00001" in stopped.stderr, "nobody reaches the lost board"
    codes = [event["code"] for event in limits()]
    assert codes[-1] == "lost", "what became of limits at the end is journaled too"


@BOTH
def test_a_cap_above_a_limit_lowered_from_outside_is_not_claimed(capped_house) -> None:
    house, sim = capped_house
    job = watched(house)
    house.cli("cap", "400W", job.id, check=True)
    sim.set("limit_mw", 500_000)
    until(lambda: "outside" in " ".join(job.status()["notices"]), what="the adoption")
    refused = house.cli("cap", "620W", job.id)
    assert refused.returncode == 4 and "500 W" in refused.stderr
    assert "capped at 400 W" in house.cli("cap", "400W", job.id).stdout and sim.get("limit_mw") == 400_000, "insisted"
    job.until_state("throttled")
    house.cli("resume", job.id, check=True)
    sim.set("limit_mw", 650_000)  # its owner raised it again, below the one at the start
    assert "capped at 400 W" in house.cli("cap", "400W", job.id).stdout
    assert "capped at 620 W" in house.cli("cap", "620W", job.id).stdout
    assert sim.get("limit_mw") == 620_000


@BOTH
def test_no_successor_fights_an_outside_change_but_a_person_may(capped_house) -> None:
    house, sim = capped_house
    job = house.start()
    job.until_steps()
    on_board(house, job)
    assert "capped at 400 W" in house.cli("cap", "400W", job.id).stdout, "however soon after the start"
    sim.set("limit_mw", 500_000)
    until(lambda: "outside" in " ".join(job.status()["notices"]), what="the adoption")
    first = job.status()["pids"]["supervisor"]

    def journal(query: str) -> list[tuple[str, ...]]:
        with contextlib.closing(sqlite3.connect(house.home / "jobs" / job.id / "journal.db")) as db:
            return db.execute(query).fetchall()

    def kept() -> list[str]:
        return json.loads(journal("select value from state where key='boards'")[0][0])["left"]["boards"]

    def asked_by_a_successor() -> list[dict]:
        rows = journal("select kind, data from event order by rowid")
        begun = [i for i, (kind, _) in enumerate(rows) if kind == "supervisor"]
        told = [json.loads(data) for kind, data in rows[begun[-1] :] if kind == "limit"]
        return [limit for limit in told if limit["wanted_w"] == 400] if len(begun) > 1 else []

    until(kept, what="what a successor must know")
    killed(first)
    (asked,) = until(asked_by_a_successor, what="what it asked of its board")
    assert (asked["code"], asked["watts"]) == ("outside", 500.0)
    assert sim.get("limit_mw") == 500_000, "a successor does not fight it either"
    assert "capped at 400 W" in house.cli("cap", "400W", job.id).stdout and sim.get("limit_mw") == 400_000


def test_figures_of_a_job_are_told_for_prometheus_until_its_end(capped_house, tmp_path: Path) -> None:
    house, _ = capped_house
    folder = tmp_path / "textfiles"
    assert "is not a folder" in house.cli("run", "--metrics", str(folder), "--", "true").stderr
    folder.mkdir()
    house.env["CARBONTUI_METRICS"] = str(folder)
    job = house.start()
    job.until_steps()
    file = folder / f"carbontui-{job.id}.prom"
    until(file.exists, what="the file")
    # the board's own reading is a mean over the last second
    until(lambda: (gpus := job.status().get("gpus")) and (gpus[0]["power_w"] or 0) > 670, what="full watts")
    house.cli("stop", "--now", "--yes", job.id, check=True)
    job.until_exit()

    def joules() -> float:
        families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
        assert families["carbontui_board_power_watts"].samples[0].value == pytest.approx(680, rel=0.05)
        return families["carbontui_board_energy_joules"].samples[0].value

    kwh = job.status()["energy_gpu_kwh"]
    # kWh are told to nine digits
    until(lambda: joules() == pytest.approx(kwh * 3.6e6, abs=0.004), what="the last figures")


@BOTH
def test_a_plan_has_the_same_caps_whoever_sets_them(capped_house) -> None:
    house, sim = capped_house
    job = watched(house, "--intensity", "300", "--zone", "DE", "--work", "10h", "--budget", "2x")

    def levels() -> list[str]:
        told = house.cli("plan", "--json", job.id)
        return [level["name"] for level in json.loads(told.stdout)["table"]] if told.returncode == 0 else []

    found = until(lambda: (names := levels()) and "cap 490 W" in names and names, timeout=90, what="caps")
    assert found == ["pause", "cap 490 W", "cap 585 W", "full"]
    assert house.cli("doctor").stdout.count("200-700 W") >= 1
    house.cli("stop", "--now", "--yes", job.id, check=True)
    assert sim.get("limit_mw") == 700_000
