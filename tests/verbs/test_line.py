"""One job in a few words."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from carbontui import line, protocol

NOW = "2026-11-22T12:00:00.000Z"
LATER = "2026-11-22T17:30:00.000Z"


def status(**fields) -> protocol.Status:
    known = {"job": "k7q2mz", "name": "llama", "host": "h", "measured_at": NOW, "state": "running"}
    return protocol.Status(**{**known, "reason": protocol.Reason("plan", "at full speed by the plan"), **fields})


def end(avoided_g: float) -> protocol.AtEnd:
    return protocol.AtEnd(finish=LATER, energy_wall_kwh=1.0, gco2_g=910.0, run_now_g=1000.0, avoided_g=avoided_g)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"step": 31, "steps_total": 100, "power_w": 246.0}, "▶ 31% 246W"),
        ({"next": protocol.Next(LATER, "pause"), "at_end": end(90.0)}, "▶ ‖17:30 −9%"),
        ({"state": "paused", "next": protocol.Next(LATER, "full"), "at_end": end(-20.0)}, "‖ ▶17:30 +2%"),
        ({"state": "failed", "step": 5, "steps_total": 100, "power_w": None}, "✗ 5% failed"),
    ],
)
def test_the_line_says_state_progress_watts_the_next_change_and_the_gain(
    fields, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert line.words(msgspec.to_builtins(status(**fields))) == said


def test_a_status_bar_is_answered_without_loading_the_command_line(tmp_path, monkeypatch):
    """By a real socket, the newest of two jobs; what it cannot answer is left to the verb."""
    import json
    import os
    import socket
    import threading

    from carbontui.system import proc

    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path))
    assert line.quickly([]) == "" and line.quickly(["--json"]) is None
    mine = [os.getpid(), proc.start_time(os.getpid())]
    for name, started in (("old", 1.0), ("new", 2.0)):
        record = {"job": name, "host": socket.gethostname(), "boot": proc.boot_id(), "started": started}
        record |= {"pids": {"keeper": mine}, "socket": str(tmp_path / name)}
        (tmp_path / "jobs" / name).mkdir(parents=True)
        (tmp_path / "jobs" / name / "job.json").write_text(json.dumps(record))
    assert line.quickly([]) is None  # nobody listens there: the verb waits and says why
    for number in range(50):  # that have ended: their records are not read
        (tmp_path / "jobs" / f"over{number}" / "job.json").mkdir(parents=True)
        (tmp_path / "jobs" / f"over{number}" / "exit.json").write_text("{}")
    read: list[str] = []
    monkeypatch.setattr(
        Path, "read_bytes", lambda path, real=Path.read_bytes: read.append(path.parent.name) or real(path)
    )
    told = protocol.encode(protocol.StatusAnswer(1, status(step=31, steps_total=100, power_w=246.0)))
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "new"))
        door.listen()

        def serve() -> None:
            peer, _ = door.accept()
            with peer, peer.makefile("rb") as lines:
                for text, reply in zip(lines, (protocol.encode(protocol.Welcome(1, "0")), told), strict=False):
                    assert protocol.decode_from_peer(text)
                    peer.sendall(reply)

        server = threading.Thread(target=serve)
        server.start()
        assert line.quickly([]) == "▶ 31% 246W +1" and sorted(read) == ["new", "old"]
        server.join(5)


def test_what_answers_a_status_bar_loads_nothing_of_the_command_line():
    import subprocess
    import sys

    code = (
        "import sys\nsys.argv = ['carbontui', 'line']\nfrom carbontui import __main__\n"
        "try:\n    __main__.main()\nexcept SystemExit:\n    pass\n"
        "heavy = 'click', 'msgspec', 'asyncio', 'carbontui.job', 'carbontui.client.api'\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"CARBONTUI_HOME": "/nowhere"}
    )
    assert done.stdout.strip() == "[]", done
