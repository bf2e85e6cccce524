"""Curves that were not measured here: public ones until a job is calibrated, imported ones, and the error of both."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from house import until
from nvml_machine import machine_with  # noqa: F401

from carbontui.assumed import job as assumed_job
from carbontui.power.curves import files, public
from carbontui.power.curves.curve import Curve, Point, energy_error, imported, rescaled


def point(cap_w: float | None, power_w: float, speed: float) -> Point:
    kind = "full" if cap_w is None else "cap"
    return Point(kind=kind, cap_w=cap_w, power_w=power_w, power_se=2.0, speed=speed, speed_se=0.004)


LEVELS = (point(400.0, 396.0, 0.83), point(None, 680.0, 1.0))


def measured(mark: str = "x", measured_s: float = 1.0) -> Curve:
    known = {"gpu": "NVIDIA H100 80GB HBM3", "gpus": 1, "points": LEVELS, "levels": LEVELS, "rate_steps_per_s": 9.0}
    return Curve(fingerprint=mark, measured_s=measured_s, **known)


def test_the_table_gives_what_its_trainings_show_with_their_spread() -> None:
    assert len(public.shapes()) == 24
    low, mid, high = sorted(public.expected(), key=lambda level: level.share)
    # of 17 trainings that a limit at 72 % of their watts holds back, most run at 0.82 to 0.92 of full speed
    assert (mid.watts, mid.speed) == (pytest.approx(0.676, abs=0.002), pytest.approx(0.875, abs=0.002))
    assert low.speed_se > mid.speed_se > high.speed_se and low.speed_se > 0.1, "below lies the cliff"
    assert public.expected("NVIDIA RTX 6000 Ada Generation") == public.expected(), "another board"
    own = {level.share: level for level in public.expected("Tesla V100-SXM2-32GB")}
    assert own[0.72].speed_se < mid.speed_se and own[0.72].speed != mid.speed


def test_a_job_that_does_not_exist_has_the_same_curve() -> None:
    found = [(level.share, level.watts, level.speed) for level in public.expected()]
    assert [row for row in assumed_job.CURVE if row[0] < 1] == [pytest.approx(row, abs=6e-4) for row in found]


@pytest.mark.parametrize(("full_w", "found_w", "caps"), [(680, 700, [490, 585]), (680, 500, [490]), (220, 700, [])])
def test_public_caps_lie_where_they_bind_and_are_allowed(full_w: float, found_w: float, caps: list[float]) -> None:
    made = public.curve("H100", 1, full_w, limit_min_w=200, limit_found_w=found_w, measured_s=0.0, mark="x")
    assert [p.cap_w for p in made.levels if p.cap_w] == caps if made else not caps
    if made:
        assert made.basis == "public" and all(p.power_w < (p.cap_w or 1e9) for p in made.levels)
        assert energy_error(made, 490.0) == pytest.approx(0.06, abs=0.01) and energy_error(made, None) == 0


def test_a_hopper_s_error_covers_what_is_published_of_hoppers() -> None:
    own, others = public.expected("NVIDIA H100 80GB HBM3"), public.expected("NVIDIA L40S")
    at_600_w = next(level for level in own if level.share == 0.86)
    assert at_600_w.speed - 2 * at_600_w.speed_se <= 0.85 + 1e-9, "a cap of 600 W of 700 W costs 2 to 15 %, by the work"
    assert at_600_w.speed + 2 * at_600_w.speed_se >= 0.98
    assert [level.speed for level in own] == [level.speed for level in others], "no training on one is in the table"


def test_an_imported_curve_is_less_sure_and_laid_on_these_boards() -> None:
    there = measured()
    here = rescaled(imported(there), 612.0)
    assert [p.cap_w for p in here.levels] == [360.0, None] and here.levels[-1].power_w == pytest.approx(612.0)
    assert here.levels[0].speed == 0.83
    assert energy_error(there, 400.0) < 0.01 < 0.05 < energy_error(here, 360.0) < 0.06
    assert imported(there).points[-1].speed_se == 0.004, "at full speed is the reference on any board"


def test_a_measured_curve_stays_and_what_was_brought_is_found(tmp_path: Path) -> None:
    files.save(imported(measured()), tmp_path)
    assert files.load("NVIDIA H100 80GB HBM3", 1, "x", tmp_path).basis == "imported"
    assert files.of_script("x", tmp_path) is None, "only what was measured here is carried on"
    files.save(measured(), tmp_path)
    with pytest.raises(OSError, match="measured on these GPUs stays"):
        files.save(imported(measured()), tmp_path)
    assert files.of_script("x", tmp_path) == measured()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "not a speed curve"),
        ("[" * 100_000, "not a speed curve"),
        (" " * (1 << 20) + "{}", "larger than any"),
        (msgspec.structs.replace(measured(), schema="other/1"), "schema"),
        (msgspec.structs.replace(measured(), simulated=True), "simulated"),
        (msgspec.structs.replace(measured(), points=LEVELS[:1]), "at full speed"),
        (msgspec.structs.replace(measured(), levels=(point(300.0, 1e9, 0.5),)), "an impossible level"),
        (msgspec.structs.replace(measured(), levels=(point(300.0, 100.0, -1.0),)), "an impossible level"),
    ],
)
def test_a_file_that_is_no_curve_is_refused_with_its_reason(tmp_path: Path, text: object, why: str) -> None:
    file = tmp_path / "c.json"
    file.write_bytes(text.encode() if isinstance(text, str) else msgspec.json.encode(text))
    with pytest.raises(ValueError, match=why):
        files.read(file)


def test_a_job_without_calibration_plans_with_public_or_brought_curves(
    house, machine_with: Callable, tmp_path: Path
) -> None:
    sim = machine_with()
    sim.load(1.0)
    house.env |= sim.env()
    house.env.pop("CUDA_VISIBLE_DEVICES", None)
    options = ("--intensity", "300", "--zone", "DE", "--work", "10h", "--budget", "2x")
    job = house.start(*options)
    job.until_steps()

    def shown(of) -> dict:
        done = house.cli("calibrate", "--show", "--json", of.id)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    curve = until(lambda: shown(job), what="a curve", every=0.5)
    assert curve["basis"] == "public" and [p["cap_w"] for p in curve["levels"]] == [490.0, 585.0, None]
    assert "public measurements" in house.cli("calibrate", "--show", job.id).stdout
    plan = until(
        lambda: (p := house.cli("plan", job.id).stdout) and "cap " in p and p, what="a plan with caps", every=0.5
    )
    assert "public measurements of other trainings" in plan and "would pay: carbontui learn speed" in plan
    assert "nothing was measured" not in plan and house.cli("calibrate", "--export", "x", job.id).returncode == 3
    house.cli("stop", "--now", "--yes", job.id, check=True)
    assert sim.get("limit_mw") == 700_000

    command = [sys.executable, str(house.script), "100000", "0.01", "0", str(house.root / "t.steps")]
    mark = files.fingerprint(command, house.root)
    there = tmp_path / "there"
    files.save(measured(mark), there)
    (file,) = there.iterdir()
    brought = house.cli("calibrate", "--import", str(file))
    assert brought.returncode == 0 and "NVIDIA H100 80GB HBM3 x 1: 2 levels, joules per step ±6 %" in brought.stdout
    assert house.cli("calibrate", "--import", str(tmp_path / "no")).returncode == 2
    second = house.start(*options)
    second.until_steps()
    found = until(lambda: shown(second), what="the imported curve", every=0.5)
    assert found["basis"] == "imported" and found["levels"][0]["cap_w"] == 400.0
    house.cli("stop", "--now", "--yes", second.id, check=True)
    files.save(measured(mark, measured_s=9.0), house.home / "curves")
    target = tmp_path / "carry.json"
    assert "2 levels" in house.cli("calibrate", "--export", str(target), second.id, check=True).stdout
    assert msgspec.json.decode(target.read_bytes(), type=Curve).measured_s == 9.0
