"""`%%carbontui` in a real kernel: its cell is a job that is held, interrupted, reported, and gone with the kernel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from html import escape

import pytest
from house import Job, until

from carbontui.system import proc

for package in ("IPython", "ipykernel", "jupyter_client"):
    pytest.importorskip(package)

STEPS = """%load_ext carbontui
import time, carbontui
carbontui.on_checkpoint(lambda: None)
def steps(n):
    global step
    for step in range(n):
        time.sleep(0.01)
        carbontui.step()
        with open("marks", "a") as done:
            done.write(f"1 {time.monotonic()}\\n")
"""


class Notebook:
    """A kernel, and what its cells put out."""

    def __init__(self, house):
        from jupyter_client.manager import start_new_kernel

        self.house = house
        self.kernel, self.client = start_new_kernel(kernel_name="python3", env=house.env, cwd=str(house.root))

    def begin(self, code):
        """Run a cell, and do not wait for it."""
        return self.client.execute(code)

    def outputs(self, asked, timeout_s=120, *, until_shown=None, found=()):
        """What a cell put out, in order, after `found`, and its reply, once it is over, or this is shown beneath it."""
        found = [*found]
        while True:
            told = self.client.get_iopub_msg(timeout=timeout_s)
            if told["parent_header"].get("msg_id") != asked:
                continue
            if told["msg_type"] == "status" and told["content"]["execution_state"] == "idle":
                break
            found.append((told["msg_type"], told["content"]))
            if until_shown and any(until_shown in text for _, text in texts(found[-1:])):
                return found, None
        while (reply := self.client.get_shell_msg(timeout=timeout_s))["parent_header"].get("msg_id") != asked:
            pass  # of before
        return found, reply["content"]

    def run(self, code):
        return self.outputs(self.begin(code))

    def job(self):
        """The one that lives."""
        folder = until(
            lambda: [one for one in self.house.home.glob("jobs/*/job.json") if not (one.parent / "exit.json").exists()]
        )
        return Job(self.house, folder[0].parent.name, self.house.root / "marks")

    def held(self, steps=5):
        """That one, paused after so many steps."""
        job = self.job()
        job.until_steps(steps)
        self.house.cli("pause", job.id, check=True)
        job.until_state("paused")
        return job


@pytest.fixture
def notebook(house):
    made = Notebook(house)
    assert made.run(STEPS)[1]["status"] == "ok"
    yield made
    made.client.stop_channels()
    made.kernel.shutdown_kernel(now=True)


def texts(outputs, form="text/plain"):
    """What was displayed, or set in a widget, with the kind of message."""
    told = [(kind, data.get("state", {}) | data) for kind, content in outputs if (data := content.get("data"))]
    return [(kind, data[name]) for kind, data in told for name in (form, "value") if name in data]


@pytest.mark.parametrize("widgets", [False, True])
def test_a_cell_is_a_job_that_is_held_shown_beneath_it_and_reported(house, notebook, widgets):
    if widgets:
        pytest.importorskip("ipywidgets")
    else:
        notebook.run("import sys\nsys.modules['ipywidgets'] = None")
    asked = notebook.begin("%%carbontui --intensity 300 --name mine --steps 400\nsteps(400)\nstep, step + 1")
    job = notebook.held()
    held = job.steps()
    assert job.served().name == "mine" and job.served().pids.child == notebook.kernel.provisioner.pid
    no = house.cli("rehearse", "--yes", job.id)
    assert no.returncode and "notebook, which nobody could start again" in no.stderr, no.stderr
    assert job.steps() == held
    shown, _ = notebook.outputs(asked, until_shown="paused by")
    house.cli("resume", job.id, check=True)
    outputs, reply = notebook.outputs(asked, found=shown)
    assert reply["status"] == "ok"
    assert ("execute_result", "(399, 400)") in [(kind, text) for kind, text in texts(outputs)]
    first, *more = [(kind, text) for kind, text in texts(outputs) if f"job {job.id}" in text and kind != "comm_open"]
    kinds = {"update_display_data"} | ({"comm_msg"} if widgets else set())
    assert first[0] == "display_data" and {kind for kind, _ in more} == kinds, "one line, renewed"
    assert f"{job.id}: done, " in more[-1][1] and not [one for one in outputs if one[0] == "stream"]
    *kept, page = [one for one in texts(outputs, "text/html") if "<iframe" in one[1]]
    assert [text for _, text in kept] == [page[1]] * widgets, "of a page that was reloaded meanwhile"
    assert "sandbox" in page[1] and "<script" not in page[1] and escape("<title>mine:") in page[1]
    assert (job.status()["state"], job.status()["step"]) == ("done", 400)


FIT = """import torch
def fit():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(200):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
        with open("marks", "a") as done:
            done.write(f"1 {time.monotonic()}\\n")
    return [one.tolist() for one in model.parameters()]
alone = fit()
open("marks", "w").close()
"""


def test_a_training_that_was_paused_ends_with_the_weights_of_one_alone(house, notebook):
    assert notebook.run(FIT)[1]["status"] == "ok"
    asked = notebook.begin("%%carbontui --intensity 300\nfit() == alone")
    job = notebook.held(20)
    house.cli("resume", job.id, check=True)
    assert ("execute_result", "True") in texts(notebook.outputs(asked)[0])
    assert job.status()["step"] == 200, "the optimizer's steps are seen"


def test_what_ends_a_cell_ends_its_job_and_leaves_the_kernel(house, notebook):
    asked = notebook.begin("%%carbontui --intensity 300\nsteps(100_000)")
    job = notebook.held()
    notebook.kernel.interrupt_kernel()
    assert notebook.outputs(asked)[1]["ename"] == "KeyboardInterrupt"
    assert job.status()["state"] == "failed"
    made = len(list(house.home.glob("jobs/*/job.json")))
    for words, cell, ename in (
        ("--budgt 2x", "done = 1", "UsageError"),
        ("--requeue", "done = 1", "UsageError"),
        ('--name "', "done = 1", "UsageError"),
        ("", "done = = 1", "SyntaxError"),
    ):
        refused = notebook.run(f"%%carbontui {words}\n{cell}")[1]
        assert refused["ename"] == ename and refused["evalue"].count("\n") == 0, refused
    assert notebook.run("done")[1]["ename"] == "NameError" and len(list(house.home.glob("jobs/*/job.json"))) == made
    outputs, reply = notebook.run("%%carbontui --intensity 300\nkept = 1\n1 / 0")
    assert reply["ename"] == "ZeroDivisionError" and [kind for kind, _ in outputs].count("error") == 1
    assert "----> 2 1 / 0" in re.sub("\x1b.*?m", "", "".join(reply["traceback"]))
    assert texts(notebook.run("kept")[0]) == [("execute_result", "1")]


def test_with_the_kernel_all_of_its_job_ends(house, notebook):
    notebook.begin("%%carbontui --intensity 300\nsteps(100_000)")
    job = notebook.held()
    pids = job.served().pids
    os.kill(pids.child, signal.SIGKILL)
    job.until_over()
    for pid in (pids.keeper, pids.supervisor, pids.agent):
        until(lambda pid=pid: pid is None or not proc.exists(pid), what=f"the end of {pid}")


def test_without_the_extension_there_is_no_magic(house):
    code = "import carbontui, sys; print(hasattr(carbontui, 'load_ipython_extension'), 'IPython' in sys.modules)"
    found = []
    for chosen in ("none", "notebook"):
        env = {**house.env, "CARBONTUI_EXTENSIONS": chosen}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    assert found == [["False", "False"], ["True", "True"]]
