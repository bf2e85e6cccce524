"""Spot machines: a cloud's notice is an unload before the end; a stand-in answers as the clouds document."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from datetime import datetime, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from house import Job, until
from test_rehearse import SCRIPT, undisturbed

from carbontui import units
from carbontui.job.files import store
from carbontui.system import termination

ROUNDS = int(os.environ.get("TERMINATION_ROUNDS", "1"))
"""How often, for each cloud."""


class Metadata(BaseHTTPRequestHandler):
    """AWS with IMDSv2, Google and Azure, each with the header it demands."""

    ends_s: float | None = None
    asked: list[str] = []

    def do_PUT(self):
        ok = self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self.answer("token-1") if ok else self.answer("", 400)

    def do_GET(self):
        ends_s, path = type(self).ends_s, self.path.partition("?")[0]
        type(self).asked.append(path)
        if path == "/latest/meta-data/spot/instance-action":
            if self.headers.get("X-aws-ec2-metadata-token") != "token-1":
                return self.answer("", 401)
            if ends_s is None:
                return self.answer("", 404)
            return self.answer(json.dumps({"action": "terminate", "time": units.iso(ends_s)[:-5] + "Z"}))
        if path == "/computeMetadata/v1/instance/preempted":
            known = self.headers.get("Metadata-Flavor") == "Google"
            return self.answer("FALSE" if ends_s is None else "TRUE", 200 if known else 403)
        if self.headers.get("Metadata") != "true" or "api-version=" not in self.path:
            return self.answer("", 400)
        if path == "/metadata/instance/compute/name":
            return self.answer("vm_1")
        at = "" if ends_s is None else format_datetime(datetime.fromtimestamp(ends_s, timezone.utc), usegmt=True)
        event = {"EventId": "e", "EventType": "Preempt", "ResourceType": "VirtualMachine", "EventStatus": "Scheduled"}
        other = event | {"Resources": ["vm_2"], "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}
        mine = [event | {"Resources": ["vm_1"], "NotBefore": at}] if at else []
        return self.answer(json.dumps({"DocumentIncarnation": 1, "Events": [other, *mine]}))

    def answer(self, text, code=200):
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@contextmanager
def metadata():
    handler = type("Handler", (Metadata,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield handler, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("cloud", ["aws", "google", "azure"])
def test_a_notice_is_read_as_the_cloud_documents_it(cloud):
    with metadata() as (handler, base):
        now = float(int(time.time()))
        assert termination.ends_s(cloud, base, now) is None
        handler.ends_s = now + 30
        assert termination.ends_s(cloud, base, now) == now + 30
        handler.answer = lambda self, *_: Metadata.answer(self, "<html>")
        with pytest.raises(OSError, match="does not answer as") if cloud != "google" else nullcontext():
            assert termination.ends_s(cloud, base, now) is None
    with pytest.raises(OSError):  # nobody answers
        termination.ends_s(cloud, base, now)


def test_a_machine_of_no_cloud_asks_nobody():
    assert termination.service(None, {}) is None
    assert termination.service("aws", {}) == ("aws", "http://169.254.169.254")
    assert termination.service(None, {termination.OVERRIDE: "azure=http://x/"}) == ("azure", "http://x")
    assert termination.service(None, {termination.OVERRIDE: "nimbus=http://x"}) is None


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cloud", ["aws", "google", "azure"] * ROUNDS)
def test_a_notice_is_a_checkpoint_in_time_and_training_goes_on_if_called_off(house, cloud):
    script, path = house.root / "resumes.py", house.root / "state.json"
    script.write_text(SCRIPT)
    with metadata() as (handler, base):
        house.env[termination.OVERRIDE] = f"{cloud}={base}"
        command = (sys.executable, script, path)
        job = Job(house, house.cli("run", "--detach", "--", *command, check=True).stdout.strip(), house.root / "m")
        until(lambda: (s := job.served()) and s.clients and s.step > 20, 60, "steps")
        ends_s = handler.ends_s = time.time() + 30
        reason = job.until_state("unloaded")["reason"]
        spare_s = ends_s - path.stat().st_mtime
        assert spare_s > 0 and json.loads(path.read_text())["done"] > 20
        assert "by its cloud's notice" in reason["text"]
        handler.ends_s = None  # called off
        left = job.served().step
        until(lambda: (s := job.served()) and s.clients and s.step > left, 60, "steps again")
        path.with_name("state.json.end").touch()
        assert job.until_exit()["code"] == 0
    job.until_over()
    _, steps, value = (job.dir / "run.log").read_text().splitlines()[-1].split()
    assert int(value) == undisturbed(int(steps)), "not a step lost or done twice"
    print(f"{cloud}: {spare_s:.1f} s to spare")


@pytest.mark.parametrize("by", ["run", "restart"])
def test_on_another_machine_with_the_state_directory_it_is_the_same_job(house, by):
    """The machine is gone with all its processes; its record names another boot, as it does from elsewhere."""
    script, path = house.root / "resumes.py", house.root / "state.json"
    script.write_text(SCRIPT)
    with metadata() as (handler, base):
        house.env |= {termination.OVERRIDE: f"aws={base}"}
        house.env |= {"CARBONTUI_HOST_W": "100", "CARBONTUI_BOUNDARY": "given-back"}
        if by == "run":
            house.env["SKYPILOT_TASK_ID"] = "sky-managed-2027-01-15-08-00-00-000000_train_1-0"
        command = ("run", "--detach", "--name", "spot", "--budget", "20h", "--", sys.executable, script, path)
        job = Job(house, house.cli(*command, check=True).stdout.strip(), house.root / "m")
        until(lambda: (s := job.served()) and s.clients and s.step > 20, 60, "steps")
        handler.ends_s = time.time() + 30
        job.until_state("unloaded")
        until(lambda: job.snapshot()["step"] == job.served().step, 60, "the last snapshot")
        for role in ("keeper", "supervisor"):
            os.kill(job.pids()[role], signal.SIGKILL)
    until(lambda: not store.load(job.dir).live, 60, "its death")
    left = job.snapshot()
    record = json.loads((job.dir / "job.json").read_text())
    (job.dir / "job.json").write_text(json.dumps(record | {"host": "vm-1", "boot": "gone", "machine": "f" * 32}))
    del house.env[termination.OVERRIDE]
    if by == "run":
        assert house.cli(*command, check=True).stdout.strip() == job.id
    else:
        refused = house.cli("restart", job.id)
        assert refused.returncode == 1 and f"carbontui restart {job.id} --here" in refused.stderr
        house.cli("restart", job.id, "--here", check=True)
    again = until(lambda: (s := job.served()) and s.clients and s.step > left["step"] + 5 and s, 60, "more steps")
    assert again.budget.start == left["budget"]["start"] and again.energy_wall_kwh >= left["energy_wall_kwh"]
    path.with_name("state.json.end").touch()
    assert job.until_exit()["code"] == 0
    job.until_over()
    _, steps, value = (job.dir / "run.log").read_text().splitlines()[-1].split()
    assert int(value) == undisturbed(int(steps)), "not a step lost or done twice"
