"""What the screen gets to see of the grid: the hours around now while a job lives, all of them once it is over."""

from pathlib import Path

import pytest
from msgspec import structs
from states import NOW_S, decided, door, job_state, spec

from carbontui import units
from carbontui.grid import opening
from carbontui.grid.settings import GridSettings
from carbontui.job.files.journal import Journal
from carbontui.job.supervisor.record.accounting import Accounting
from carbontui.job.supervisor.shell.grid import GridReader, open_feed
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Replay
from carbontui.protocol import State

HOUR = 3600.0


@pytest.mark.parametrize(("state", "shown_h"), [("running", 36), ("done", 60)])
def test_a_job_of_sixty_hours_is_seen_whole_once_it_is_over(tmp_path: Path, state: State, shown_h: int) -> None:
    hours = "".join(f"{units.iso(NOW_S + hour * HOUR)},{200 + hour % 24}\n" for hour in range(-24, 90))
    (tmp_path / "grid.csv").write_text(f"time_utc,carbon_g_per_kwh\n{hours}")
    now_s = NOW_S + 60 * HOUR
    feed = opening.open_feed(
        "DE",
        settings=opening.settings(GridSettings(offline=True)),
        now=lambda: now_s,
        grid_file=str(tmp_path / "grid.csv"),
    )
    job = job_state(spec=spec(dir=str(tmp_path)), decision=decided(state, "full", "plan", "by the plan"))
    accounts = Accounting(job.spec, Clock(), Journal(tmp_path / "j.db"), "boot")
    reader = GridReader(door(job), feed, accounts, worker=None, ports=None)  # type: ignore[arg-type]
    seen = reader.observe(now_s)
    assert seen is not None and None not in seen.mean[: seen.realised]
    assert seen.realised * seen.step_s / HOUR == pytest.approx(shown_h, abs=0.5)


def test_a_live_job_names_its_grid_file_and_a_replay_its_recording(tmp_path: Path) -> None:
    file = tmp_path / "my.csv"
    file.write_text(f"time_utc,carbon_g_per_kwh\n{units.iso(NOW_S)},200\n{units.iso(NOW_S + HOUR)},300\n")
    live = spec(dir=str(tmp_path), grid=str(file), offline=True)
    replay = structs.replace(live, replay=Replay(start_s=NOW_S, speed=60.0, wall_origin_s=NOW_S))
    assert open_feed(live, Clock(), print).past_source == "grid: my.csv"
    assert open_feed(replay, Clock(), print).past_source == "recorded: my.csv"
