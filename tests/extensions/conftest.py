"""What the tests of every extension's commands share."""

from __future__ import annotations

import pytest

from carbontui import cli


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """The one line that a command typed wrongly is answered with; its exit code is 2."""
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path / "home"))

    def typed(words: list[str]) -> str:
        monkeypatch.setattr("sys.argv", ["carbontui", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert ended.value.code == 2 and len(said.err.strip().splitlines()) == 1 and said.out == "", said
        return said.err

    return typed
