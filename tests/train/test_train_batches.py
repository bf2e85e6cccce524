"""The training kit: micro-batches, precision, loading, and a trial that leaves nothing behind."""

import random

import numpy
import pytest
from later import IN_PROCESS, Later, needs

import carbontui
from carbontui import train

torch = Later("torch")
pytestmark = [needs("torch"), IN_PROCESS]


def model_of(seed=0, dtype="float64"):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 3)).to(
        getattr(torch, dtype)
    )


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize(("batch", "micro"), [(32, 8), (30, 8), (7, 3), (5, 8), (4, 1)])
def test_a_hundred_steps_in_parts_are_those_of_the_whole_batch(batch, micro):
    """Four parts (the last ragged) against one, in float64: within 1e-9."""
    dice = torch.Generator().manual_seed(1)
    whole, parts = model_of(), model_of()
    at_once = torch.optim.AdamW(whole.parameters(), lr=1e-2)
    in_parts = torch.optim.AdamW(parts.parameters(), lr=1e-2)
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(100):
        inputs = torch.randn(batch, 12, generator=dice, dtype=torch.float64)
        targets = torch.randint(0, 3, (batch,), generator=dice)
        at_once.zero_grad()
        loss = criterion(whole(inputs), targets)
        loss.backward()
        at_once.step()
        same = train.step(parts, in_parts, criterion, (inputs, targets), micro=micro)
        assert float(same) == pytest.approx(float(loss.detach()), rel=1e-9)
    distance = (weights(whole) - weights(parts)).norm() / weights(whole).norm()
    assert float(distance) < 1e-9


def test_parts_of_dictionaries_and_their_shares_add_up():
    batch = {"ids": torch.arange(10), "mask": torch.ones(10, 2)}
    found = list(train.micro_batches(batch, 4))
    assert [len(part["ids"]) for part, _ in found] == [4, 4, 2] and sum(share for _, share in found) == pytest.approx(1)
    with pytest.raises(ValueError, match="same number"):
        list(train.micro_batches((torch.ones(3), torch.ones(4)), 2))
    with pytest.raises(ValueError, match="at least one"):
        list(train.micro_batches(torch.ones(3), 0))


def test_precision_is_plain_without_a_board_and_its_state_survives_a_checkpoint():
    precision = train.Precision("cpu")
    assert precision.name == "float32" and precision.state_dict() == {}
    precision.load_state_dict({})
    model = model_of(dtype="float32")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = weights(model)
    batch = (torch.ones(4, 12), torch.zeros(4, dtype=torch.long))
    train.step(model, optimizer, torch.nn.CrossEntropyLoss(), batch, precision=precision)
    assert not torch.equal(before, weights(model))


def test_a_loader_goes_on_at_any_step_in_the_same_order():
    data = torch.utils.data.TensorDataset(torch.arange(20))
    every = list(torch.utils.data.DataLoader(data, batch_sampler=train.ResumableBatches(20, 4, batches=11, seed=3)))
    rest = list(
        torch.utils.data.DataLoader(data, batch_sampler=train.ResumableBatches(20, 4, batches=11, seed=3, step=6))
    )
    assert [b[0].tolist() for b in rest] == [b[0].tolist() for b in every[6:]] and len(every) == 11
    moved = [b[0].tolist() for b in train.on_device(iter(every), "cpu")]
    assert moved == [b[0].tolist() for b in every]


class Noisy:
    """Draws from every generator, as augmentation does."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        jitter = random.random() + float(numpy.random.rand()) + float(torch.rand(()))
        return torch.full((12,), jitter, dtype=torch.float64), index % 3


def test_the_kit_is_there_for_who_asks_for_it_alone():
    assert carbontui.train is train
    with pytest.raises(AttributeError):
        carbontui.tain  # noqa: B018
