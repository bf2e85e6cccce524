"""A supervisor that is not there: realistic pictures of a job under the German grid, served over a real socket.

The clock is frozen at NOW unless a test moves it. Used by pilots, snapshots, pty tests and screenshots/make.py; run
as a program it serves one scenario for a screen to be looked at by hand.
"""

from __future__ import annotations

import asyncio
import csv
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, structs

from carbontui import protocol as p
from carbontui import units

SLOT_S = 900.0
START = units.from_iso("2020-04-15T06:00:00Z")
NOW = START + 15.4 * 3600
"""Wednesday 21:24: the evening peak is over, two more pauses are planned."""
IN_PEAK = START + 12.4 * 3600
WORK_S = 24 * 3600.0
FULL_W, CAP_W, PARKED_W, HOST_W = 385.0, 250.0, 74.0, 61.0
CAP_SPEED = 0.84
KINDS: dict[str | None, p.LevelKind] = {"full": "full", "cap 250W": "cap", "pause": "pause", "off": "off"}
LOG = (
    "loading corpus: 24.1 MB of Python source, 97 characters\n"
    "model: 6 layers, 384 wide, 10.7 M parameters, bf16\n"
    + "".join(
        f"step {s:>6} | loss {2.9 * (s + 200) ** -0.09 + 0.35:.4f} | lr 3.0e-04 | 3.1 it/s\n"
        for s in range(0, 9800, 700)
    )
    + "\x1b[32mcheckpoint\x1b[0m saved to out/step-09600.pt (128 MB)\n"
    + "epoch 2:   0%|          | 0/4800\repoch 2:  71%|\x1b[36m███████   \x1b[0m| 3394/4800 [18:10<07:31, 3.11it/s]"
)

ABILITIES = (
    p.Ability("GPU 0 NVIDIA H100 80GB HBM3", "energy counter", "supported", "energy counter of the GPU"),
    p.Ability("GPU 0 NVIDIA H100 80GB HBM3", "power", "supported", "1 s average"),
    p.Ability("GPU 0 NVIDIA H100 80GB HBM3", "power limit", "supported", "200-700 W, now 250 W"),
    p.Ability(
        "host",
        "CPU packages",
        "no permission",
        "RAPL is readable by root only (CVE-2020-8694); estimated",
        "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj",
    ),
    p.Ability("training", "pause", "supported", "1 process at its steps; a pause takes hold after 41 ms"),
    p.Ability("training", "duty cycle", "supported", "in whole steps; saves watts, not energy"),
    p.Ability("training", "unload", "not supported", "it has no checkpoint function", "carbontui.on_checkpoint(save)"),
)
SOURCES = (
    p.GridSource("Energy-Charts", "answers", "average_direct", "2020-04-15T21:20:00Z"),
    p.GridSource("Electricity Maps", "needs key", "average_lifecycle", None, "ELECTRICITYMAPS_API_KEY adds a forecast"),
    p.GridSource("typical days of DE 2020", "fallback", "average_direct"),
)
CURVE = (
    "NVIDIA H100 80GB HBM3 x 1: 3.70 steps/s at full speed",
    "  cap 250 W     246.1 W ±1.9  speed  84.0 % ±0.8  79.2 J/step",
    "  cap 310 W     304.8 W ±2.2  speed  93.1 % ±0.9  88.5 J/step",
    "  full          385.0 W ±2.4  speed 100.0 % ±0.4  104.1 J/step",
    "  parked         74.0 W ±0.6",
    "  pause 0.0 s, resume 0.1 s",
)


EVENTS = (
    p.Event(
        "2020-04-15T06:00:00Z",
        "plan",
        "new plan (start): done Thu 15:45, 2.11 kg in all",
        finish="2020-04-16T15:45:00Z",
        gco2_g=2110.0,
        whole_g=2110.0,
    ),
    p.Event("2020-04-15T18:24:00Z", "override", "ada@pts/3 paused it, until 20:24", "ada@pts/3"),
    p.Event("2020-04-15T20:24:00Z", "override_over", "the pause of ada@pts/3 is over", "ada@pts/3"),
    p.Event(
        "2020-04-15T21:15:00Z",
        "plan",
        "new plan (slot): done Thu 16:00, 2.06 kg in all",
        finish="2020-04-16T16:00:00Z",
        gco2_g=1195.0,
        whole_g=2060.0,
    ),
)


def grid() -> list[float]:
    """The recorded German week from START, per quarter hour."""
    text = (resources.files("carbontui") / "data" / "example-grid-de-2020-april.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [float(r["carbon_g_per_kwh"]) for r in rows if units.from_iso(r["time_utc"]) >= START]


GRID = grid()


def table(gpus: int) -> tuple[p.Level, ...]:
    return (
        p.Level("pause", "pause", PARKED_W * gpus + HOST_W, 0.0),
        p.Level("cap 250W", "cap", CAP_W * gpus + HOST_W, CAP_SPEED, CAP_W),
        p.Level("full", "full", FULL_W * gpus + HOST_W, 1.0),
    )


def layout(budget_s: float, gpus: int) -> tuple[list[str], float, float]:
    """A plausible plan: the cleanest hours of the budget run, the rest pauses. (level per slot, grams, kWh)."""
    slots = round(budget_s / SLOT_S)
    hours = [sum(GRID[h * 4 : h * 4 + 4]) / 4 for h in range(math.ceil(slots / 4))]
    slack = budget_s / WORK_S
    name, speed = ("full", 1.0) if slack < 1.25 else ("cap 250W", CAP_SPEED)
    wanted = min(len(hours), math.ceil(WORK_S / speed / 3600))
    keep = set(sorted(range(len(hours)), key=hours.__getitem__)[:wanted])
    levels = [name if i // 4 in keep else "pause" for i in range(slots)]
    watts = {info.name: info.power_w for info in table(gpus)}
    kwh = sum(watts[level] * SLOT_S / 3.6e6 for level in levels)
    grams = sum(watts[level] * SLOT_S / 3.6e6 * GRID[i] for i, level in enumerate(levels))
    return levels, grams, kwh


def coded(levels: Sequence[str]) -> tuple[tuple[str, int], ...]:
    out: list[tuple[str, int]] = []
    for name in levels:
        if out and out[-1][0] == name:
            out[-1] = (name, out[-1][1] + 1)
        else:
            out.append((name, 1))
    return tuple(out)


def plan_of(levels: list[str], grams: float, kwh: float, now: float, gpus: int) -> p.PlanView:
    gone = int((now - START) // SLOT_S)
    run = list(levels[gone:])
    while run and run[-1] == "pause":
        run.pop()
    first = START + (gone + 1) * SLOT_S - now
    return p.PlanView(
        made_at=units.iso(now - 40),
        start=units.iso(now),
        first_s=first,
        slot_s=SLOT_S,
        deadline=units.iso(START + len(levels) * SLOT_S),
        levels=coded(run),
        table=table(gpus),
        finish=units.iso(START + (gone + len(run)) * SLOT_S),
        gco2_g=grams,
        cost=kwh * 0.31,
        kwh=kwh,
        avoided_g=900.0,
        certificate=p.Certificate(grams * 0.9994, 0.0006, 2),
        explanation="Runs at 250 W per GPU through the two clean nights and pauses in both evening peaks.",
        baselines=(p.Baseline("run now", grams * 1.27, kwh * 0.33, units.iso(START + WORK_S), True),),
    )


def windows_of(plan: p.PlanView) -> tuple[p.PlanWindow, ...]:
    """The stretches of a plan; gains are what they may well be."""
    found = []
    at, infos = units.from_iso(plan.start), {info.name: info for info in plan.table}
    for i, (name, slots) in enumerate(plan.levels):
        end = at + slots * SLOT_S - (SLOT_S - plan.first_s if i == 0 else 0.0)
        index = round((at - START) // SLOT_S)
        mean = sum(GRID[index : index + slots]) / slots
        kwh = infos[name].power_w * (end - at) / 3.6e6
        gain = kwh * mean * (1.1 if infos[name].speed == 0 else 0.12)
        found.append(p.PlanWindow(units.iso(at), units.iso(end), name, mean, kwh, kwh * mean, gain))
        at = end
    return tuple(found)


def prices() -> p.PriceSlots:
    """Cheap at noon, dear in the evening, in the shape of the grid; published until the second midnight."""
    known = tuple(round(0.05 + 0.0009 * (g - 150), 5) for g in GRID[: 4 * 72])
    published = round((units.from_iso("2020-04-17T00:00:00Z") - START) / SLOT_S)
    lo, hi = (tuple(v if i < published else round(v * k, 5) for i, v in enumerate(known)) for k in (0.8, 1.2))
    return p.PriceSlots(units.iso(START), SLOT_S, known, lo, hi, "EUR", "day-ahead price")


def situated(status: p.Status) -> p.Status:
    """The status with the situation that its state, level and override amount to."""
    still = {"waiting": "off", "unloaded": "unload", "paused": "pause"}
    over, level = status.state not in p.LIVE_STATES, status.level or "full"
    applied = "off" if over else still.get(status.state, level if status.state in ("running", "throttled") else "full")
    held = status.override
    now = p.Situation(
        decided="off" if over else level,
        applied=applied,
        held_by="end" if over else "person" if held else "plan",
        until=held.until if held else status.next.at if status.next else None,
        watts=status.power_w,
        ahead=() if status.next is None else (status.next,),
    )
    return structs.replace(status, situation=now)


def scene(name: str = "running", gpus: int = 1, now: float | None = None) -> p.Snap:
    """A whole picture. `name` is a key of `reasons`, or override or demo."""
    now = now or (IN_PEAK if name in ("paused", "override", "unloaded") else NOW)
    budget_s = 1.8 * WORK_S
    levels, grams, kwh = layout(budget_s, gpus)
    plan = plan_of(levels, grams, kwh, now, gpus)
    windows = windows_of(plan)
    rest_g, rest_kwh = sum(one.gco2_g for one in windows), sum(one.kwh for one in windows)
    plan = structs.replace(plan, windows=windows, gco2_g=rest_g, kwh=rest_kwh, cost=rest_kwh * 0.31)
    plan = structs.replace(plan, baselines=(structs.replace(plan.baselines[0], gco2_g=rest_g * 1.27),))
    plan = structs.replace(plan, certificate=p.Certificate(rest_g * 0.9994, 0.0006, 2))
    gone = int((now - START) // SLOT_S)
    watts_of = {info.name: info.power_w for info in table(gpus)}
    state: Any = {
        "override": "paused",
        "feed_lost": "running",
        "unguarded": "running",
        "demo": "running",
        "capped": "throttled",
        "priced": "running",
    }.get(name, name)
    if name == "no_work":
        state = "running"
    level = {"paused": "pause", "override": "pause", "unloaded": "pause"}.get(name, levels[gone])
    still = state in ("paused", "unloaded")
    done_frac = sum(CAP_SPEED for lv in levels[:gone] if lv != "pause") * SLOT_S / WORK_S
    changes = next(((i, lv) for i, lv in enumerate(levels[gone:], gone) if lv != levels[gone]), None)
    how: Any = "simulated" if name == "demo" else "measured"
    board_w = {"paused": PARKED_W, "override": PARKED_W, "unloaded": 31.0}.get(name, CAP_W - 4.0)
    boards = tuple(
        p.Gpu(
            f"GPU-{i}",
            "NVIDIA H100 80GB HBM3",
            round(board_w + 3.7 * math.sin(i * 2.1), 1),
            CAP_W if not still else 700.0,
            PARKED_W + 1.5 * math.cos(i * 1.3),
            (61 << 30) + (i << 28) if state != "unloaded" else 0,
            0.0 if still else 0.97 - 0.01 * (i % 3),
            temp_c=41.0 if still else 58.0,
            sm_mhz=345.0 if still else 1410.0,
            slowed="" if still else "its power limit",
        )
        for i in range(gpus)
    )
    past = [watts_of[lv] * (1 + 0.02 * math.sin(i * 1.7)) for i, lv in enumerate(levels[: gone + 1])]
    used = sum(past) * SLOT_S / 3.6e6
    emitted = sum(w * SLOT_S / 3.6e6 * GRID[i] for i, w in enumerate(past))
    if name == "override":
        told = "Paused by ada@pts/3 until 20:24; the rest is planned around it."
        plan = structs.replace(plan, explanation=told)
    reasons: dict[str, tuple[Any, str]] = {
        "running": ("plan", "as planned: the evening peak is over"),
        "throttled": ("plan", "as planned: capped through the middle of the night"),
        "paused": ("plan", "as planned: the evening peak is on"),
        "override": ("override", "a user paused it"),
        "feed_lost": ("feed_lost", "the grid source fell silent 42 min ago; the plan is kept"),
        "unguarded": ("unguarded", "as planned; the monitor process is gone: no restart"),
        "unloaded": ("plan", "as planned: off the GPU until the peak is over"),
        "demo": ("plan", "as planned: the evening peak is over"),
        "no_work": ("no_work", "the amount of work is unknown: nothing is paused; say --steps or --work"),
        "done": ("exited", "the command ended by itself"),
        "failed": ("exited", "the command failed"),
    }
    code, text = reasons[{"capped": "throttled", "priced": "running"}.get(name, name)]
    notices = {
        "feed_lost": ("carbonintensity feed silent for 42 min; using the forecast of 20:40",),
        "unguarded": ("unguarded: the monitor process is gone, nothing restarts the supervisor or the command",),
        "override": ("no new plan: the worker took longer than 20 s", "one of its boards is used by others as well"),
    }.get(name, ())
    over = name in ("done", "failed")
    realised = gone + 1
    horizon = 4 * 72
    spread = [0.0 if i < realised else min(0.16, 0.02 + 0.0012 * (i - realised)) for i in range(horizon)]
    mean = [GRID[i] * (1.0 if i < realised else 1 + 0.03 * math.sin(i / 9)) for i in range(horizon)]
    grid_how: Any = "replay" if name == "demo" else "forecast"
    shown: Any = "replay" if name == "demo" else "measured"
    prov = {
        "power_w": p.Provenance(how, "NVML power average" if how == "measured" else "simulated board", 0.4),
        **{f"gpus.{i}.power_w": p.Provenance(how, "NVML power average", 0.4) for i in range(gpus)},
        "energy_gpu_kwh": p.Provenance("replay" if name == "demo" else "measured", "96% counter, 4% power"),
        "energy_wall_kwh": p.Provenance(
            "replay" if name == "demo" else "estimated", "GPUs, CPU, host constant and PUE"
        ),
        "gco2_g": p.Provenance(shown, "recorded German grid"),
        "avoided_g": p.Provenance(
            "replay" if name == "demo" else "estimated", "at full speed from the start, realised intensity"
        ),
        "intensity": p.Provenance(grid_how, "recorded German grid", 240.0),
        "finish_expected": p.Provenance("forecast", "the plan in force"),
        "at_end": p.Provenance("forecast", "metered so far, then the plan in force on the recorded German grid"),
    }
    steps = 14_400
    until = units.iso(now + 2 * 3600)
    loss = tuple(4.6 * (i + 3) ** -0.28 + 0.04 * math.sin(i * 1.9) for i in range(120))
    known = name != "no_work"
    status = p.Status(
        job="k7q2mz",
        name="charlm",
        host="gpubox",
        measured_at=units.iso(now),
        state=state,
        reason=p.Reason(code, text),
        level=level,
        next=p.Next(until, "full")
        if name == "override"
        else p.Next(units.iso(START + changes[0] * SLOT_S), changes[1])
        if changes and known and not over
        else None,
        override=p.Override("pause", None, until, "ada@pts/3") if name == "override" else None,
        override_gen=4 if name == "override" else 0,
        budget=p.BudgetStatus(units.iso(START), plan.deadline if known else None, 1.8 if known else None, known),
        finish_expected=plan.finish if known else None,
        pids=p.Pids(None if name == "unguarded" else 4001, 4002, 4003, 4010),
        clients=1,
        step=steps if name == "done" else round(done_frac * steps),
        steps_total=steps if known else None,
        rate_steps_per_s=None if still or over else 0.14,
        loss=round(loss[-1], 4),
        gpus=() if over else boards,
        power_w=None if over else round(sum(b.power_w or 0 for b in boards) + HOST_W, 1),
        energy_gpu_kwh=used * 0.82,
        energy_wall_kwh=used,
        gco2_g=emitted,
        avoided_g=emitted * 0.27,
        cost=p.Cost(used * 0.31, "EUR"),
        at_end=None
        if over or not known
        else p.AtEnd(
            finish=plan.finish,
            energy_wall_kwh=used + rest_kwh,
            gco2_g=emitted + rest_g,
            gco2_lo_g=emitted + rest_g * 0.93,
            gco2_hi_g=emitted + rest_g * 1.08,
            run_now_g=(emitted + rest_g) * 1.27,
            avoided_g=(emitted + rest_g) * 0.27,
            avoided_lo_g=emitted * 0.2,
            avoided_hi_g=emitted * 0.4,
            cost=p.Cost((used + rest_kwh) * 0.31, "EUR"),
        ),
        events=tuple(one for one in EVENTS if one.by) if name in ("running", "capped") else (),
        intensity=p.Intensity(mean[gone], "average_direct", "DE"),
        exit=p.Exit(0, None) if name == "done" else p.Exit(1, None) if name == "failed" else None,
        certificate=plan.certificate,
        notices=notices,
        provenance=prov,
    )
    status = situated(status)
    of_boards = {board.uuid: tuple(past) for board in boards}
    series = p.ChartSeries(
        now=units.iso(now),
        watts=p.Watts(units.iso(START), SLOT_S, tuple(round(w, 1) for w in past), of_boards),
        intensity=p.Band(
            units.iso(START),
            SLOT_S,
            tuple(round(m, 1) for m in mean),
            tuple(round(m * (1 - s), 1) for m, s in zip(mean, spread, strict=True)),
            tuple(round(m * (1 + s), 1) for m, s in zip(mean, spread, strict=True)),
            realised,
            "DE",
            "average_direct",
            "recorded German grid",
            grid_how,
        ),
        loss=loss,
        replay_speed=2057.0 if name == "demo" else None,
        price=prices() if name == "priced" else None,
    )
    frontier = None
    if known and not over:
        points = []
        for i in range(41):
            budget = (1.0 + i * 0.04) * WORK_S
            lv, _, e = layout(budget, gpus)
            g = (emitted + rest_g) * (1 + 0.42 * math.exp(-i / 7) - 0.42 * math.exp(-20 / 7) - 0.004 * (i - 20))
            points.append(p.FrontierPoint(budget, g, e * 0.31, e, coded(lv[gone:])))
        points[20] = structs.replace(points[20], cost=(used + rest_kwh) * 0.31, kwh=used + rest_kwh)
        frontier = p.Frontier(tuple(points), 20, WORK_S)
    return p.Snap(1, status, series, plan if known and not over else None, frontier)


class FakeSupervisor:
    """Serves `snap` to viewers; `push` sends a delta; `commands` is what was asked."""

    def __init__(self, path: Path, snap: p.Snap, log: str = LOG) -> None:
        self.path, self.snap, self.log = path, snap, log.encode()
        self.levels: tuple[str | None, ...] = ()
        self.events = EVENTS
        self.commands: list[p.Cmd] = []
        self.previews: list[p.Preview] = []
        self.rates_hz: list[float] = []
        self.result = p.Result(0, True, text="paused at step 1204")
        self.preview_is_answered = True
        self.preview_error: str | None = None
        self.preview_plan: p.PlanView | None = None
        """It knows no question about slots and hours, and leaves such fields out."""
        self.log_is_read = True
        """Otherwise a question about the output is never answered: the disk is sick."""
        self.viewing = asyncio.Event()
        self.asked = asyncio.Event()
        self._seq = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._all: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FakeSupervisor:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen; again after `close`, as a successor would."""
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def close(self) -> None:
        """Hang up on everyone, and leave nobody to connect to."""
        assert self._server is not None
        self._server.close()
        self.path.unlink(missing_ok=True)
        self.drop()

    def drop(self) -> None:
        """Hang up on everyone."""
        self.viewing.clear()
        for writer in list(self._all):
            writer.close()

    def push(self, *, gap: bool = False, **sections: Any) -> None:
        """Change sections and send them; `gap` leaves a number out."""
        tail = sections.pop("series_tail", UNSET)
        self.snap = structs.replace(self.snap, **sections)
        self._seq += 2 if gap else 1
        self._say(p.Delta(self._seq, series_tail=tail, **sections))

    def status(self, **fields: Any) -> p.Status:
        return situated(structs.replace(self.snap.status, **fields))

    def _say(self, message: msgspec.Struct) -> None:
        for writer in list(self._writers):
            writer.write(p.encode(message))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._all.add(writer)
        try:
            while line := await reader.readline():
                self._receive(writer, p.decode_from_peer(line))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            self._all.discard(writer)
            writer.close()

    def _receive(self, writer: asyncio.StreamWriter, message: p.FromPeer | None) -> None:
        if isinstance(message, p.Hello):
            writer.write(p.encode(p.Welcome(p.VERSION, "0")))
        elif isinstance(message, p.View):
            self._seq += 1
            self.rates_hz.append(message.rate_hz)
            self._writers.add(writer)
            writer.write(p.encode(structs.replace(self.snap, seq=self._seq)))
            self.viewing.set()
        elif isinstance(message, p.Cmd):
            self.commands.append(message)
            self.asked.set()
            writer.write(p.encode(structs.replace(self.result, id=message.id)))
        elif isinstance(message, p.Preview):
            self.previews.append(message)
            self.asked.set()
            if not self.preview_is_answered:
                return
            plan = self.preview_plan
            found = (plan.finish, plan.gco2_g, plan.cost, plan.kwh) if plan else (None, None, None, None)
            if (message.forbid or message.slot) and self.snap.plan and self.snap.frontier:
                plan = structs.replace(self.snap.plan, levels=self.snap.plan.levels[1:])  # another course
                held = self.snap.frontier.points[self.snap.frontier.chosen or 0]
                found = (self.snap.plan.finish, held.gco2_g + 38.0, held.cost, held.kwh)
            text = "Thu 02:00 to 04:15" if message.forbid else message.slot or ""
            held = self.snap.frontier.points[self.snap.frontier.chosen or 0] if self.snap.frontier else None
            now = self.snap.plan and held and (self.snap.plan.finish, held.gco2_g, held.cost, held.kwh)
            instead = p.PlanTotals(self.snap.plan, *now) if now else None
            writer.write(p.encode(p.Previewed(message.id, plan, *found, self.preview_error, text, instead=instead)))
        elif isinstance(message, p.LogRead) and self.log_is_read:
            size = len(self.log)
            at = max(0, size + message.offset) if message.offset < 0 else min(message.offset, size)
            data = self.log[at : at + message.max]
            writer.write(p.encode(p.LogAnswer(message.id, at, at + len(data), size, data.decode(errors="replace"))))
        elif isinstance(message, p.HistoryAsk):
            start = units.from_iso(self.snap.series.now) - message.span
            watts = p.Watts(units.iso(start), message.span / message.buckets)
            kinds = tuple(KINDS.get(level) for level in self.levels)
            writer.write(p.encode(p.HistoryAnswer(message.id, watts, self.levels, (), kinds)))
        elif isinstance(message, p.EventsAsk):
            writer.write(p.encode(p.EventsAnswer(message.id, self.events)))
        elif isinstance(message, p.AbilitiesAsk):
            writer.write(p.encode(p.AbilitiesAnswer(message.id, ABILITIES, CURVE)))
        elif isinstance(message, p.GridAsk):
            writer.write(p.encode(p.GridAnswer(message.id, SOURCES, "", "wind −3.1 GW, gas +2.4 GW since 18:00")))
        elif isinstance(message, p.StatusAsk):
            writer.write(p.encode(p.StatusAnswer(message.id, self.snap.status)))


def past_levels(gpus: int = 1, buckets: int = 240, now: float = NOW) -> tuple[str | None, ...]:
    levels, _, _ = layout(1.8 * WORK_S, gpus)
    return tuple(levels[int(i / buckets * (now - START) // SLOT_S)] for i in range(buckets))


async def _main(path: str, name: str, gpus: int, move: bool) -> None:
    async with FakeSupervisor(Path(path), scene(name, gpus)) as fake:
        fake.levels = past_levels(gpus)
        tick = 0
        while True:
            await asyncio.sleep(1)
            tick += 1
            if move:
                jitter = tuple(
                    structs.replace(g, power_w=round((g.power_w or 0) + 2.5 * math.sin(tick * 1.3 + i), 1))
                    for i, g in enumerate(scene(name, gpus).status.gpus)
                )
                at = units.iso(NOW + tick)
                total = round(sum(g.power_w or 0 for g in jitter) + HOST_W, 1)
                used = fake.snap.status.energy_wall_kwh + total / 3.6e6
                fake.log += (
                    f"step {9800 + tick * 3:>6} | loss {1.43 + 0.01 * math.sin(tick):.4f} | lr 3.0e-04\n".encode()
                )
                fake.push(
                    status=fake.status(
                        measured_at=at, gpus=jitter, power_w=total, energy_wall_kwh=used, step=fake.snap.status.step + 3
                    )
                )


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--scene", default="running")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--still", action="store_true")
    args = parser.parse_args()
    asyncio.run(_main(args.socket, args.scene, args.gpus, not args.still))
