"""Where figures are told: whole files for node-exporter, and a socket for its owner."""

import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from carbontui.system.metrics_place import STALE_S, MetricsPlace


def asked(path: Path, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> bytes:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(path))
        link.sendall(request)
        answer = b""
        while data := link.recv(65536):
            answer += data
    return answer


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
    place.close()
    assert place.file.exists(), "the last figures of a job that is over are still to be scraped"
    missing = MetricsPlace(str(tmp_path / "no"), "a")
    missing.tell("x")
    assert "carbontui-a.prom (No such file or directory)" in missing.fault


def test_a_socket_answers_its_owner_with_the_latest(tmp_path: Path) -> None:
    place = MetricsPlace(str(tmp_path / "{job}.sock"), "a")
    place.tell("x 1.0\n# EOF\n")
    path = tmp_path / "a.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    place.tell("x 2.0\n# EOF\n")
    head, _, body = asked(path).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200") and b"application/openmetrics-text; version=1.0.0" in head
    assert body == b"x 2.0\n# EOF\n"
    with contextlib.suppress(ConnectionError):
        asked(path, b"x" * 5000)
    second = MetricsPlace(str(path), "b")
    second.tell("y")
    assert "another process answers there" in second.fault and asked(path).endswith(b"x 2.0\n# EOF\n")
    place.close()
    with pytest.raises(OSError, match="No such file"):
        asked(path)
    path.write_text("mine")
    second.tell("y")
    assert "something else" in second.fault and path.read_text() == "mine"
