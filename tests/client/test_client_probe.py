"""`doctor -- COMMAND`: what would be seen of a command is told without running it."""

from __future__ import annotations

import json
import os
import sys

import pytest

from carbontui.client.detection import probe

TORCH = "import os, torch\nfrom torch import nn\nopen('ran', 'w')\n"
SCRIPTS = {
    "an optimizer step is a step; the total": TORCH + "torch.optim.Adam\n",
    "an optimizer step is a step, and the script has none itself": TORCH,
    "without an optimizer a backward() is a step; else call": TORCH + "loss.backward()\n",
    "where the script calls carbontui.step()": "import carbontui\nwhile True:\n    carbontui.step()\n",
    "a step of the Trainer is a step": "from transformers import Trainer, TrainingArguments\n",
    "a batch that steps is a step": "import lightning as L\n",
    "a boosting round is a step": "import xgboost as xgb\n",
    "a batch of fit() is a step": "import keras\n",
    "a loop of jax or optax are not seen": "import jax, optax\n",
    "no training library in the script itself": "from mylab import train\n",
    "it records CUDA graphs": TORCH + "graph = torch.cuda.CUDAGraph()\n",
}


@pytest.fixture(scope="module")
def answer() -> probe.InterpreterFacts:
    """What this Python says of itself in a job."""
    return probe.ask((), sys.executable, frozenset(), os.environ)


@pytest.mark.parametrize("said", SCRIPTS)
def test_where_a_step_will_end_is_read_from_the_script(said, answer, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPTS[said])
    assert any(said in one.text for one in probe.lines_of("train.py", answer, str(tmp_path)))


def test_the_hook_arrives_or_the_cause_and_its_repair_are_told(tmp_path):
    (tmp_path / "train.py").write_text(TORCH)
    python = sys.executable
    told = {
        " ".join(before): probe.observe([*before, "train.py", "-S"], os.environ, str(tmp_path))
        for before in (
            [python],
            ["nice", "-n", "1", python, "-u"],
            ["env", "PYTHONPATH=/elsewhere", python],
            [python, "-I"],
            [python, "-S"],
            ["env", "-i", python],
        )
    }
    arrives, wrapped, reset, isolated, bare, alone = (one[0] for one in told.values())
    assert arrives.ok and wrapped.ok and f"the hook arrives in {python}" in arrives.text
    assert "PYTHONPATH was reset" in reset.text and "-I ignores PYTHONPATH" in isolated.text
    assert reset.fix == isolated.fix == f"carbontui hook --install --python {python}"
    assert "python -S loads no hook" in bare.text and "env -i" in alone.text and bare.fix == alone.fix == ""
    assert not any(one.ok for one in (reset, isolated, bare, alone))
    assert not (tmp_path / "ran").exists(), "the script must not run"


def test_a_script_that_is_a_program_is_asked_of_the_python_it_names(tmp_path):
    script = tmp_path / "train"
    script.write_text(f"#!{sys.executable} -I\n{TORCH}")
    script.chmod(0o755)
    (arrives, *_) = probe.observe([str(script), "--epochs=3"], os.environ, str(tmp_path))
    assert "-I ignores PYTHONPATH" in arrives.text
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("export PYTHONPATH=/my/code\npython train.py\n", "resets PYTHONPATH"),
        ("PYTHONPATH=/my/code:$PYTHONPATH python train.py\n", "nothing in it keeps the hook out"),
        ("# PYTHONPATH=/old\npython -u train.py\n", "nothing in it keeps the hook out"),
        ("python3 -uI train.py\n", "python -I"),
        ("exec env -i PATH=$PATH python train.py\n", "an environment of its own"),
        ("docker run box python train.py\n", "an environment of its own"),
    ],
)
def test_a_launch_script_is_read_and_not_run(script, said, tmp_path):
    (tmp_path / "launch.sh").write_text(f"#!/bin/bash\ntouch ran\n{script}")
    assert any(said in one.text for one in probe.observe(["bash", "launch.sh"], os.environ, str(tmp_path)))
    assert any(said in one.text for one in probe.observe(["bash", "-ec", script], os.environ, str(tmp_path)))
    (tmp_path / "launch.sh").chmod(0o755)
    assert any(said in one.text for one in probe.observe([f"{tmp_path}/launch.sh"], os.environ, str(tmp_path)))
    assert not (tmp_path / "ran").exists()


def test_doctor_tells_it_and_lists_the_hooks_that_are_installed(house):
    (house.root / "train.py").write_text("import carbontui\ncarbontui.step()\n")
    fine = house.cli("doctor", "--", sys.executable, "train.py")
    assert fine.returncode == 0 and "the hook arrives" in fine.stdout and "gpu" not in fine.stdout
    isolated = house.cli("doctor", "--json", "--", sys.executable, "-I", "train.py")
    assert isolated.returncode == 1
    assert json.loads(isolated.stdout)[1]["mend"].startswith("carbontui hook --install")
    wrong = house.cli("doctor", "--", "no-such-program")
    assert (wrong.returncode, wrong.stderr) == (2, "carbontui: no-such-program: no such program\n")
