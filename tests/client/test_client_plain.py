"""What a checkpoint of plain values may hold, and what its reader refuses."""

import os
import pickle

import pytest
from later import Later

from carbontui.client.checkpoint import plain

numpy = Later("numpy")
torch = Later("torch")


def test_plain_values_arrays_and_tensors_come_back_as_they_were():
    kept = {
        "a": (1, 2.5, "x", None, [True]),
        "b": numpy.arange(6.0).reshape(2, 3),
        "c": numpy.float32(2.5),
        "d": torch.get_rng_state(),
    }
    back = plain.loads(plain.dumps(kept))
    assert back["a"] == kept["a"] and (back["b"] == kept["b"]).all() and back["c"] == kept["c"]
    assert torch.equal(back["d"], kept["d"]) and back["d"].dtype == torch.uint8


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made-by-a-checkpoint",)


def test_a_checkpoint_that_calls_something_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        plain.loads(pickle.dumps({"step": Evil()}))
    assert not list(tmp_path.iterdir())
