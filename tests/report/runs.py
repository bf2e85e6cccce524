"""A finished job's directory as its supervisor leaves it, made without one: rows booked by the accounts themselves."""

from __future__ import annotations

import json
import math
import random
import socket

import msgspec

from carbontui import protocol, units
from carbontui.account import accounts
from carbontui.grid.types import Row
from carbontui.job.files import store
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.terms import spec as options
from carbontui.job.terms.clock import Clock

START_S = 1_782_000_000.0  # 21 June 2026, 00:00 UTC
FULL_W, PARKED_W, IDLE_W, CPU_W, PUE, RATE = 700.0, 100.0, 30.0, 50.0, 1.2, 2.0
DAY = (
    ("starting", 60, 80.0, 0.0),
    ("running", 3 * 3600, FULL_W, 1.0),
    ("throttled", 2 * 3600, 400.0, 0.8),
    ("paused", 2 * 3600, PARKED_W, 0.0),
    ("unloaded", 3600, IDLE_W, 0.0),
    ("running", 2 * 3600, FULL_W, 1.0),
)
"""(state, seconds, watts of the board, speed)."""


def grams(at_s):
    return 300.0 + 150.0 * math.sin(2 * math.pi * (at_s - START_S) / 43200.0)


def rounded(value):
    return None if value is None else round(value, 6)


def make(home, name="train.py", *, phases=DAY, kind="actual", gpus=1, every=10, job="abcdef", epoch_steps=0,
         source="a grid; ahead: a forecast", wander=0.0, **spec):  # fmt: skip
    """The store's Job of a run of `phases`; a row of energy every `every` seconds."""
    folder = home / "jobs" / job
    folder.mkdir(parents=True)
    given = options.Options(
        job=job, name=name, dir=str(folder), argv=("python", "train.py", "--token", "s3cret"), cwd="/", zone="DE",
        log=str(folder / "run.log"), socket=str(folder / "s"), created_s=START_S, budget="2x", pue=PUE, **spec,
    )  # fmt: skip
    options.save(given)
    journal = Journal(folder / "journal.db")
    account = Accounting(given, Clock(), journal, "boot")
    at, done, steps, epoch = START_S, 0.0, 0, None
    dice = random.Random(1)
    length = sum(phase[1] for phase in phases)
    slots = range(math.ceil(length / 900) + 1)
    rows = [Row(START_S + 900 * k, 900.0, grams(START_S + 900 * k), kind) for k in slots]
    account.realised(rows, "average_lifecycle" if source == "Energy-Charts" else "average_direct", source)
    for state, seconds, watts, speed in phases:
        said = {"state": state, "reason": "plan", "text": f"{state} by the plan", "level": "full"}
        journal.event(at, at, "state", **said)
        for _ in range(0, seconds, every):
            if epoch_steps and steps // epoch_steps != epoch:
                epoch = steps // epoch_steps
                journal.event(at, at, "epoch", number=epoch, step=steps, loss=2.0 - done / 1e5)
            for index in range(gpus):
                drawn = watts * (1 + wander * dice.gauss(0, 1))
                account.ledger.add(f"GPU-{index}", at, at + every, drawn * every, "counter", state, at, gpu=True)
                account.elapsed.drew(drawn * every, state, gpu=True)
            account.ledger.add("cpu", at, at + every, CPU_W * every, "model", state, at, gpu=False)
            account.elapsed.drew(CPU_W * every, state, gpu=False)
            besides = {"host": given.host_w} if given.host_w else {}
            if given.boundary == "always-on":
                besides |= {"idle@cpu": -10.0, **{f"idle@GPU-{index}": -IDLE_W for index in range(gpus)}}
            for device, watts_besides in besides.items():
                account.ledger.add(device, at, at + every, watts_besides * every, "model", state, at, gpu=False)
                account.elapsed.drew(watts_besides * every, state, gpu=False)
            at, done = at + every, done + every * speed
            steps = round(done * RATE)
            account.elapsed.advance(at, state, steps=steps, paused=state == "waiting")
            journal.steps(at, steps, RATE * speed, 2.0 - done / 1e5, "full")
        journal.commit()
    journal.event(START_S + 1, START_S + 1, "plan", why="start", gap=0.0005)
    journal.event(at, at, "state", state="done", reason="exited", text="the command ended with exit code 0")
    journal.event(at, at, "end", state="done", code=0, signal=None)
    account.write(everything=True)
    account.keep()
    full_w = (gpus * FULL_W + CPU_W) * PUE
    flat = accounts.run_now(account.elapsed, pue=PUE, full_wall_w=full_w, rate=RATE)
    totals = account.totals(start_s=START_S, run_now=flat, nowcast=grams(at), gpus=gpus)
    used = protocol.Amounts(
        elapsed_s=round(totals.elapsed_s, 3), steps=steps - totals.steps_apart,
        energy_gpu_kwh=round(totals.gpu_kwh, 9), energy_wall_kwh=round(totals.wall_kwh, 9),
        gco2_g=rounded(totals.gco2_g), run_now_g=rounded(totals.run_now_g), avoided_g=rounded(totals.avoided_g),
    )  # fmt: skip
    told = {"account": protocol.Account(so_far=used), "excluded": totals.excluded, "coverage": totals.coverage}
    journal.keep("accounts", {
        "start_s": START_S, "done_s": done, "full_wall_w": full_w, "pue": PUE, "before_g": 0.0, "nowcast_g": grams(at),
        "energy_wall_kwh": totals.wall_kwh, "energy_gpu_kwh": totals.gpu_kwh, "gco2_g": totals.gco2_g,
        "avoided_g": totals.avoided_g, "boundary": given.boundary, **accounts.to_kept(flat),
        **{name: msgspec.to_builtins(value) for name, value in told.items()},
    })  # fmt: skip
    parked = {f"GPU-{index}": [PARKED_W, 9] for index in range(gpus)}
    if wander:
        timed = [1 / RATE * (1 + wander * dice.gauss(0, 1)) for _ in range(100)]
        journal.keep("progress", {"blocks": {"size": 1, "times": timed}})
    journal.keep("learned", {"parked_w": parked, "rest_parked_w": [CPU_W, 9]})
    journal.close()
    p = protocol.Provenance
    metered = ", ".join(f"{100 * share:.0f} % {how}" for how, share in totals.shares.items())
    status = protocol.Status(
        job=job, name=name, host="box", measured_at=units.iso(at), state="done",
        reason=protocol.Reason("exited", "the command ended with exit code 0"), step=steps, steps_total=steps,
        gpus=tuple(protocol.Gpu(f"GPU-{index}", "H100") for index in range(gpus)),
        budget=protocol.BudgetStatus(units.iso(START_S), units.iso(START_S + 86400.0), 2.0, True),
        energy_gpu_kwh=round(totals.gpu_kwh, 9), energy_wall_kwh=round(totals.wall_kwh, 9),
        gco2_g=round(totals.gco2_g, 6), cost=totals.cost,
        avoided_g=used.avoided_g, **told,
        intensity=protocol.Intensity(round(grams(at), 2), "average_direct", "DE"), exit=protocol.Exit(0, None),
        provenance={"energy_wall_kwh": p("measured", metered), "gco2_g": p("measured", "a grid")},
    )  # fmt: skip
    (folder / "snapshot.json").write_bytes(msgspec.json.encode(status))
    (folder / "exit.json").write_text(json.dumps({"code": 0, "signal": None}))
    record = {"job": job, "name": name, "host": socket.gethostname(), "boot": "b", "started": START_S, "pids": {}}
    record |= {"argv": list(given.argv), "log": given.log, "socket": given.socket}
    (folder / "job.json").write_text(json.dumps(record))
    found = store.load(folder)
    assert found is not None
    return found
