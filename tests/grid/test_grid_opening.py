"""A feed is opened one way: the grid's environment variables mean the same to jobs, to `grid` and elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from grid_site import Site, good

from carbontui import config
from carbontui.commands import doctor
from carbontui.commands import grid as grid_verb
from carbontui.commands.run import run as run_verb
from carbontui.commands.support.command import Failure
from carbontui.grid import recorded, zones
from carbontui.grid.feed import Feed
from carbontui.job.supervisor.shell.grid import open_feed
from carbontui.job.terms.clock import Clock
from carbontui.job.terms.spec import Options


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    monkeypatch.delenv("CARBONTUI_OFFLINE", raising=False)
    monkeypatch.delenv("CARBONTUI_GRID_URLS", raising=False)
    return tmp_path


def job_feed(said: list[str] | None = None, **more: object) -> Feed:
    options = Options(job="j", name="j", dir="/", argv=("true",), cwd="/", log="", socket="", created_s=0.0, zone="GB")
    return open_feed(with_options(options, **more), Clock(), (said if said is not None else []).append)


def with_options(options: Options, **more: object) -> Options:
    return Options(**{name: more.get(name, getattr(options, name)) for name in Options.__struct_fields__})


@pytest.mark.parametrize(
    ("word", "offline"), [("0", False), ("", False), ("off", False), ("1", True), ("true", True), ("yes", True)]
)
def test_offline_means_the_same_to_a_job_and_to_grid(monkeypatch: pytest.MonkeyPatch, word: str, offline: bool) -> None:
    monkeypatch.setenv("CARBONTUI_OFFLINE", word)
    asked = grid_verb.settings_of(config.load().settings).offline
    assert asked is offline
    assert ("offline" in job_feed().note) is offline
    assert "offline" in job_feed(offline=True).note


async def test_other_base_urls_reach_a_job_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.respond = good("neso", time.time())
    monkeypatch.setenv("CARBONTUI_GRID_URLS", f"neso=http://127.0.0.1:{site.port}")
    feed = job_feed()
    await feed.refresh()
    assert any("/intensity/" in request.path for request in site.seen)
    assert feed.outlook(time.time(), 0.0, 3600.0, 900.0).how == "forecast"


@pytest.mark.parametrize("text", ["neso", "neso=ftp://x", "nemo=http://x"])
def test_a_base_url_that_cannot_be_used_is_named_and_costs_a_job_nothing_else(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("CARBONTUI_GRID_URLS", text)
    with pytest.raises(Failure, match="CARBONTUI_GRID_URLS") as caught:
        grid_verb.settings_of(config.load().settings)
    assert caught.value.code == 2
    said: list[str] = []
    feed = job_feed(said)
    assert feed.zone == "GB" and "CARBONTUI_GRID_URLS" in said[0] and "CARBONTUI_GRID_URLS" in feed.note


def test_keys_that_others_can_read_are_refused_aloud_by_a_job_as_well(home: Path) -> None:
    path = home / "keys.env"
    path.write_text("EIA_API_KEY=s3cret\n")
    path.chmod(0o644)
    said: list[str] = []
    feed = job_feed(said)
    assert "chmod 600" in said[0] and "chmod 600" in feed.note and "s3cret" not in feed.note
    done = CliRunner().invoke(run_verb, ["--detach", "--", "no-such-command"], standalone_mode=False)
    assert isinstance(done.exception, Failure) and "chmod 600" not in done.output  # nothing was started


def test_run_says_that_it_goes_on_without_the_keys(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / "keys.env"
    path.write_text("EIA_API_KEY=s3cret\n")
    path.chmod(0o644)
    monkeypatch.setattr("carbontui.commands.run.start_and_follow", lambda options, **_: None)
    done = CliRunner().invoke(run_verb, ["--zone", "GB", "--", "true"], standalone_mode=False)
    assert done.exception is None and "chmod 600" in done.output and "s3cret" not in done.output


@pytest.mark.parametrize("clock", ["Europe/Berlin", "America/New_York", "UTC", "CET-1CEST", "Asia/Tokyo"])
@pytest.mark.parametrize("named", [None, "", "germany", "Atlantis"])
def test_run_grid_and_doctor_find_the_same_zone_or_give_the_same_reason(
    monkeypatch: pytest.MonkeyPatch, clock: str, named: str | None
) -> None:
    monkeypatch.setenv("TZ", clock)
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    if named is not None:
        monkeypatch.setenv("CARBONTUI_ZONE", named)
    started: list[Options] = []
    monkeypatch.setattr("carbontui.commands.run.start_and_follow", lambda options, **_: started.append(options))
    ran = CliRunner().invoke(run_verb, ["--", "true"], standalone_mode=False).exception
    shown = CliRunner().invoke(grid_verb.grid, [], standalone_mode=False)
    found = doctor.grid_findings()[0]
    if isinstance(shown.exception, Failure):
        why = ran.message if isinstance(ran, Failure) else started[0].zone_why
        assert shown.exception.message == why == found.text
    else:
        assert started[0].zone == shown.output.split()[0] and f"zone {started[0].zone};" in found.text


def test_a_zone_the_clock_does_not_tell_is_asked_for_with_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    zone, why = zones.find(None)
    assert zone is None and "--zone" in why and "CARBONTUI_ZONE" in why and "US-NY-NYIS" in why
    with pytest.raises(ValueError, match="US-NY-NYIS"):
        zones.sure(None)


async def test_a_persons_intensity_stands_at_all_hours_and_no_source_of_it_is_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARBONTUI_GRID_URLS", f"neso=http://127.0.0.1:{site.port}")
    now = time.time()
    for zone, signal in (("GB", "average"), (None, "marginal")):
        feed = job_feed(intensity_g_per_kwh=123.5, zone=zone, signal=signal)
        await feed.refresh()
        seen = feed.outlook(now, 7200.0, 7200.0, 900.0)
        assert set(seen.mean) == set(seen.lo) == set(seen.hi) == {123.5}
        assert (seen.zone, seen.how, feed.note) == ("yours", "estimated", "") and seen.source.startswith("yours: 123.5")
        rows = feed.realised(now - 5000.0, now)
        assert {row.value for row in rows} == {123.5} and rows[0].start_s <= now - 5000.0
        assert rows[-1].start_s + rows[-1].dur_s >= now
        assert feed.forecast_request(now, 8, 900.0) is None
    assert not site.seen


async def test_prices_are_still_those_of_the_zone_beside_a_persons_intensity(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARBONTUI_GRID_URLS", f"octopus-agile=http://127.0.0.1:{site.port}")
    feed = job_feed(intensity_g_per_kwh=100.0, currency="GBP")
    await feed.refresh()
    assert site.seen and all("standard-unit-rates" in request.path for request in site.seen)


def test_a_persons_own_curve_is_called_no_more_than_is_known(home: Path) -> None:
    file = home / "curve.csv"
    file.write_text("time_utc,carbon_g_per_kwh\n2030-01-01T00:00:00Z,300\n2030-01-01T01:00:00Z,100\n")
    feed = job_feed(grid=str(file))
    assert feed.signal == "given" and [source.signal for source in feed.sources][:1] == ["given"]
    assert feed.outlook(1893456000.0 + 1800.0, 0.0, 3600.0, 900.0).signal == "given"
    assert job_feed(grid=str(file), signal="marginal").signal == "marginal"
    assert job_feed(grid=str(recorded.example_path())).signal == "average_direct"
    assert job_feed(zone=None, intensity_g_per_kwh=300.0, offline=True).signal == "given"
