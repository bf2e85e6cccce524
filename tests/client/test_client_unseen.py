"""Trainings whose steps are not seen: the cause is named, and a .pth file brings the hook where PYTHONPATH cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from carbontui.client import pth, unseen

HOOK = "/home/u/.local/state/carbontui/jobs/1/hook"
ENVIRON = {"CARBONTUI_SOCKET": "/s", "PYTHONPATH": f"{HOOK}:/work"}
TORCH = ["/v/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so"]
JAX = ["/v/lib/python3.12/site-packages/jaxlib/libjax_common.so"]


@pytest.mark.parametrize(
    ("code", "environ", "argv", "libraries", "captured"),
    [
        ("pythonpath", {**ENVIRON, "PYTHONPATH": "/work"}, ["python", "train.py"], TORCH, False),
        ("isolated", ENVIRON, ["/usr/bin/python3.12", "-uI", "train.py"], TORCH, False),
        ("no-site", ENVIRON, ["python", "-W", "ignore", "-S", "train.py"], TORCH, False),
        ("no-environment", {"PATH": "/bin"}, ["python", "train.py"], TORCH, False),
        ("own-update", ENVIRON, ["python", "train.py", "-I"], TORCH, False),
        ("framework", ENVIRON, ["python", "-m", "train"], TORCH + JAX, False),
        ("cuda-graph", ENVIRON, ["python", "-c", "x", "-S"], TORCH, True),
        ("no-loop", ENVIRON, ["python", "serve.py"], [], False),
    ],
)
def test_each_kind_of_unseen_training_has_its_cause(code, environ, argv, libraries, captured):
    found = unseen.cause(environ, argv, libraries, hook_dir=HOOK, captured=captured)
    assert found is not None and found.code == code


def test_a_cause_that_does_not_hold_is_not_named():
    told = {"libraries": TORCH, "hook_dir": HOOK}
    assert unseen.cause(ENVIRON, ["bash", "train.sh"], **told) is None
    reset = {**ENVIRON, "PYTHONPATH": ""}
    for argv in (["python", "train.py"], ["python", "-I", "train.py"]):  # the .pth hook is there
        assert unseen.cause(reset, argv, **told, hooked=True).code == "own-update"


TRAIN = """
import time, torch
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(30):
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def environment(tmp_path) -> Path:
    """A virtual environment with a torch and no carbontui; its python."""
    pytest.importorskip("torch")
    target = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    python = target / "bin" / "python"
    where = pth.place(str(python))
    import torch

    (where.site / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return python


@pytest.mark.parametrize("how", [["-I"], []], ids=["isolated", "PYTHONPATH reset"])
def test_a_training_that_pythonpath_does_not_reach_is_seen_once_the_hook_is_installed(
    environment, how, supervisor, launch, finish, tmp_path
):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    reset = [] if how else ["env", "PYTHONPATH="]
    command = [*reset, str(environment), *how, str(script)]
    finish(launch(command))
    assert supervisor.ranks == []
    where = pth.place(str(environment))
    pth.install(where)
    assert where.installed
    finish(launch(command))
    assert supervisor.last().step == 30 and len(supervisor.ranks) == 1
    finish(launch([str(environment), str(script)]))  # both ways at once: a step counts once
    assert supervisor.last().step == 30 and len(supervisor.ranks) == 2
    assert pth.remove(where) and not where.installed and not where.package.exists()


def test_the_installed_hook_is_inert_outside_of_a_job(environment):
    where = pth.place(str(environment))
    pth.install(where)
    code = "import sys; print([m for m in sys.modules if 'carbontui' in m], len(sys.meta_path))"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("CARBONTUI_", "PYTHON"))}
    with_it = subprocess.run([environment, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    pth.remove(where)
    without = subprocess.run([environment, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert with_it == without and with_it.startswith("[]")


def test_the_hook_goes_into_no_python_that_others_share(tmp_path):
    shared = pth.Place("python3", tmp_path, tmp_path, own=False)
    with pytest.raises(pth.HookRefused, match="share"):
        pth.install(shared)
    assert list(tmp_path.iterdir()) == []


def test_the_verb_says_installs_and_removes(environment, house):
    def said(*args):
        return house.cli("hook", *args, "--python", environment, check=True).stdout

    assert "not installed" in said()
    assert "installed" in said("--install")
    assert "not installed" not in said()
    assert "removed" in said("--remove")
    refused = house.cli("hook", "--install", "--python", "no-such-python")
    assert refused.returncode == 4 and "no such Python" in refused.stderr
