from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_supervisor import FakeSupervisor, supervised
from house import sweep

from carbontui.client import inject


@pytest.fixture
def supervisor() -> Iterator[FakeSupervisor]:
    with supervised() as one:
        yield one


@pytest.fixture(scope="session")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inject.build(tmp_path_factory.mktemp("hook"))


Launch = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def launch(tmp_path: Path, hook: Path, supervisor: FakeSupervisor) -> Iterator[Launch]:
    """launch(code or argv, python=..., **environment): a training process with the hook, output captured."""
    running: list[subprocess.Popen[str]] = []

    def start(
        code: str | list[str], *args: str, python: str = sys.executable, resume: bool = False, **extra: str
    ) -> subprocess.Popen[str]:
        base = {key: value for key, value in os.environ.items() if not key.startswith("CARBONTUI_")}
        env = inject.environment(
            {**base, "OMP_NUM_THREADS": "1", **extra},
            hook_dir=hook,
            socket=supervisor.path,
            job="test",
            marker=tmp_path / "marker.json",
            resume=resume,
        )
        if isinstance(code, str):
            script = tmp_path / f"train{len(running)}.py"
            script.write_text(textwrap.dedent(code))
            argv = [python, str(script), *args]
        else:
            argv = [*code, *args]
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield start
    sweep(f"CARBONTUI_MARKER={tmp_path / 'marker.json'}")
    for process in running:
        if process.poll() is None:
            process.kill()
        if process.stdout:
            process.stdout.close()
        process.wait()


@pytest.fixture
def finish(supervisor: FakeSupervisor) -> Callable[[subprocess.Popen[str]], str]:
    """Wait for the end and return the output; the exit code must be 0 unless said. The supervisor has then heard all
    that was said to it."""

    def wait(process: subprocess.Popen[str], code: int = 0, timeout_s: float = 60) -> str:
        out, _ = process.communicate(timeout=timeout_s)
        assert process.returncode == code, out
        if supervisor.alive and supervisor.reads:
            supervisor.wait(lambda: not any(rank.hello.pid == process.pid for rank in supervisor.live()))
        return out

    return wait
