"""`carbontui grid` and `carbontui zones` as a person calls them; what the supervisor imports stays light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from grid_site import Answer, Site, good

from carbontui.verbs import grid as verbs
from carbontui.verbs.failure import Failure


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


async def test_record_saves_raw_answers_without_keys(site: Site, tmp_path: Path) -> None:
    import time

    now_s = time.time()
    real = good("electricity-maps", now_s)
    site.respond = lambda request: Answer(real(request).body + b"  s3cret-electricitymaps_token")
    settings = site.settings()
    http = site.http(record=verbs._recorder(tmp_path / "out", settings))
    await http.get(f"{site.url}/carbon-intensity/forecast", {"zone": "FR"})
    saved = list((tmp_path / "out").iterdir())
    assert len(saved) == 1 and b"carbonIntensity" in saved[0].read_bytes()
    assert b"s3cret" not in saved[0].read_bytes() and b"KEY-REMOVED" in saved[0].read_bytes()


def test_the_feed_loads_neither_numpy_nor_the_screen() -> None:
    code = (
        "import sys, carbontui.grid, carbontui.grid.feed, carbontui.grid.recorded, carbontui.grid.zones;"
        "print([name for name in ('numpy', 'textual', 'torch', 'pynvml') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
