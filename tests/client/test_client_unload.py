"""Checkpoint, unload, come back: the weights of a disturbed run equal those of an undisturbed one, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from disturbed import disturb
from kill_checkpoint import kills
from later import IN_PROCESS, needs

pytestmark = [needs("torch"), IN_PROCESS]


def test_disturbed_weights_are_bit_identical(supervisor, launch, finish, tmp_path):
    """One unload, pauses, duty cycling and a dying supervisor here; the long form is in tests/soak."""
    disturb(supervisor, launch, finish, tmp_path, steps=400, unloads=1, pauses=2, kills=2)


def test_a_failing_checkpoint_keeps_training(supervisor, launch, finish, tmp_path):
    process = launch(
        """
        import carbontui, time
        @carbontui.on_checkpoint
        def save():
            raise RuntimeError("disk is full")
        for _ in range(200):
            time.sleep(0.01)
            carbontui.step()
        print("came through")
        """
    )
    supervisor.wait(lambda: supervisor.last() and supervisor.last().can_unload)
    gen = supervisor.want("unload")
    supervisor.wait(lambda: supervisor.acked(gen))
    supervisor.wait(lambda: supervisor.last().state == "paused")
    supervisor.want("run")
    out = finish(process)
    assert "disk is full" in out and "came through" in out
    assert not (tmp_path / "marker.json").exists()


def test_unload_without_a_checkpoint_function_holds_the_model(supervisor, launch, finish, tmp_path):
    process = launch("import carbontui, time\nfor _ in range(200):\n    time.sleep(0.01)\n    carbontui.step()\n")
    supervisor.wait(lambda: supervisor.last())
    assert not supervisor.last().can_unload
    gen = supervisor.want("unload")
    supervisor.wait(lambda: supervisor.acked(gen) and supervisor.last().state == "paused")
    supervisor.want("run")
    finish(process)
    assert not (tmp_path / "marker.json").exists()


def test_kill_at_any_moment_leaves_a_readable_checkpoint(tmp_path):
    """A few kills here, 200 in tests/soak."""
    assert kills(tmp_path, 6, seed=1) == 6


def test_indices_depend_on_seed_and_step_alone():
    from carbontui.client.checkpoint import ShuffledIndices

    whole = ShuffledIndices(23, batch=4, seed=2).batches()
    first = [next(whole) for _ in range(12)]
    later = ShuffledIndices(23, batch=4, seed=2).batches(7)
    assert [next(later) for _ in range(5)] == first[7:]
    assert len({i for batch in first[:5] for i in batch}) == 20
    shares = [next(ShuffledIndices(23, batch=2, seed=2, rank=r, world=2).batches()) for r in (0, 1)]
    assert shares[0] + shares[1] == first[0]
    with pytest.raises(ValueError, match="does not fit"):
        ShuffledIndices(3, batch=4)


def test_a_checkpoint_of_another_make_up_is_refused(tmp_path: Path):
    import torch

    from carbontui.client import api
    from carbontui.client.checkpoint import Checkpoint

    model = torch.nn.Linear(2, 2)
    first = Checkpoint(tmp_path / "a.pt", model=model)
    first.save(step=3)
    other = Checkpoint(tmp_path / "a.pt", model=model, ema=model)
    with pytest.raises(ValueError, match="not \\['ema', 'model'\\]"):
        other.resume()
    api.gate.savers.clear()


def test_a_fresh_start_counts_from_nothing_whatever_the_command_resumed(tmp_path, monkeypatch):
    """A command of two scripts: the first one's steps, told by the keeper, would be saved as steps of the second."""
    from carbontui.client import api
    from carbontui.client.checkpoint import Checkpoint

    monkeypatch.setattr(api.gate, "savers", [])
    monkeypatch.setattr(api.gate, "facts", {"start_step": 40})
    assert Checkpoint(tmp_path / "second.pt").resume() == 0
    assert api.gate.facts["start_step"] == 0
