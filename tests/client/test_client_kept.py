"""A newest checkpoint that turns out to be none: the one before it is still there, and the keeper goes back to it."""

from __future__ import annotations

import json
import os
import types

import pytest
from later import IN_PROCESS, Later, needs

from carbontui.client import api
from carbontui.client.checkpoint import Kept
from carbontui.job.keeper import resume

torch = Later("torch")
pytestmark = [needs("torch"), IN_PROCESS]


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The folder of a job, whose training this process plays."""
    monkeypatch.setenv("CARBONTUI_MARKER", str(tmp_path / "resume.json"))
    monkeypatch.setattr(api.gate, "savers", [])
    monkeypatch.setattr(api.gate, "facts", {})
    return tmp_path


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


def test_a_damaged_checkpoint_is_replaced_by_the_one_before_and_never_replaces_it(job, monkeypatch, capsys):
    path = job / "run.pt"
    Training(path).reaches(3).reaches(7)
    assert sorted(file.name for file in job.glob("run*")) == ["run.pt", "run.pt.before"]
    path.write_bytes(path.read_bytes()[:100])
    monkeypatch.setenv("CARBONTUI_RESUME", "1")
    with pytest.raises(RuntimeError):
        Training(path).resumes()
    assert f"the checkpoint before it: {path}.before" in capsys.readouterr().err
    assert resume.earlier(str(job / "resume.json"), str(job / "resumed.json")) == f"{path}.before"
    assert json.loads((job / "resumed.json").read_text())["step"] == 3
    again = Training(path)
    assert again.resumes() == 3
    again.reaches(9)
    assert torch.load(f"{path}.before", weights_only=True)["step"] == 3, "what did not load is not kept"
    again.reaches(12)
    assert torch.load(f"{path}.before", weights_only=True)["step"] == 9
    assert Training(path).resumes() == 12
    assert sorted(file.name for file in job.glob("run*")) == ["run.pt", "run.pt.before"], "two at most"


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
    parts = [job / f"run.pt.{step}.rank1" for step in (5, 8)]
    assert sorted(job.glob("run.pt.*.rank1")) == parts
    parts[1].write_bytes(b"")
    monkeypatch.setenv("CARBONTUI_RESUME", "1")
    on(1)
    with pytest.raises(EOFError):
        Training(job / "run.pt").resumes()
    assert resume.earlier(str(job / "resume.json"), str(job / "resumed.json"))
    assert both(lambda rank: Training(job / "run.pt").resumes()) == [5, 5]


def test_hours_are_not_done_again_unasked(job, monkeypatch):
    training = Training(job / "run.pt").reaches(3)
    now = api.gate.clock()
    monkeypatch.setattr(api.gate, "clock", lambda: now + 601.0)
    training.reaches(7)
    assert not resume.earlier(str(job / "resume.json"), str(job / "resumed.json"))
    training.reaches(8)
    assert resume.earlier(str(job / "resume.json"), str(job / "resumed.json"))


def test_a_job_directory_that_is_gone_does_not_end_a_training(job, monkeypatch):
    monkeypatch.setenv("CARBONTUI_MARKER", str(job / "gone" / "resume.json"))
    Training(job / "run.pt").reaches(3).reaches(7)
    assert Training(job / "run.pt").resumes() == 7


def test_one_of_several_checkpoints_does_not_go_back_alone(job):
    training = Training(job / "run.pt")
    api.on_checkpoint(print)
    training.reaches(3).reaches(7)
    assert not resume.earlier(str(job / "resume.json"), str(job / "resumed.json"))


def test_a_checkpoint_of_another_run_at_this_place_is_not_kept(job):
    path = job / "run.pt"
    Training(path).reaches(3)
    Training(path).reaches(5)  # begun without a look at what is there
    assert not (job / "run.pt.before").exists()


def test_a_kill_between_two_folders_leaves_the_one_before(job):
    place = job / "state"

    def save(kept, step, cut=False):
        os.makedirs(kept.part)
        with open(os.path.join(kept.part, "step"), "w") as file:
            file.write(f"{step}")
        kept.place((lambda: None) if cut else (lambda: os.replace(kept.part, place)))
        kept.saved(step)

    def read(path):
        with open(os.path.join(path, "step")) as file:
            return int(file.read())

    first = Kept(str(place))
    assert first.load(read) is None
    save(first, 3)
    save(first, 7)
    save(first, 9, cut=True)
    assert not place.exists()
    assert Kept(str(place)).load(read) == 7
