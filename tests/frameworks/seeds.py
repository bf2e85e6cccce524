"""The same training with another seed, as people start several from one folder: python seeds.py KIND SEED [STEPS]"""

from __future__ import annotations

import hashlib
import sys

import torch
from torch import nn

KIND, SEED, STEPS = sys.argv[1], int(sys.argv[2]), int([*sys.argv, 60][3])
SIZE, BATCH = 80, 4


class Pairs(torch.utils.data.Dataset):
    """Plain inputs; a little noise is drawn at every access, as augmentation does (accelerate draws a batch ahead)."""

    def __init__(self) -> None:
        self.inputs = torch.randn(SIZE, 8, generator=torch.Generator().manual_seed(7))

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        noise = 0.0 if KIND == "transformers" else 0.01 * torch.randn(8)
        return {"x": self.inputs[index] + noise, "labels": self.inputs[index]}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.net(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def kit(model: Net) -> int:
    import carbontui
    from carbontui import Checkpoint
    from carbontui.train import ResumableBatches

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = Checkpoint("run.pt", model=model, optimizer=optimizer).resume()
    pairs = Pairs()
    for indices in ResumableBatches(SIZE, BATCH, STEPS, SEED, step):
        batch = [pairs[i] for i in indices]
        optimizer.zero_grad()
        model(*(torch.stack([one[name] for one in batch]) for name in ("x", "labels")))["loss"].backward()
        optimizer.step()
        step += 1
        carbontui.step()
    return step


def trainer(model: Net) -> int:
    import transformers

    told = transformers.TrainingArguments(
        "out",
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=SEED,
    )
    one = transformers.Trainer(model, told, train_dataset=Pairs())
    one.train()
    return one.state.global_step


def lightning(model: Net) -> int:
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            return self.model(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    one = pl.Trainer(max_steps=STEPS, accelerator="cpu", enable_checkpointing=False, **quiet)
    one.fit(Module(), torch.utils.data.DataLoader(Pairs(), BATCH, shuffle=True))
    return one.global_step


torch.set_num_threads(1)
torch.manual_seed(SEED)
net = Net()
print("steps", {"kit": kit, "transformers": trainer, "lightning": lightning}[KIND](net), flush=True)
print(
    "weights", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest(), flush=True
)
