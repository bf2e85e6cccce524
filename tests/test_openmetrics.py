"""Where figures are told: whole files for node-exporter."""

import os
from pathlib import Path

from carbontui.system.openmetrics import STALE_S, MetricsPlace


def test_a_file_is_whole_and_what_dead_jobs_have_left_is_removed(tmp_path: Path) -> None:
    old, alien = tmp_path / "carbontui-gone.prom", tmp_path / "other.prom"
    for file in (old, alien):
        file.write_text("x 1\n")
        os.utime(file, (0, os.stat(file).st_mtime - STALE_S - 60))
    (tmp_path / "secret").write_text("keep")
    (tmp_path / f".carbontui-a.prom.{os.getpid()}").symlink_to(tmp_path / "secret")
    place = MetricsPlace(str(tmp_path), "a")
    assert place.due() and place.before() == ""
    place.tell("x 1.0\n# EOF\n")
    assert (tmp_path / "carbontui-a.prom").read_text() == "x 1.0\n# EOF\n" and not place.due()
    assert (tmp_path / "secret").read_text() == "keep", "a link that waited there is not followed"
    assert not old.exists() and alien.exists() and place.fault == ""
    assert MetricsPlace(str(tmp_path), "a").before() == "x 1.0\n# EOF\n"
    missing = MetricsPlace(str(tmp_path / "no"), "a")
    missing.tell("x")
    assert "carbontui-a.prom' (No such file or directory)" in missing.fault
    nowhere = MetricsPlace("\ud800", "a")
    nowhere.tell("x")
    assert (
        nowhere.before() == ""
        and nowhere.fault == "metrics cannot be written to '\\ud800/carbontui-a.prom' (no such name)"
    )
