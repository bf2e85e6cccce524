"""`carbontui grid` and `carbontui zones` as a person calls them; what the supervisor imports stays light."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from grid_site import Answer, good, served
from record_answers import record

from carbontui.commands import grid as verbs
from carbontui.commands.support.command import Failure


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    monkeypatch.setenv("CARBONTUI_OFFLINE", "1")
    monkeypatch.setenv("TZ", "UTC")

    def call(*args: str, verb=verbs.grid):
        return CliRunner().invoke(verb, list(args), standalone_mode=False)

    return call


def test_offline_it_shows_typical_days_and_says_so(run) -> None:
    shown = run("--zone", "germany")
    assert shown.exit_code == 0 and "typical days of DE" in shown.output and "offline" in shown.output
    data = json.loads(run("--zone", "GB", "--json").output)
    assert data["schema"] == "carbontui.grid/1" and data["how"] == "default" and len(data["outlook"]["mean"]) == 25
    assert data["sources"][-1]["state"] == "fallback"


def test_an_intensity_of_ones_own_is_what_a_job_here_counts(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a zone that is named its data are shown; a machine whose zone is not known needs none."""
    monkeypatch.setenv("CARBONTUI_INTENSITY", "250")
    data = json.loads(run("--json").output)
    assert set(data["outlook"]["mean"]) == {250} and "yours" in data["source"]
    shown = run().output
    assert "now 250 gCO2/kWh" in shown and "for comparison" not in shown
    assert "typical days of DE" in run("--zone", "DE").output


@pytest.mark.parametrize(("args", "word"), [([], "--zone"), (["--zone", "Atlantis"], "not known")])
def test_no_or_a_wrong_zone_is_one_line_and_exit_2(run, args, word) -> None:
    failed = run(*args).exception
    assert isinstance(failed, Failure) and failed.code == 2 and word in failed.message


def test_a_key_file_others_can_read_is_not_permitted(run, tmp_path) -> None:
    path = tmp_path / "keys.env"
    path.write_text("EIA_API_KEY=x\n")
    path.chmod(0o640)
    failed = run("--zone", "GB").exception
    assert isinstance(failed, Failure) and failed.code == 4 and "chmod 600" in failed.message


def test_zones_are_listed_and_searched(run) -> None:
    found = json.loads(run("denmark", "--json", verb=verbs.zones).output)
    assert {"DK-DK1", "DK-DK2"} <= {row["zone"] for row in found}
    assert "Energi Data Service" in next(row for row in found if row["zone"] == "DK-DK1")["sources"]
    assert "California" in run("ciso", verb=verbs.zones).output
    nothing = run("qqq", verb=verbs.zones).exception
    assert isinstance(nothing, Failure) and nothing.code == 3


def test_what_is_recorded_holds_no_key(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1896998400.0 + 20 * 3600
    folder = tmp_path / "out"
    monkeypatch.delenv("CARBONTUI_OFFLINE")
    monkeypatch.setenv("ELECTRICITYMAPS_TOKEN", "s3cret-electricitymaps_token")
    monkeypatch.setattr(time, "time", lambda: now_s)
    real = good("electricity-maps", now_s)
    echo = b'{"echo": "s3cret-electricitymaps_token", '
    with served(lambda request: Answer(real(request).body.replace(b"{", echo, 1))) as url:
        monkeypatch.setenv("CARBONTUI_GRID_URLS", f"electricity-maps={url}")
        record("AU-NSW", folder)
    bodies = list(folder.glob("*.body"))
    assert bodies and all(b"s3cret" not in path.read_bytes() for path in folder.iterdir())
    assert any(b"KEY-REMOVED" in path.read_bytes() for path in bodies)


def test_every_zone_has_a_name_of_its_own(run) -> None:
    found = json.loads(run("", "--json", verb=verbs.zones).output)
    assert len({row["name"] for row in found}) == len(found) > 300
    assert not [row for row in found if row["name"] == row["zone"] or "  " in row["name"]]
    assert "AD  Andorra" in run("--zone", "andorra").output


def test_the_setting_or_the_option_says_which_signal_is_shown(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1896998400.0 + 20 * 3600
    monkeypatch.delenv("CARBONTUI_OFFLINE")
    for name in ("WATTTIME_USERNAME", "WATTTIME_PASSWORD"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setattr(time, "time", lambda: now_s)
    monkeypatch.setattr("carbontui.grid.providers.caiso.Caiso.pause_s", 0.0)
    rate = good("watttime", now_s, lambda at: 450.0)
    mix = good("caiso", now_s)
    with served(lambda r: rate(r) if r.path.startswith(("/v3", "/login")) else mix(r)) as url:
        monkeypatch.setenv("CARBONTUI_GRID_URLS", f"watttime={url},caiso={url},caiso-price={url}")
        assert "(average, direct; forecast)" in run("--zone", "CAISO").output
        data = json.loads(run("--zone", "CAISO", "--signal", "marginal", "--json").output)
        assert data["signal"] == "marginal" and data["value_g_per_kwh"] == pytest.approx(450)
        monkeypatch.setenv("CARBONTUI_SIGNAL", "marginal")
        assert json.loads(run("--zone", "CAISO", "--json").output)["signal"] == "marginal"


def test_a_price_is_shown_with_its_currency_and_source(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARBONTUI_CURRENCY", "EUR")
    monkeypatch.setenv("CARBONTUI_PRICE_PER_KWH", "0.25")
    monkeypatch.delenv("CARBONTUI_OFFLINE")
    now_s = 1896998400.0 + 20 * 3600
    monkeypatch.setattr(time, "time", lambda: now_s)
    real = good("energi-data-price", now_s)
    with served(lambda r: real(r) if "DayAhead" in r.path else Answer(b"", 404)) as url:
        monkeypatch.setenv(
            "CARBONTUI_GRID_URLS", f"energi-data-service={url},energi-data-price={url},energy-charts={url}"
        )
        monkeypatch.setenv("CARBONTUI_PRICE_ZONE", "DK-DK1")
        shown = run("--zone", "DK").output
    assert "EUR/kWh now, next 24 h 0.0" in shown and "Energi Data Service day-ahead price" in shown


def test_how_old_the_newest_value_is_is_told(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARBONTUI_OFFLINE")
    now_s = 1896998400.0 + 20 * 3600
    monkeypatch.setattr(time, "time", lambda: now_s)
    real = good("energy-charts", now_s - 3 * 3600)
    with served(lambda r: real(r) if "co2eq" in r.path else Answer(b"", 404)) as url:
        monkeypatch.setenv("CARBONTUI_GRID_URLS", f"energy-charts={url}")
        assert "DE until 16:45, 3 h ago; forecast since" in run("--zone", "DE").output
        known = json.loads(run("--zone", "DE", "--json").output)["intensity"]
    assert known["age_s"] == 3.25 * 3600 and known["known_until"].endswith("T16:45:00.000Z") and known["zone"] == "DE"


def test_a_zone_without_marginal_rates_is_not_given_an_average(run) -> None:
    shown = run("--zone", "DE", "--signal", "marginal").output
    assert "no marginal rates of DE" in shown and "gCO2/kWh" not in shown


def test_the_feed_loads_neither_numpy_nor_the_screen() -> None:
    code = (
        "import sys, carbontui.grid, carbontui.grid.feed, carbontui.grid.recorded, carbontui.grid.zones;"
        "print([name for name in ('numpy', 'textual', 'torch', 'pynvml') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
