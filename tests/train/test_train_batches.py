"""The training kit: micro-batches, precision, loading, and a trial that leaves nothing behind."""

import copy
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


@pytest.mark.parametrize("steps_before", [0, 3])
def test_a_trial_leaves_weights_optimizer_modes_gradients_and_dice_bit_for_bit(steps_before):
    model = torch.nn.Sequential(model_of(), torch.nn.BatchNorm1d(3, dtype=torch.float64), torch.nn.Dropout(0.2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(steps_before):
        optimizer.zero_grad()
        criterion(model(torch.randn(8, 12, dtype=torch.float64)), torch.zeros(8, dtype=torch.long)).backward()
        optimizer.step()
    model[2].eval()
    random.seed(5)
    numpy.random.seed(5)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    dice = (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state())
    found = train.estimate(
        model, optimizer, criterion, Noisy(), epochs=2, batch_size=8, seconds=0.2, validate=lambda: None
    )
    assert found.seconds > 0
    after = (model.state_dict(), optimizer.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(before[0].values(), after[0].values(), strict=True))
    assert str(before[1]) == str(after[1])
    for was, now in zip(before[1]["state"].values(), after[1]["state"].values(), strict=True):
        assert all(torch.equal(was[name], now[name]) for name in was)
    for was, parameter in zip(gradients, model.parameters(), strict=True):
        assert was is parameter.grad is None or torch.equal(was, parameter.grad)
    assert dice[0] == random.getstate() and dice[1] == numpy.random.get_state()[1].tolist()
    assert torch.equal(dice[2], torch.get_rng_state())
    assert model.training and not model[2].training


def test_a_trial_that_fails_puts_everything_back_and_counts_no_step():
    from carbontui.client.api import gate

    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, framework = weights(model), gate.framework

    def broken(model, optimizer, criterion, batch):
        with torch.no_grad():
            next(model.parameters()).add_(1.0)
        raise RuntimeError("no such layer")

    with pytest.raises(RuntimeError, match="no such layer"):
        train.estimate(model, optimizer, None, Noisy(), epochs=1, batch_size=8, train_step=broken)
    assert torch.equal(before, weights(model)) and gate.framework == framework


def test_the_fixed_part_of_an_epoch_is_told_apart_from_its_samples(monkeypatch):
    """A clock of our own: 100 ms an epoch, 1 ms a sample."""
    from carbontui.client.train import trial

    now = [0.0]
    monkeypatch.setattr(trial.time, "perf_counter", lambda: now[0])
    waited = [0.0]
    monkeypatch.setattr(trial, "core_wait_s", lambda: waited[0] * now[0])
    dice = random.Random(2)

    def loader(part):
        now[0] += 0.1
        for first in range(0, len(part), 10):
            yield list(range(first, min(len(part), first + 10)))

    def step(model, optimizer, criterion, batch):
        now[0] += 0.001 * len(batch) * dice.uniform(0.95, 1.05)

    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def estimated():
        return train.estimate(
            model, optimizer, None, range(900), epochs=10, batch_size=10, train_step=step, loader=loader, seconds=10.0,
            validate=lambda: now.__setitem__(0, now[0] + 0.5), watts=100.0,
        )  # fmt: skip

    found = estimated()
    assert found.fixed_s == pytest.approx(0.1, rel=0.2) and found.linear
    assert found.seconds == pytest.approx(10 * (0.1 + 0.9 + 0.5), rel=0.02)
    assert found.lo_s < 15.0 < found.hi_s and found.kwh == pytest.approx(100 * found.seconds / 3.6e6)
    waited[0] = 0.6  # of its time it waits for a core: alone it would take 6 s, beside twice as many 24 s
    busy = estimated()
    assert busy.lo_s < 6.5 and busy.hi_s > 23.5 and "waited 60 % of the time for a core" in busy.note
    assert found.note == "" and found.hi_s < busy.hi_s - 4


def test_nothing_to_time_is_refused():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="nothing to time"):
        train.estimate(model, optimizer, None, [], epochs=1, batch_size=8)


def test_the_kit_is_there_for_who_asks_for_it_alone():
    assert carbontui.train is train
    with pytest.raises(AttributeError):
        carbontui.tain  # noqa: B018
