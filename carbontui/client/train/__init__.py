"""carbontui.train: a toolkit for plain PyTorch loops. It needs no supervisor; torch is loaded on first use.

    from carbontui import train

    precision = train.Precision(device)
    for batch in train.on_device(loader, device):
        loss = train.step(model, optimizer, criterion, batch, micro=16, precision=precision)

`step` computes a batch in parts with the
loss and gradient of the whole batch; `Precision` uses mixed precision where that helps and full elsewhere; `on_device`
copies the next batch while this one is computed; `ResumableBatches` resumes at any step.
"""

from carbontui.client.train.batches import Precision, ResumableBatches, accumulate, micro_batches, on_device, step

__all__ = [
    "Precision",
    "ResumableBatches",
    "accumulate",
    "micro_batches",
    "on_device",
    "step",
]
