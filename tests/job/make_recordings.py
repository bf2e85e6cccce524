"""Makes the recordings that test_recordings.py replays, from real jobs: python tests/job/make_recordings.py [NAME ...]

A quarter of an hour for all on two cores; those of Slurm need root, `slurm-wlm` and `munge`. A recording made anew
pins what the supervisor does now: make one where the form of the events has changed, not where a test fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in (".", "job", "campaign", "client", "frameworks", "nvmlsim", "slurm")]

import campaign
import cluster
import cycles
import ddp_job
import kills
import rest
import several
import test_replay
import test_slurm_successor
from house import House, Job, until
from kills import Found, order
from test_allowance import SCRIPT as SAVING
from test_rehearse import FRAMEWORK, Training

from carbontui import units
from carbontui.power.curves import public

FOLDER = Path(__file__).parent / "recordings"
SEED = 7

SLOW = """\
import time
import carbontui
for step in range(1000):
    time.sleep(0.05 if step < 40 else 14.0)
    carbontui.step()
"""


# --- the lives ----------------------------------------------------------------------------------------------------


def commands(house: House) -> None:
    """A job that waits for its clean hours, and every command, also refused and repeated, on boards with limits."""
    sim = kills.simulated_boards(house, 1)
    house.env["CUDA_VISIBLE_DEVICES"] = "0"
    job = house.start(*house.dirty_now(), "--work", "2h", "--budget", "20h", steps=10**7, pause=0.02)
    job.until_state("waiting")
    for verb, args in (
        ("cap", {"value_w": 350.0}),
        ("pause", {"until": "next"}),
        ("boost", {}),
    ):
        order(job, verb, args)
    job.until_connected()
    job.until_steps()
    if sim:
        sim.process(job.pids()["child"], device=0, level=0.9)
    hours = "/".join(units.iso(time.time() + 3600 * more) for more in (-1, 1))
    for verb, args, wait_s in (
        ("cap", {"value_w": 300.0}, 2.5),
        ("cap", {"value_w": 300.0}, 0.5),
        ("cap", {"value_w": 450.0, "for_s": 2.0}, 4.0),
        ("cap", {"value_w": 5.0}, 0.5),
        ("cap", {"value_w": 5000.0}, 0.5),
        ("cap", {"value_w": "warm"}, 0.5),
        ("cap", {}, 0.5),
        ("boost", {"for_s": 2.0}, 3.5),
        ("boost", {"for_s": -1}, 0.2),
        ("boost", {"until": "yesterday"}, 0.2),
        ("boost", {}, 1.0),
        ("pause", {"for_s": 2.0}, 4.0),
        ("boost", {}, 1.0),
        ("forbid", {"hours": hours}, 1.0),
        ("resume", {}, 3.0),
        ("allow", {"hours": "01:00-02:00"}, 0.2),
        ("allow", {}, 1.0),
        ("allow", {}, 0.2),
        ("forbid", {"hours": "never"}, 0.2),
        ("budget", {"budget": "10m"}, 4.0),
        ("forbid", {"hours": "daily 22:00-06:00"}, 0.5),
        ("boost", {}, 1.0),
        ("budget", {"budget": "1.0x"}, 1.0),
        ("budget", {"budget": "tomorrow noonish"}, 0.2),
        ("budget", {"budget": "30h"}, 1.0),
        ("budget", {"budget": "500kg"}, 1.0),
        ("guess", {"accept": True}, 0.2),
        ("rehearse", {"show": True}, 0.2),
        ("rehearse", {}, 0.5),
        ("resume", {}, 3.0),
        ("boost", {}, 2.0),
        ("resume", {}, 0.0),
        ("budget", {"budget": "1.0x"}, 3.0),
        ("calibrate", {}, 0.2),
        ("allow", {}, 0.2),
        ("budget", {"budget": "30h"}, 3.0),
        ("forbid", {"hours": hours}, 0.2),
        ("allow", {"hours": hours}, 2.0),
        ("calibrate", {"show": True}, 0.2),
        ("calibrate", {}, 30.0),
        ("calibrate", {}, 0.2),
        ("pause", {}, 3.0),
        ("resume", {}, 2.0),
    ):
        order(job, verb, args)
        time.sleep(wait_s)
    if sim:
        sim.set("limit_mw", 500_000)  # another program's
        time.sleep(3)
        order(job, "cap", {"value_w": 400.0})
        time.sleep(2)
        sim.set("limit_mw", 500_000)
        time.sleep(3)
        order(job, "cap", {"value_w": 400.0})
        time.sleep(2)
    order(job, "stop", {"now": True})
    job.until_over()
    order(job, "pause", {})


def planned(house: House) -> None:
    """Work of eight hours under its plan on a grid of tides, in half a minute: caps, pauses, the end."""
    job = _replays(house, budget="2x")
    time.sleep(6)
    order(job, "forbid", {"hours": "22:00-04:00"})
    time.sleep(4)
    order(job, "budget", {"budget": "3x"})
    time.sleep(3)
    order(job, "boost", {"for_s": 7200.0})
    job.until_exit(120)
    job.until_over()


def bounded(house: House) -> None:
    """The same with a longest pause, and a budget of CO2 that is raised when it is used up."""
    acts = ("cap", "ask", "pause")
    bounds = {"max_pause_s": 5400.0, "carbon_budget_g": 300.0, "on_budget": acts}
    job = _replays(house, budget="3x", **bounds)
    time.sleep(15)
    order(job, "budget", {"budget": "1kg"})
    time.sleep(15)
    order(job, "budget", {"budget": "30kg"})
    with contextlib.suppress(AssertionError):
        job.until_exit(60)
    order(job, "stop", {})
    job.until_over()


def _replays(house: House, **options: Any) -> Job:
    """The job of test_replay with other options, on boards whose limits are simulated as well."""
    steps = round(test_replay.FLAT_S / (test_replay.STEP_S * test_replay.HEADROOM))
    rows = "".join(f"{time},{value}\n" for time, value in test_replay.tides())
    launch = test_replay.LAUNCH.replace('budget="2x"', f"**{options!r}").replace("cap=False", "cap=True")
    # a shorter day than there: the forecast of every quarter of an hour is most of the file
    launch = launch.replace("86400.0", "28800.0")
    launch = launch.replace("SimulatedSpec()", f"SimulatedSpec(points={public.simulated(680.0)!r})")
    files = {"paced.py": test_replay.PACED, "grid.csv": "time_utc,carbon_g_per_kwh\n" + rows, "launch.py": launch}
    for name, text in files.items():
        (house.root / name).write_text(text)
    told = ("launch.py", steps, test_replay.FLAT_S, "paced.py", test_replay.STEP_S, "grid.csv", test_replay.START)
    command = [sys.executable, *(str(house.root / one) if one in files else str(one) for one in told)]
    made = subprocess.run(command, env=house.env, capture_output=True, text=True, check=True)
    return Job(house, made.stdout.strip(), house.root / "marks")


def rests(house: House) -> None:
    """Jobs that wait and that are unloaded, with their processes killed and after a reboot."""
    rest.run(house, 3, SEED, Found(), 1)


def tries(house: House) -> None:
    """A try before the start, of a script that can be unloaded and of one that cannot."""
    for name in ("saves", "saves_nothing"):
        training = Training(house)
        training.path = house.root / name
        training.command[-1] = training.path
        if name == "saves_nothing":
            training.flag("unsaved")
        job = training.job(training.run("--try", "--budget", "4x", "--name", name, check=True))
        job.until_state("unloaded", "waiting")
        until(lambda job=job: order(job, "boost", {}), 60, "an order taken")
        job.until_connected()
        time.sleep(2)
        training.flag("end")
        job.until_exit()
        job.until_over()


def rehearsals(house: House) -> None:
    """Rehearsals of an unload: one that holds, one that fails, and one that goes back to an earlier checkpoint."""
    training = Training(house)
    job = training.job(training.run("--budget", "1x", check=True))
    until(lambda: (s := job.served()) and s.clients and s.step > 20, 60, "steps")
    house.cli("rehearse", job.id, check=True)
    training.flag("broken")
    house.cli("rehearse", job.id)
    until(lambda: len(training.lives(job)) == 3, 60, "a third life")
    training.flag("end")
    job.until_exit()
    job.until_over()
    (house.root / "framework.py").write_text(FRAMEWORK)
    started = house.cli("run", "--detach", "--", sys.executable, house.root / "framework.py", house.root, check=True)
    job = Job(house, started.stdout.strip(), house.root / "none")
    until(lambda: (s := job.served()) and s.step > 50, 60, "steps")
    house.cli("rehearse", job.id)
    (house.root / "end").touch()
    job.until_exit()
    job.until_over()


def shared(house: House) -> None:
    """Two jobs under one budget of power: shares, a boost, a refused one, a lower budget and none."""
    sim = kills.simulated_boards(house, 2)
    house.cli("site", "--cap", "860W", "--ramp", "5kW", check=True)
    jobs = []
    for board in (0, 1):
        house.env["CUDA_VISIBLE_DEVICES"] = str(board)
        jobs.append(house.start("--work", "2h", "--zone", "DE", steps=10**7, pause=0.02, name=f"j{board}"))
        jobs[-1].until_steps()
        if sim:
            sim.process(jobs[-1].pids()["child"], device=board, level=0.9)
    one, other = jobs
    one.until_state("throttled")
    order(one, "boost", {})
    other.until_state("paused", "throttled")
    time.sleep(4)
    order(one, "resume", {})
    time.sleep(4)
    house.cli("site", "--cap", "600W", "--ramp", "5kW", check=True)
    time.sleep(4)
    order(other, "boost", {})
    order(other, "cap", {"value_w": 250.0})
    time.sleep(3)
    pids = one.pids()
    for role in ("keeper", "supervisor"):
        os.kill(pids[role], 9)
    time.sleep(12)
    os.kill(pids["child"], 9)
    time.sleep(4)
    house.cli("site", "--clear", check=True)
    time.sleep(3)
    order(other, "stop", {"now": True})
    other.until_over()


def shared_without_limits(house: House) -> None:
    """Two jobs under one budget of power whose boards take no limit: only standing still makes room."""
    sim = kills.simulated_boards(house, 2)
    house.cli("site", "--cap", "900W", "--ramp", "5kW", check=True)
    jobs = []
    for board in (0, 1):
        house.env["CUDA_VISIBLE_DEVICES"] = str(board)
        options = ("--work", "2h", "--zone", "DE", "--budget", "3x", "--no-cap")
        jobs.append(house.start(*options, steps=10**7, pause=0.02, name=f"j{board}"))
    jobs[0].until_connected()
    if sim:
        sim.process(jobs[0].pids()["child"], device=0, level=0.9)
    time.sleep(10)  # the other is not started: there is no room
    order(jobs[0], "boost", {})
    time.sleep(5)
    order(jobs[1], "boost", {})
    order(jobs[1], "cap", {"value_w": 300.0})
    time.sleep(3)
    for job in jobs:
        order(job, "stop", {"now": True})
        job.until_over()


def used_up(house: House) -> None:
    """A budget of energy that ends its job at a checkpoint, and one of CO2 that caps, asks and pauses another."""
    (house.root / "saves.py").write_text(SAVING)
    house.cli(
        "run", "--name", "bounded", "--energy-budget", "0.02Wh", "--on-budget", "warn,stop", "--", sys.executable,
        house.root / "saves.py", house.root / "mark",
    )  # fmt: skip
    sim = kills.simulated_boards(house, 1)
    house.env["CUDA_VISIBLE_DEVICES"] = "0"
    job = house.start(
        *house.dirty_now(), "--work", "1h", "--carbon-budget", "2g", "--on-budget", "warn,cap,ask,pause",
        steps=10**7, pause=0.02,
    )  # fmt: skip
    job.until_steps()
    if sim:
        sim.process(job.pids()["child"], device=0, level=0.9)
    with contextlib.suppress(AssertionError):
        job.until_state("paused", timeout=40)
    time.sleep(3)
    for budget, wait_s in (("3g", 12.0), ("1kg", 5.0), ("0.5g", 5.0), ("400g", 6.0), ("10 kg", 3.0)):
        order(job, "budget", {"budget": budget})
        time.sleep(wait_s)
    order(job, "stop", {})
    job.until_over()


def unseen(house: House) -> None:
    """A program without steps: held by SIGSTOP on request, and not held without; boards that a person has declared."""
    loop = "i=0; while true; do i=$((i+1)); sleep 0.02; done"
    for options in (("--sigstop", "--gpu", "T4", "--boards", "2"), ("--gpu", "T4", "--no-cap")):
        given = ("run", "--detach", "--zone", "DE", *options, "--", "/bin/sh", "-c", loop)
        job = Job(house, house.cli(*given, check=True).stdout.strip(), house.root / "none")
        job.until_state("running", "starting")
        for verb, wait_s in (("pause", 6.0), ("resume", 4.0), ("pause", 8.0), ("boost", 3.0)):
            order(job, verb, {})
            time.sleep(wait_s)
        time.sleep(25)
        order(job, "stop", {})
        job.until_over()


def slow(house: House) -> None:
    """Steps so long that a pause finds no boundary, without values of the grid; then it dies of a signal."""
    (house.root / "slow.py").write_text(SLOW)
    given = ("run", "--detach", "--work", "1h", "--zone", "DE", "--signal", "marginal")
    job = Job(
        house,
        house.cli(*given, "--", sys.executable, house.root / "slow.py", check=True).stdout.strip(),
        house.root / "none",
    )
    job.until_connected()
    time.sleep(2)
    order(job, "pause", {})
    time.sleep(20)
    order(job, "resume", {})
    time.sleep(2)
    kills.hit(job.pids()["child"], signal.SIGSEGV)
    job.until_over()


def torch_loop(house: House) -> None:
    """Plain loops of PyTorch: one whose total is guessed, and one that is unloaded and resumed by its own lines."""
    loops = TESTS / "frameworks" / "loops.py"
    source = loops.read_text().replace("max_iters = 120", "max_iters = 3000")
    (house.root / "loops.py").write_text(source)
    for name, more in (("guessed", ()), ("saves", ("--checkpoint", house.root / "checkpoint"))):
        given = ("run", "--detach", "--name", name, *house.dirty_now(), "--budget", "1x")
        started = house.cli(*given, "--", sys.executable, house.root / "loops.py", "plain", *more, check=True)
        job = Job(house, started.stdout.strip(), house.root / "none")
        until(lambda job=job: (s := job.served()) and s.step > 20, 90, "steps")
        for verb, args, wait_s in (
            ("guess", {"accept": True}, 2.0),
            ("guess", {"accept": False}, 1.0),
            ("budget", {"budget": "2h"}, 2.0),
            ("rehearse", {}, 12.0),
            ("pause", {}, 2.0),
            ("resume", {}, 3.0),
            ("stop", {}, 0.0),
        ):
            order(job, verb, args)
            time.sleep(wait_s)
        job.until_over()


def torchrun(house: House) -> None:
    """Two ranks under torchrun, paused and resumed, one of them restarted by its launcher."""
    (house.root / "ddp.py").write_text(ddp_job.DDP)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "2"]
    launcher += [f"--master-port={cluster.free_port()}", house.root / "ddp.py", "100000", "0.05"]
    started = house.cli("run", "--detach", "--work", "1h", "--zone", "DE", "--", *launcher, check=True)
    job = Job(house, started.stdout.strip(), house.root / "none")
    until(lambda: (s := job.served()) and s.clients == 2, 90, "both ranks")
    for verb, wait_s in (("pause", 4.0), ("resume", 3.0), ("pause", 3.0), ("boost", 3.0)):
        order(job, verb, {})
        time.sleep(wait_s)
    order(job, "stop", {"now": True})
    job.until_over()


def killed(house: House) -> None:
    """The campaign of kills in its short form, amid orders, with and without a site budget, in rehearsals and tries."""
    kills.running(house, 25.0, SEED, Found(), 2, 30)


def orphaned(house: House) -> None:
    """Keepers killed while their training runs, some with their supervisor; of one the training dies as well."""
    kills.orphaned(house, 2, SEED, Found())
    job = house.start("--work", "1h", "--zone", "DE", "--budget", "3x", name="last")
    job.until_connected()
    pids = job.pids()
    kills.hit(pids["keeper"], signal.SIGKILL)
    for verb in ("pause", "boost"):
        time.sleep(2)
        order(job, verb, {})
    time.sleep(2)
    kills.hit(pids["child"], signal.SIGKILL)
    job.until_over()
    time.sleep(3)


def killed_under_a_budget(house: House) -> None:
    kills.running(house, 8.0, SEED, Found(), 2, 8, campaign.SITE)


def killed_in_a_rehearsal(house: House) -> None:
    cycles.rehearsing(house, 8.0, SEED, Found())


def killed_in_a_try(house: House) -> None:
    cycles.trying(house, 4.0, SEED, Found())


def slurm(house: House) -> None:
    """A batch job that leaves for clean hours and goes on as its successor in the queue."""
    with _cluster() as one:
        (house.root / "train.py").write_text(test_slurm_successor.DIRTY)
        line = f"{sys.executable} {house.root}/train.py {house.root}/lives x"
        first = test_slurm_successor.submitted(one, house, line)
        until(lambda: one.state(first) == "COMPLETED", 90, "the end of the first")
        (second,) = set(test_slurm_successor.jobs(one)) - {first}
        until(lambda: one.state(second) == "COMPLETED", 180, "the end of the second")


def slurm_time_limit(house: House) -> None:
    """A batch job that is unloaded before Slurm's time limit."""
    with _cluster() as one:
        (house.root / "train.py").write_text(test_slurm_successor.SCRIPT)
        (house.root / "f").mkdir()
        line = f"{sys.executable} {house.root}/train.py {house.root}/f 100000 none"
        first = test_slurm_successor.submitted(one, house, line, "--time=2")
        until(lambda: one.state(first) not in ("", "PENDING", "RUNNING", "COMPLETING"), 150, "the end before the limit")
        for job in test_slurm_successor.jobs(one):
            one.run("scancel", job, check=False)


def slurm_two_nodes(house: House) -> None:
    """A training on two nodes, paused while one of them is lost."""
    with tempfile.TemporaryDirectory(prefix="ct-", dir="/var/tmp") as root, _cluster(2) as two:
        both = House(Path(root), None)
        job = several.Several(two, both)
        job.until_all()
        for verb, wait_s in (("pause", 4.0), ("resume", 4.0), ("pause", 3.0)):
            job.tell(verb)
            time.sleep(wait_s)
        two.lose_node("n2")
        time.sleep(25)
        two.run("scancel", job.id, check=False)
        with contextlib.suppress(AssertionError):
            job.until_over()
        pack(both, "slurm_two_nodes")
        both.end()


@contextlib.contextmanager
def _cluster(nodes: int = 1) -> Any:
    made = cluster.Cluster(nodes=nodes)
    try:
        made.start()
        yield made
    finally:
        made.end()


LIVES: tuple[Callable[[House], None], ...] = (
    commands, planned, bounded, rests, tries, rehearsals, shared, shared_without_limits, used_up, unseen, slow,
    torch_loop, torchrun, killed, orphaned, killed_under_a_budget, killed_in_a_rehearsal, killed_in_a_try,
    slurm, slurm_time_limit, slurm_two_nodes,
)  # fmt: skip


# --- their files --------------------------------------------------------------------------------------------------


def pack(house: House, life: str) -> None:
    """The bundle of each of its jobs (`carbontui doctor --bundle`), which names no place, user or machine."""
    for number, record in enumerate(sorted(house.home.glob("jobs/*/job.json")), 1):
        house.cli("doctor", "--bundle", FOLDER / f"{life}.{number}.zip", record.parent.name, check=True)


def record(life: Callable[[House], None]) -> None:
    root, runtime = (Path(tempfile.mkdtemp(prefix="ct-")) for _ in range(2))
    house = House(root, runtime)
    try:
        life(house)
        pack(house, life.__name__)
    finally:
        house.end()
        for one in (root, runtime):
            shutil.rmtree(one, ignore_errors=True)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for life in (life for life in LIVES if life.__name__ in sys.argv[1:] or not sys.argv[1:]):
        for old in (*FOLDER.glob(f"{life.__name__}.*.zip"), FOLDER / f"{life.__name__}.jsonl.gz"):
            old.unlink(missing_ok=True)
        begun = time.monotonic()
        record(life)
        sys.stdout.write(f"{life.__name__}: {time.monotonic() - begun:.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
