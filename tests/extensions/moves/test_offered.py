"""What the screen is given to offer a move: by the extension, and only where it is on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from carbontui import hooks
from carbontui.commands import attach
from carbontui.extensions.moves import commands
from carbontui.job.files import store


def test_the_verb_moves_it_and_its_last_line_is_the_answer(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = type("Job", (), {"dir": house.root, "id": "nosuch"})()
    for name, value in house.env.items():
        monkeypatch.setenv(name, value)
    ok, told = commands.by_verb(job, "n2")
    assert not ok and told and len(told.splitlines()) == 1 and "Traceback" not in told


def test_a_page_that_offers_a_move_has_not_loaded_what_makes_one() -> None:
    code = "import sys; from carbontui import hooks; offer = dict(hooks.offered('elsewhere'))['moves'](None, ['n2'])"
    code += "; print([name for name in sys.modules if name.startswith('carbontui.job') or name == 'sqlite3'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_live_job_is_offered_to_machines_of_the_settings_by_the_extension_alone(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = house.start(pause=0.05)
    for name, value in {**house.env, "CARBONTUI_HOSTS": "n2"}.items():
        monkeypatch.setenv(name, value)
    job = store.find(started.id)
    assert attach.target_of(job).move is not None and attach.target_of(job).elsewhere is not None
    monkeypatch.setenv(hooks.SWITCH, "none")
    assert attach.target_of(job).move is attach.target_of(job).elsewhere is None
