"""Text of others (names, logs, providers' words, errors) is shown as text and steers no terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.color import ColorSystem
from rich.segment import Segment
from textual.strip import Strip

from carbontui import units
from carbontui.job.supervisor.record import disk
from carbontui.system import streams
from carbontui.tui.terminal.diff import TerminalDiff

HOSTILE = "a\x1b[2J\x1b]0;owned\x07\x9b31mb\u202ec\u2066d\re"
SEEN = units.printable(HOSTILE)
STEERS = ("\x1b", "\x9b", "\u202e", "\u2066", "\x07")


def hostile(value):
    """A JSON value with text of others in every free field."""
    if isinstance(value, dict):
        kept = ("job", "state", "measured_at", "code", "how", "signal", "at", "deadline", "start", "mode", "until")
        kept += ("since", "held_by", "kind")
        return {name: inner if name in kept else hostile(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner) for inner in value]
    return value + HOSTILE if isinstance(value, str) else value


def on_terminal(house, *words):
    """What `carbontui WORDS` writes to a terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "carbontui.cli", *words]
    done = subprocess.Popen(command, env=house.env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    found = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while piece := os.read(master, 65536):
            found += piece
    done.wait(30)
    os.close(master)
    return found.decode(errors="replace")


def test_no_verb_prints_what_steers_a_terminal(house):
    job = house.start(steps=5, name="t")
    job.until_over()
    snapshot = json.loads((job.dir / "snapshot.json").read_text())
    snapshot |= {
        "notices": [HOSTILE],
        "zone": "DE",
        "override": {"mode": "pause", "value_w": None, "until": None, "by": HOSTILE},
    }
    (job.dir / "snapshot.json").write_text(json.dumps(hostile(snapshot)))
    record = json.loads((job.dir / "job.json").read_text())
    (job.dir / "job.json").write_text(json.dumps(record | {"name": HOSTILE, "host": record["host"]}))
    with (job.dir / "run.log").open("ab") as log:
        log.write(HOSTILE.encode() + b"\n\x1b[31mred\x1b[0m\n")
    page = str(house.root / "page.html")
    told = ""
    for words in (
        ("ls", "--all"), ("status", job.id), ("status", job.id, "--json"), ("report", job.id),
        ("report", job.id, "--md"),
        ("report", job.id, "--html", page), ("explain", job.id), ("history",), ("line", job.id),
        ("plan", job.id), ("pause", HOSTILE), ("log", job.id, "--json"), ("cap", HOSTILE), ("solve", HOSTILE),
        ("doctor",),
    ):  # fmt: skip
        done = house.cli(*words)
        told += done.stdout + done.stderr
        assert not [code for code in STEERS if code in done.stdout + done.stderr], words
        assert "Traceback" not in done.stderr, done.stderr
    assert "?]0;owned??31mb?c?d?e" in told, "shown, and seen to be odd"
    seen = on_terminal(house, "status", job.id)
    assert SEEN in seen and not [code for code in STEERS if code in seen]
    assert not [code for code in STEERS if code in Path(page).read_text()]
    as_json = json.loads(house.cli("status", job.id, "--json", check=True).stdout)
    assert HOSTILE in as_json["notices"][0], "JSON keeps what was said"
    shown = on_terminal(house, "log", job.id)
    assert "\x1b[31mred\x1b[0m" in shown, "colours of the training stay"
    assert "\x1b[2J" not in shown and "owned" not in shown and "\u202e" not in shown
    raw = subprocess.run(
        [sys.executable, "-m", "carbontui.cli", "log", job.id], env=house.env, capture_output=True, check=True
    )
    assert HOSTILE.encode() in raw.stdout, "a file or a pipe gets every byte"


@pytest.mark.parametrize("cut", range(1, 30))
def test_an_escape_code_cut_in_two_is_still_one(cut):
    data = "x\x1b]0;title\x07y\x1b[2Jz\x1b[1mé".encode()
    text = streams.OutputText()
    assert (text.piece(data[:cut]) + text.piece(data[cut:])).decode() == "xyz\x1b[1mé"


def test_the_screen_draws_what_steers_a_terminal_as_a_mark():
    text = TerminalDiff().written([(0, 0, 40, Strip([Segment(HOSTILE)]))], ColorSystem.TRUECOLOR, 40)
    assert "\x1b[2J" not in text and "\x9b" not in text and "\u202e" not in text and "\x07" not in text


def test_the_log_of_a_job_holds_them_as_marks(capfd):
    disk.say(HOSTILE)
    assert SEEN in capfd.readouterr().err


def test_spaces_and_letters_of_any_language_are_no_codes():
    text = "für 4\u00a0h · 日本\u3000語 · −9 %"
    assert units.printable(text) == text


def test_a_line_of_progress_is_written_over_the_one_before_on_a_terminal_alone(monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "__stderr__", screen := Screen())
    streams.over_itself("12 s\x1b[2J")
    streams.over_itself("13 s")
    streams.over_itself("")
    assert screen.getvalue().count("\r") == 2 and "\x1b" not in screen.getvalue() and screen.getvalue().endswith("\n")
    monkeypatch.setattr(sys, "__stderr__", file := io.StringIO())
    streams.over_itself("12 s")
    assert file.getvalue() == ""
