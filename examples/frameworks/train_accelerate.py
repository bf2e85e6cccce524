"""An accelerate loop that can be unloaded: the Accelerator saves, the loop determines where to resume.

carbontui run -- accelerate launch --num_processes 2 --cpu train_accelerate.py
"""

from __future__ import annotations

import argparse
import hashlib

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn

import carbontui
from carbontui.client.frameworks.accelerate import Resumable


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--checkpoint", default="state")
    args = parser.parse_args()

    set_seed(1)
    torch.set_num_threads(1)
    accelerator = Accelerator(
        gradient_accumulation_steps=args.accumulate,
        cpu=not torch.cuda.is_available(),
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(7))
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(inputs, batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    saved = Resumable(accelerator, args.checkpoint)
    saved.resume()
    carbontui.report(total=args.epochs * len(loader) // args.accumulate)
    for epoch in range(args.epochs):
        for batch in saved.rest_of(loader, epoch):
            with accelerator.accumulate(model):
                loss = (model(batch) - batch).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            saved.batch_ended()
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in accelerator.unwrap_model(model).parameters())
    if accelerator.is_main_process:
        print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
        print("steps", saved.steps, flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
