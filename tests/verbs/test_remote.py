"""Jobs of other machines, over a real sshd on loopback."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

import pytest
from house import until
from sshd import WHY_NOT, Sshd

from carbontui import link, protocol
from carbontui.commands import attach
from carbontui.commands.support.command import Failure
from carbontui.commands.support.station import RemoteJobs
from carbontui.job.files import places
from carbontui.system import ssh

THERE = f"{sys.executable} -m carbontui.cli"


@pytest.fixture
def server(house, tmp_path):
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    root = tmp_path / "sshd"
    root.mkdir()
    one = Sshd(root, {name: house.env[name] for name in house.env if name.startswith(("CARBONTUI_", "XDG_"))})
    yield one
    one.stop()


def test_a_remote_job_is_seen_and_commanded_and_a_lost_line_is_said(house, server):
    job = house.start()
    job.until_connected()
    with ssh.SshHost("box", carbontui=THERE, ssh=server.ssh) as host:
        status = attach.only_job(host, None)
        assert (status.job, status.name) == (job.id, "t") and attach.only_job(host, "t").job == job.id
        near = host.socket(job.id)
        assert near.parent.stat().st_mode & 0o077 == 0
        answer = link.ask(near, protocol.Cmd(1, "pause"), 30)
        assert isinstance(answer, protocol.Result) and answer.ok
        assert link.snap(near, 30).status.override is not None
        with RemoteJobs([host]) as jobs:
            until(jobs.jobs, 60, "the remote job")
            assert [target.job for target in jobs.jobs()] == [job.id] and jobs.facts()[0][1] == "1 live, 0 over"
            assert jobs.jobs()[0].owner == getpass.getuser()
            server.stop()
            host.close_shared()
            until(lambda: "unreachable" in jobs.facts()[0][1], 60, "the loss")
            assert [target.job for target in jobs.jobs()] == [job.id], "as last seen"
        with pytest.raises(link.LinkError):
            link.ask(near, protocol.StatusAsk(1), 30)
        folder = near.parent
    assert not folder.exists()
    job.tell("resume")
    job.until_steps()


def test_what_opens_a_job_that_has_moved_follows_it_over_ssh(house, monkeypatch: pytest.MonkeyPatch) -> None:
    job, opened = house.start(), []
    for name, value in house.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(attach.talk.places, "read", lambda directory: places.Places(1, False, True, peer="me@n2"))
    monkeypatch.setattr(attach.tty, "why_plain", str)
    monkeypatch.setattr(attach, "open_remote", lambda wanted, there, **screen: opened.append((wanted, there)) or 0)
    assert attach.open_screen(job.id, "ct") == attach.open_default("ct", readonly=False) == 0
    assert opened == 2 * [(f"me@n2:{job.id}", "ct")]
    monkeypatch.setattr(attach.tty, "why_plain", lambda: "stdout is a pipe")
    with pytest.raises(Failure, match="attach me@n2:"):
        attach.open_screen(job.id)


def test_a_job_that_is_not_there_and_a_carbontui_that_is_not_found_are_said(house, server):
    with ssh.SshHost("box", carbontui=THERE, ssh=server.ssh) as host, pytest.raises(Failure, match="no job is running"):
        attach.only_job(host, None)
    with (
        ssh.SshHost("box", carbontui="/no/such/carbontui", ssh=server.ssh) as host,
        pytest.raises(Failure, match="--there"),
    ):
        attach.only_job(host, None)


def test_what_a_host_says_cannot_move_the_cursor(tmp_path: Path) -> None:
    bad = tmp_path / "ssh"
    bad.write_text("#!/bin/sh\nprintf 'no\\033[2Jway\\n' >&2\nexit 255\n")
    bad.chmod(0o755)
    with ssh.SshHost("box", ssh=str(bad)) as host, pytest.raises(ssh.SshError) as caught:
        host.statuses()
    assert str(caught.value) == "box: no?[2Jway"


def test_an_answer_without_an_end_is_given_up(tmp_path: Path) -> None:
    bad = tmp_path / "ssh"
    bad.write_text("#!/bin/sh\nexec cat /dev/zero\n")
    bad.chmod(0o755)
    host = ssh.SshHost("box", ssh=str(bad))
    with pytest.raises(ssh.SshError, match="is too long"):
        host.statuses()


@pytest.mark.parametrize(
    "text", ["-oProxyCommand=true@x", "u@-oProxyCommand=true", "-x:job", "a b", "", "u@h\x1b[2J", "$(id)@x", "a;b"]
)
def test_an_option_is_no_host(text: str) -> None:
    with pytest.raises(ValueError):
        ssh.place(text)


def test_a_place_is_a_host_and_perhaps_a_job() -> None:
    assert ssh.place("me@box") == ssh.SshPlace("me@box") and ssh.place("box:train.py-2") == ssh.SshPlace(
        "box", "train.py-2"
    )
