"""Trainings whose steps are not seen: the cause is named, and a .pth file brings the hook where PYTHONPATH cannot."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carbontui.client.detection import unseen
from carbontui.client.detection.unseen import Process
from carbontui.commands import hook as pth

HOOK = "/home/u/.local/state/carbontui/jobs/1/hook"
ENVIRON = {"CARBONTUI_SOCKET": "/s", "PYTHONPATH": f"{HOOK}:/work"}
RESET = {**ENVIRON, "PYTHONPATH": "/work"}
TORCH, JAX, SKLEARN = frozenset({"PyTorch"}), frozenset({"JAX"}), frozenset({"scikit-learn"})
TRAIN_PY = ["python", "train.py"]


def process(argv=TRAIN_PY, environ=ENVIRON, libraries=frozenset(), **more) -> Process:
    return Process("python", argv, environ, libraries, **more)


def evidence(*words: str) -> frozenset[str]:
    return frozenset({"torch.optim.optimizer", *words})


KINDS = {
    "pythonpath": process(environ=RESET, libraries=TORCH),
    "isolated": process(["/usr/bin/python3.12", "-uI", "train.py"], libraries=TORCH),
    "no-site": process(["python", "-W", "ignore", "-S", "train.py"], libraries=TORCH),
    "no-environment": process(environ={"PATH": "/bin"}, libraries=TORCH),
    "framework": process(["python", "-m", "train"], libraries=JAX),
    "cuda-graph": process(["python", "-c", "x", "-S"], libraries=TORCH, evidence=evidence("optimizer", "captured")),
    "no-loop": process(["python", "serve.py"]),
    "no-python": process(["./simulate", "-n", "8"]),
}
SLOW_STARTS = {
    "data is prepared": process(libraries=TORCH, evidence=evidence("optimizer")),
    "before torch is imported": process(script="import json\n\nimport os, torch\n"),
    "beside scikit-learn, for its metrics": process(libraries=TORCH | SKLEARN, evidence=evidence()),
    "with scikit-learn alone so far": process(libraries=SKLEARN, script="from torch import nn\n"),
    "a JAX loop that says its steps": process(libraries=JAX, script="import carbontui\n"),
    "Keras on JAX": process(libraries=JAX, evidence=frozenset({"keras.src.models.model"})),
    "the .pth hook is there": process(environ=RESET, libraries=TORCH, hooked=True, script="import torch"),
    "evidence says the hook is there": process(["python", "-I", "t.py"], RESET, TORCH, evidence=evidence()),
}


@pytest.mark.parametrize("code", KINDS)
def test_each_kind_of_unseen_training_has_its_cause(code):
    assert unseen.judge([KINDS[code]], HOOK).code == code


@pytest.mark.parametrize("why", SLOW_STARTS)
def test_a_slow_start_is_blamed_on_nothing(why):
    assert unseen.judge([SLOW_STARTS[why]], HOOK).code == "preparing"


def test_of_several_processes_the_training_is_meant():
    shell, launcher = process(["bash", "train.sh"], cpu_s=1.0), process(cpu_s=90.0)
    rank = KINDS["isolated"]._replace(cpu_s=30.0)
    assert unseen.judge([shell, launcher, rank], HOOK).code == "isolated"
    assert unseen.judge([], HOOK) is None


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
    target = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    python = target / "bin" / "python"
    where = pth.place(str(python))
    (where.site / "torch.pth").write_text(f"{Path(importlib.util.find_spec('torch').origin).parents[1]}\n")
    return python


WAYS = {"isolated": ([], ["-I"]), "PYTHONPATH reset": (["env", "PYTHONPATH="], [])}


def test_a_training_that_pythonpath_does_not_reach_is_seen_by_an_installed_hook(
    environment, supervisor, launch, finish, tmp_path
):
    script, bare = tmp_path / "train.py", tmp_path / "bare.py"
    script.write_text(TRAIN)
    bare.write_text("import sys; print({type(one).__name__ for one in sys.meta_path})\n")
    for before, options in WAYS.values():
        assert finish(launch([*before, str(environment), *options, str(bare)])) == "{'type'}\n"
    where = pth.place(str(environment))
    pth.install(where)
    assert where.pth.exists()
    for before, options in [*WAYS.values(), ([], [])]:  # at last both ways at once: a step counts once
        finish(launch([*before, str(environment), *options, str(script)]))
        assert supervisor.last().step == 30
    assert len(supervisor.ranks) == 3
    assert pth.remove(where) and not where.pth.exists() and not where.package.exists()


def test_the_installed_hook_is_inert_outside_of_a_job(environment):
    where = pth.place(str(environment))
    pth.install(where)
    code = "import sys; print([m for m in sys.modules if 'carbontui' in m], len(sys.meta_path))"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("CARBONTUI_", "PYTHON"))}
    with_it = subprocess.run([environment, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    pth.remove(where)
    without = subprocess.run([environment, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert with_it == without and with_it.startswith("[]")


def test_the_installed_hook_loads_nothing_from_a_job_directory(environment, tmp_path):
    where = pth.place(str(environment))
    pth.install(where)
    planted = tmp_path / "jobs" / "1" / "hook"
    for name in ("sitecustomize.py", "carbontui/__init__.py", "carbontui_hook/__init__.py"):
        (planted / name).parent.mkdir(parents=True, exist_ok=True)
        (planted / name).write_text("raise SystemExit('loaded from the job')\n")
    code = "import carbontui, sys; print(carbontui.__file__, sys.meta_path[0].__class__.__module__)"
    env = {"CARBONTUI_SOCKET": "/none", "CARBONTUI_HOOK": str(planted), "CARBONTUI_MARKER": str(tmp_path / "marker")}
    done = subprocess.run([environment, "-I", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(where.package / "carbontui" / "__init__.py"), "carbontui_hook"]


@pytest.mark.parametrize(("own", "why"), [(True, "belongs to another user"), (False, "share")])
def test_the_hook_goes_into_no_environment_of_others(tmp_path, monkeypatch, own, why):
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + own)
    with pytest.raises(pth.HookRefused, match=why):
        pth.install(pth.PackagePlace("python3", tmp_path, tmp_path, own=own))
    assert list(tmp_path.iterdir()) == []


def test_the_verb_says_installs_and_removes(environment, house):
    def said(*args):
        return house.cli("hook", *args, "--python", environment, check=True).stdout

    assert "not installed" in said()
    assert "installed" in said("--install")
    assert "not installed" not in said()
    listed = house.cli("doctor", "--json").stdout
    assert f"installed: {pth.place(str(environment)).pth}" in listed
    assert "removed" in said("--remove")
    assert "carbontui_hook.pth" not in house.cli("doctor", "--json").stdout
    refused = house.cli("hook", "--install", "--python", "no-such-python")
    assert refused.returncode == 4 and "no such Python" in refused.stderr
