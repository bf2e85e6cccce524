"""Jobs on a real NVIDIA GPU: pauses and duty cycles with kernels in flight, the cost of step(), `run` and `demo`."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

from fake_supervisor import FakeSupervisor
from gpu_machine import MARKS, MODEL_B, NAME, TRAIN, UUID, metered, note, spread, watching
from house import until

from carbontui.power.agent.handle import AgentHandle

pytestmark = MARKS

COST = """
import json, statistics, time, torch, carbontui
width = 2048
model = torch.nn.Sequential(*[torch.nn.Linear(width, width, device="cuda") for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
x = torch.randn(512, width, device="cuda")
def empty(n=1):
    pass
def loop(count, times):
    for i in range(count):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        for call, taken in times if i % 2 else times[::-1]:
            began = time.perf_counter_ns()
            call()
            taken.append(time.perf_counter_ns() - began)
loop(50, [(carbontui.step, [])])
time.sleep(1)
times = [(carbontui.step, []), (empty, [])]
began = time.perf_counter()
loop(2000, times)
torch.cuda.synchronize()
took = time.perf_counter() - began
(_, step), (_, none) = times
print(json.dumps({
    "step_ns": statistics.median(step), "empty_ns": statistics.median(none),
    "step_p99_ns": sorted(step)[int(0.99 * len(step))], "iteration_ms": 1000 * took / len(step),
}))
"""


def train_steps(supervisor: FakeSupervisor, at_least: int) -> None:
    supervisor.wait(lambda: (obs := supervisor.last()) and obs.step >= at_least, 120, f"step {at_least}")


def mark(supervisor: FakeSupervisor) -> tuple[float, int]:
    """The moment of the next word of the training, and its step."""
    told = len(supervisor.live()[0].obs)
    supervisor.wait(lambda: len(supervisor.live()[0].obs) > told, 30, "an observation")
    return time.monotonic(), supervisor.live()[0].obs[-1].step


async def stretch(
    supervisor: FakeSupervisor, handle: AgentHandle, seconds: float, **want: float
) -> tuple[float, float]:
    """Steps per second and mean watts over the same stretch, under such a want."""
    supervisor.want("run", **want)
    await asyncio.sleep(3)  # the first cycle, and steps launched ahead under the last want
    began_s, began = await asyncio.to_thread(mark, supervisor)
    handle.drain()
    await asyncio.sleep(seconds)
    ended_s, ended = await asyncio.to_thread(mark, supervisor)
    await handle.refresh(2.0)
    samples = [s for s in handle.drain() if s.uuid == UUID and began_s <= s.mono_s <= ended_s]
    return (ended - began) / (ended_s - began_s), metered(samples)[0]


def test_a_pause_waits_for_the_kernels_in_flight(launch, supervisor: FakeSupervisor) -> None:
    launch(TRAIN)
    supervisor.want("run")
    train_steps(supervisor, 30)
    took_ms, step_ms = [], []
    for round_ in range(10):
        time.sleep(1.0 + 0.037 * round_)  # another phase of the step each time
        began_s, began = mark(supervisor)
        ended_s, ended = mark(supervisor)
        step_ms.append(1000 * (ended_s - began_s) / max(1, ended - began))
        asked = time.monotonic()
        (step,) = supervisor.pause()
        took_ms.append(1000 * (time.monotonic() - asked))
        time.sleep(1.5)
        last = supervisor.last()
        assert last is not None and last.state == "paused" and last.step == step, "it stands, at a whole step"
        supervisor.want("run")
        train_steps(supervisor, step + 2)
    note(**spread("pause_ms", took_ms), **spread("pause_step_ms", step_ms))
    # launches run ahead of the device by a bounded queue: what is in flight takes a few steps
    assert sorted(took_ms)[5] < 2000 + 20 * sorted(step_ms)[5]


async def test_a_duty_cycle_saves_watts_and_no_energy(launch, supervisor: FakeSupervisor, tmp_path: Path) -> None:
    """Each stretch of duty is held against the full ones before and after it: what else the machine does, which
    slows both, leaves their ratio alone; and of the ratios the median, so that one disturbance decides nothing."""
    launch(TRAIN)
    supervisor.want("run")
    await asyncio.to_thread(train_steps, supervisor, 30)
    speeds, watts, joules = [], [], []
    async with watching(tmp_path, fast=True) as handle:
        before = await stretch(supervisor, handle, 6)
        for _ in range(5):
            half_rate, half_w = await stretch(supervisor, handle, 12, duty=0.5)  # six cycles
            after = await stretch(supervisor, handle, 6)
            full_rate, full_w = ((a + b) / 2 for a, b in zip(before, after, strict=True))
            speeds.append(half_rate / full_rate)
            watts.append(half_w / full_w)
            joules.append((half_w / half_rate) / (full_w / full_rate))
            before = after
        await asyncio.to_thread(supervisor.pause)
        await asyncio.sleep(4)
        handle.drain()
        await asyncio.sleep(10)
        parked_w, _ = metered([sample for sample in handle.drain() if sample.uuid == UUID])
    speed, drawn, per_step = (statistics.median(ratios) for ratios in (speeds, watts, joules))
    note(full_w=full_w, paused_w=parked_w, duty_half_speed=speed, duty_half_watts=drawn, duty_half_j_per_step=per_step)
    # the bounds tell a duty cycle from none and from a standstill; how exact it is, tests/client measures by the clock
    assert 0.25 < speed < 0.8
    assert drawn < 1 - 0.25 * (1 - parked_w / full_w), "at least half of what resting half of the time saves"
    assert per_step > 0.9, "a parked board draws watts too"
    assert parked_w < 0.5 * full_w, "nothing runs on the device once the pause is acknowledged"


def test_ns_per_step_in_a_cuda_loop(launch, supervisor: FakeSupervisor, finish) -> None:
    supervisor.want("run")
    figures = json.loads(finish(launch(COST), timeout_s=200).splitlines()[-1])
    assert supervisor.ranks and supervisor.last() is not None, "the link was up"
    note(**figures)
    assert figures["step_ns"] < 5_000
    assert figures["step_ns"] < 0.01 * 1e6 * figures["iteration_ms"], "under a hundredth of a short iteration"


def boards(status: dict) -> list[str]:
    return [gpu["uuid"] for gpu in status.get("gpus", [])]


def measured_board(status: dict) -> dict:
    """The one board of a status, with its watts known to be measured now."""
    (board,) = status["gpus"]
    assert (board["name"], board["uuid"]) == (NAME, UUID)
    assert status["provenance"]["gpus.0.power_w"]["how"] == "measured"
    assert 2 < board["power_w"] < 2000
    return board


def test_run_names_the_gpu_and_pauses_it(house) -> None:
    (house.root / "gpu_train.py").write_text(TRAIN)
    command = ("--", sys.executable, house.root / "gpu_train.py")
    job = house.cli("run", "--detach", "--no-cap", *command, check=True).stdout.strip()

    def status() -> dict:
        done = house.cli("status", job, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def until_state(state: str) -> dict:
        return until(lambda: (now := status()).get("state") == state and now, 90, state)

    until(lambda: status().get("step", 0) >= 20 and status().get("gpus"), 120, "steps and boards")
    until(lambda: boards(status()) == [UUID], 30, "the board that the script reports, alone")
    time.sleep(5)  # averages settle
    running_w = measured_board(status())["power_w"]
    refused = house.cli("cap", "300W", job)
    assert refused.returncode != 0 and "--no-cap" in refused.stderr
    took_s = []
    for _ in range(3):
        began = time.monotonic()
        house.cli("pause", job, check=True)
        paused = until_state("paused")
        took_s.append(time.monotonic() - began)
        time.sleep(5)
        now = status()
        assert now["step"] == paused["step"]
        board = measured_board(now)
        assert board["memory_used_b"] > MODEL_B, "the model stays in memory"
        assert board["power_w"] < 0.5 * running_w
        house.cli("resume", job, check=True)
        until(lambda step=now["step"]: status().get("step", 0) > step, 60, "steps again")
    note(run_w=running_w, run_paused_w=board["power_w"], **spread("pause_command_to_paused_s", took_s))
    house.cli("stop", "--now", "--yes", job, check=True)


def test_the_demo_measures_the_real_device(house) -> None:
    started = house.cli("demo", "--detach", "--seconds", "60", timeout=200, check=True)
    job = started.stdout.strip().splitlines()[-1]

    def status() -> dict:
        done = house.cli("status", job, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    seen = until(
        lambda: (now := status()).get("step", 0) > 10 and boards(now) == [UUID] and now, 60, "steps of the demo"
    )
    board = measured_board(seen)
    assert "Simulated" not in json.dumps(seen["gpus"])
    note(demo_w=board["power_w"])
    house.cli("stop", "--now", "--yes", job, check=True)
