"""A newest checkpoint that turns out to be none: the one before it is still there, and the keeper goes back to it."""

from __future__ import annotations

import json
import os
import socket
import types

import pytest
from later import IN_PROCESS, Later, needs

from carbontui.client import api
from carbontui.client.checkpoint import Kept
from carbontui.job.keeper import resume
from carbontui.system import proc

torch = Later("torch")
pytestmark = [needs("torch"), IN_PROCESS]
WELL = {"code": 0, "unloaded": False, "stopped": False}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The folder that a job's training, played by this process, runs in."""
    home = tmp_path / "jobs" / "alpha"
    home.mkdir(parents=True)
    monkeypatch.setenv("CARBONTUI_MARKER", str(home / "resume.json"))
    monkeypatch.setenv("CARBONTUI_JOB", "alpha")
    monkeypatch.setattr(api.gate, "savers", [])
    monkeypatch.setattr(api.gate, "facts", {})
    return tmp_path


def earlier(job):
    """The checkpoint that the keeper goes back to."""
    marker = job / "jobs" / "alpha" / "resume.json"
    return resume.earlier(str(marker), str(marker.with_name("resumed.json")))


def own(job, name="run.pt"):
    return job / ".carbontui" / "alpha" / name


class Training:
    """A life of a script that saves one number, through carbontui's own checkpoint."""

    def __init__(self, path):
        from carbontui.client.checkpoint import Checkpoint

        api.gate.savers.clear()
        self.model = torch.nn.Linear(1, 1, bias=False)
        self.saved = Checkpoint(path, model=self.model)

    def reaches(self, step):
        self.model.weight.data.fill_(step)
        self.saved.save(step)
        return self

    def resumes(self):
        step = self.saved.resume()
        assert self.model.weight.item() == step, "everything is of one checkpoint"
        return step


def test_a_damaged_checkpoint_is_replaced_by_the_one_before_and_never_replaces_it(job, monkeypatch):
    path = job / "run.pt"
    Training(path).reaches(3).reaches(7)
    assert sorted(os.listdir(own(job).parent)) == ["run.pt", "run.pt.before"]
    assert path.samefile(own(job)), "the script finds it where it said, too"
    path.write_bytes(path.read_bytes()[:100])
    monkeypatch.setenv("CARBONTUI_RESUME", "1")
    with pytest.raises(SystemExit, match=r"run\.pt is not what job alpha wrote"):
        Training(path).resumes()
    assert earlier(job) == f"{own(job)}.before"
    assert json.loads((job / "jobs" / "alpha" / "resumed.json").read_text())["step"] == 3
    again = Training(path)
    assert again.resumes() == 3
    again.reaches(9)
    assert torch.load(f"{own(job)}.before", weights_only=True)["step"] == 3, "what did not load is not kept"
    again.reaches(12)
    assert torch.load(f"{own(job)}.before", weights_only=True)["step"] == 9
    assert Training(path).resumes() == 12
    assert sorted(os.listdir(own(job).parent)) == ["run.pt", "run.pt.before"], "two at most"


def test_a_missing_checkpoint_ends_the_start_and_anew_means_the_first_step(job, monkeypatch):
    Training(job / "run.pt").reaches(3)
    monkeypatch.setenv("CARBONTUI_RESUME", "1")
    own(job).rename(job / "elsewhere")
    with pytest.raises(SystemExit, match="the checkpoint of the unload is missing"):
        Training(job / "run.pt").saved.resume()
    (job / "elsewhere").rename(own(job))
    resume.forget(str(job / "jobs" / "alpha" / "resume.json"))
    monkeypatch.delenv("CARBONTUI_RESUME")
    assert Training(job / "run.pt").saved.resume() == 0


def test_a_job_beside_one_under_way_begins_at_its_first_step(job, monkeypatch, capsys):
    Training(job / "run.pt").reaches(3)
    keeper = {"pids": {"keeper": [os.getpid(), proc.start_time(os.getpid())]}, "host": socket.gethostname()}
    (job / "jobs" / "alpha" / "job.json").write_text(json.dumps(keeper))

    def of(name):
        monkeypatch.setenv("CARBONTUI_JOB", name)
        (job / "jobs" / name).mkdir(exist_ok=True)
        monkeypatch.setenv("CARBONTUI_MARKER", str(job / "jobs" / name / "resume.json"))

    of("beta")
    other = Training(job / "run.pt")
    assert other.saved.resume() == 0 and "is of job alpha, which is under way" in capsys.readouterr().err
    monkeypatch.setattr(api.gate, "saving", True)  # an unload
    other.reaches(40)
    assert Training(job / "run.pt").resumes() == 40
    of("alpha")
    assert Training(job / "run.pt").resumes() == 3 and (job / "run.pt").samefile(own(job))
    (job / "jobs" / "alpha" / "exit.json").touch()
    of("gamma")
    assert Training(job / "run.pt").resumes() == 3, "a run that is over goes on by hand"
    resume.clear(str(job / "jobs" / "beta" / "resume.json"), "beta", {**WELL, "stopped": True})
    assert sorted(os.listdir(job / ".carbontui")) == ["alpha", "beta"]
    resume.clear(str(job / "jobs" / "beta" / "resume.json"), "beta", WELL)
    assert os.listdir(job / ".carbontui") == ["alpha"], "a job's success takes away its own"
    resume.clear(str(job / "jobs" / "alpha" / "resume.json"), "alpha", WELL)
    assert not (job / ".carbontui").exists() and (job / "run.pt").exists()


def test_a_rank_whose_part_is_damaged_goes_back_with_the_others(job, monkeypatch):
    from carbontui.client import device

    def on(rank):
        ranks = types.SimpleNamespace(get_rank=lambda: rank, barrier=lambda: None)
        monkeypatch.setattr(device, "distributed", lambda: ranks)
        monkeypatch.setenv("LOCAL_RANK", f"{rank}")

    def both(does):
        return [does(rank) for rank in (0, 1) if on(rank) is None]

    lives = both(lambda rank: Training(job / "run.pt").reaches(2))
    both(lambda rank: lives[rank].reaches(5))
    both(lambda rank: lives[rank].reaches(8))
    parts = [f"run.pt.{step}.rank1" for step in (5, 8)]
    for folder in (job, own(job).parent):
        assert sorted(file.name for file in folder.glob("run.pt.*.rank1")) == parts
    own(job, parts[1]).write_bytes(b"")
    monkeypatch.setenv("CARBONTUI_RESUME", "1")
    on(1)
    with pytest.raises(EOFError):
        Training(job / "run.pt").resumes()
    assert earlier(job)
    assert both(lambda rank: Training(job / "run.pt").resumes()) == [5, 5]


def test_hours_are_not_done_again_unasked(job, monkeypatch):
    training = Training(job / "run.pt").reaches(3)
    now = api.gate.clock()
    monkeypatch.setattr(api.gate, "clock", lambda: now + 601.0)
    training.reaches(7)
    assert not earlier(job)
    training.reaches(8)
    assert earlier(job)


def test_a_job_directory_that_is_gone_does_not_end_a_training(job, monkeypatch):
    monkeypatch.setenv("CARBONTUI_MARKER", str(job / "gone" / "resume.json"))
    Training(job / "run.pt").reaches(3).reaches(7)
    assert Training(job / "run.pt").resumes() == 7


def test_one_of_several_checkpoints_does_not_go_back_alone(job):
    training = Training(job / "run.pt")
    api.on_checkpoint(print)
    training.reaches(3).reaches(7)
    assert not earlier(job)


def test_a_checkpoint_of_another_run_at_this_place_is_not_kept(job):
    path = job / "run.pt"
    Training(path).reaches(3)
    Training(path).reaches(5)  # begun without a look at what is there
    assert not own(job, "run.pt.before").exists()


def test_a_kill_between_two_folders_leaves_the_one_before(job):
    place = job / "state"

    def save(kept, step, cut=False):
        os.makedirs(kept.part)
        with open(os.path.join(kept.part, "step"), "w") as file:
            file.write(f"{step}")
        kept.place({}.popitem if cut else (lambda: os.replace(kept.part, kept.path)))
        kept.saved(step)

    def read(path):
        with open(os.path.join(path, "step")) as file:
            return int(file.read())

    first = Kept(str(place))
    assert first.load(read) is None
    save(first, 3)
    save(first, 7)
    with pytest.raises(KeyError):
        save(first, 9, cut=True)
    assert not own(job, "state").exists()
    assert Kept(str(place)).load(read) == 7
