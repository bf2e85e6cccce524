"""carbontui.train: a toolkit for plain PyTorch loops. It needs no supervisor; torch is loaded on first use.

    from carbontui import train

    print(train.estimate(model, optimizer, criterion, dataset, epochs=30, batch_size=64))

    precision = train.Precision(device)
    for batch in train.on_device(loader, device):
        loss = train.step(model, optimizer, criterion, batch, micro=16, precision=precision)

`estimate` leaves model, optimizer and every random state as they were; `step` computes a batch in parts with the
loss and gradient of the whole batch; `Precision` uses mixed precision where that helps and full elsewhere; `on_device`
copies the next batch while this one is computed; `ResumableBatches` resumes at any step.
"""

from carbontui.client.train.batches import Precision, ResumableBatches, accumulate, micro_batches, on_device, step
from carbontui.client.train.trial import TrainEstimate, estimate

__all__ = [
    "Precision",
    "ResumableBatches",
    "TrainEstimate",
    "accumulate",
    "estimate",
    "micro_batches",
    "on_device",
    "step",
]
