"""The manifests for Kubernetes against its published schemas, and their contract on a process.

SIGTERM is checkpoint and leave, and what is begun again on the same volume goes on. No cluster runs here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from house import until
from later import Later

kubernetes_validate = Later("kubernetes_validate")
FOLDER = Path(__file__).parents[2] / "examples" / "kubernetes"
MANIFESTS = [
    (path.name, manifest) for path in sorted(FOLDER.glob("*.yaml")) for manifest in yaml.safe_load_all(path.read_text())
]
TRAIN = """
import json, pathlib, time
import carbontui
kept = pathlib.Path("checkpoint.json")
step = json.loads(kept.read_text())["step"] if kept.exists() else 0
with open("lives", "a") as lives:
    print(step, file=lives)
def save():
    kept.write_text(json.dumps({"step": step}))
carbontui.on_checkpoint(save)
while step < 400:
    carbontui.step()
    step += 1
    pathlib.Path("step").write_text(str(step))
    time.sleep(0.01)
"""


@pytest.mark.parametrize(("name", "manifest"), MANIFESTS, ids=[f"{n} {m['kind']}" for n, m in MANIFESTS])
@pytest.mark.parametrize("version", ["1.29", "1.31", None], ids=["1.29", "1.31", "latest"])
def test_a_manifest_is_valid_in_the_published_schema(name, manifest, version):
    kubernetes_validate.validate(manifest, version or kubernetes_validate.latest_version(), strict=True)
    assert "Not run on a cluster" in (FOLDER / name).read_text()


@pytest.mark.parametrize(("name", "manifest"), [m for m in MANIFESTS if m[1]["kind"] != "PersistentVolumeClaim"])
def test_every_pod_has_time_to_save_a_volume_to_save_to_and_no_root(name, manifest):
    spec = manifest["spec"]
    job = spec["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else spec
    pod = job["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 120
    assert pod["securityContext"]["runAsNonRoot"] and pod["restartPolicy"] == "Never"
    assert [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]] == ["/work"]
    assert "CARBONTUI_HOME=/work/" in (FOLDER / "Dockerfile").read_text()
    for rule in job.get("podFailurePolicy", {}).get("rules", []):
        assert rule["action"] == "Ignore"  # leaving is no failure
    # the arguments are those of this version
    done = subprocess.run(
        [sys.executable, "-m", "carbontui.cli", "run", "--help"], capture_output=True, text=True, check=True
    )
    words = pod["containers"][0]["args"]
    assert all(word in done.stdout for word in words[: words.index("--")] if word.startswith("--"))


def test_sigterm_is_checkpoint_and_leave_and_the_next_pod_goes_on_from_the_volume(house, tmp_path):
    volume = tmp_path / "work"
    volume.mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    house.env["CARBONTUI_HOME"] = str(volume / "carbontui")
    command = [sys.executable, "-m", "carbontui.cli", "run", "--name", "train", "--", sys.executable]

    def pod() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, str(tmp_path / "train.py")], cwd=volume, env=house.env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    first = pod()
    until(lambda: (volume / "step").exists() and int((volume / "step").read_text() or 0) > 20, what="steps")
    os.kill(first.pid, signal.SIGTERM)
    assert first.wait(60) in (85, 143, -signal.SIGTERM), first.stderr.read()
    kept = json.loads((volume / "checkpoint.json").read_text())["step"]
    assert kept >= 20

    second = pod()
    assert second.wait(60) == 0, second.stderr.read()
    begun = [int(line) for line in (volume / "lives").read_text().split()]
    assert begun == [0, kept]
