"""Mixed precision: the scaler begins too high and skips the first steps, and one now and then."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cpu"
use_amp = True
epochs = 6
data = DataLoader(TensorDataset(torch.randn(640, 32), torch.randn(640, 8)), batch_size=10)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler(device, init_scale=2.0**127, growth_interval=60, enabled=use_amp)
skipped = 0
for epoch in range(epochs):
    for input, target in data:
        with torch.autocast(device_type=device, dtype=torch.bfloat16, enabled=use_amp):
            output = net(input)
            loss = nn.functional.mse_loss(output, target, reduction="sum")
        before = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        scaler.step(opt)
        scaler.update()
        skipped += scaler.get_scale() < before
        opt.zero_grad()
    print(f"epoch {epoch}: loss {loss.item():.3f}, scale {scaler.get_scale():.3g}, {skipped} skipped")
