"""What `carbontui status` says of boards, for people."""

from __future__ import annotations

import time

import click
import msgspec
from click.testing import CliRunner

from carbontui import cli, protocol, units
from carbontui.commands.status import report
from carbontui.text import figures
from carbontui.text.account import NoticesShown, narrate


def status(state: protocol.State, watts: float | None) -> protocol.Status:
    return protocol.Status(
        job="abc",
        name="t",
        host="h",
        measured_at="2026-01-05T12:00:00Z",
        state=state,
        reason=protocol.Reason("exited", "the command ended with exit code 0"),
        override=protocol.Override("cap", 300.0, None, "ada@pts/1"),
        gpus=(protocol.Gpu("GPU-a", "H100", watts, 300.0, None, None, None),),
        provenance={"gpus.0.power_w": protocol.Provenance("measured", "nvml avg1s")},
    )


def test_a_job_that_is_over_draws_nothing_and_is_overruled_by_nobody() -> None:
    assert any(row.startswith("gpu 0") and "299 W" in row for row in report(status("running", 299.0)))
    over = msgspec.structs.replace(status("failed", 299.0), finish_expected="2030-01-01T00:00:00.000Z")
    assert not [row for row in report(over) if row.startswith(("gpu", "override", "finish"))]


def test_watts_that_are_not_known_are_not_called_measured() -> None:
    (row,) = (row for row in report(status("running", None)) if row.startswith("gpu 0"))
    assert "of 300 W" in row and "measured" not in row


def test_a_board_is_called_by_the_drivers_number() -> None:
    one = status("running", 299.0)
    (gpu,) = one.gpus
    third = msgspec.structs.replace(one, gpus=(msgspec.structs.replace(gpu, index=3),))
    assert any(row.startswith("gpu 3") for row in report(third))


def test_the_kind_of_intensity_is_said_in_words() -> None:
    one = msgspec.structs.replace(status("running", 299.0), intensity=protocol.Intensity(387.0, "average_direct", "DE"))
    assert "intensity  387 gCO2/kWh in DE (average, direct)" in report(one)
    assert not [row for row in report(one) if "forecast since" in row]
    late = protocol.Intensity(387.0, "average_direct", "DE", units.iso(units.from_iso(one.measured_at) - 10800), 10800)
    assert [row for row in report(msgspec.structs.replace(one, intensity=late)) if "ago; forecast since" in row]
    own = msgspec.structs.replace(one, intensity=protocol.Intensity(387.0, "given", "DE"))
    assert "intensity  387 gCO2/kWh in DE (as given)" in report(own)


def test_a_job_that_is_started_again_is_not_said_to_be_unloaded() -> None:
    left = protocol.Reason("exited", "unloaded; the scheduler is to start it again")
    before = msgspec.structs.replace(status("unloaded", None), reason=left)
    assert list(narrate(None, before, NoticesShown())) == []
    assert list(narrate(status("running", None), before, NoticesShown())) == [left.text]


def test_what_holds_a_job_is_told_once_and_its_end_by_the_summary_alone() -> None:
    held = msgspec.structs.replace(status("paused", None), reason=protocol.Reason("person", "you paused it"))
    assert list(narrate(status("running", None), held, NoticesShown())) == ["paused: you paused it"]
    assert list(narrate(held, msgspec.structs.replace(held, level="full"), NoticesShown())) == []
    assert list(narrate(held, status("done", None), NoticesShown())) == []


def test_every_command_that_prints_a_time_has_utc(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    for verb in ("attach", "status", "plan", "ls", "log", "line", "report", "grid", "compare", "history", "pause"):
        command = cli.cli.get_command(click.Context(cli.cli), verb)
        assert any("--utc" in option.opts for option in command.params), verb
    assert not any("--utc" in option.opts for option in cli.cli.get_command(click.Context(cli.cli), "run").params)
    try:
        assert CliRunner().invoke(cli.cli, ["ls", "--utc"]).exit_code == 0
        assert figures.named_clock(1.8e9, 1.8e9) == "08:00 UTC"
    finally:
        monkeypatch.undo()
        time.tzset()
