"""Pretraining: the number of iterations is -1, and derived from a ratio of tokens to parameters; two optimizers."""

import torch
from torch import nn

depth = 2
device_batch_size = 4
total_batch_size = 256  # tokens of one step
max_seq_len = 16
num_iterations = -1
target_flops = -1.0
target_param_data_ratio = 20
eval_every = 60
warmdown_ratio = 0.2

torch.manual_seed(0)
model_dim, vocab = depth * 16, 24
model = nn.Sequential(nn.Embedding(vocab, model_dim), nn.Linear(model_dim, model_dim), nn.Linear(model_dim, vocab))
num_params = sum(p.numel() for p in model.parameters())
tokens_per_fwdbwd = device_batch_size * max_seq_len
grad_accum_steps = total_batch_size // tokens_per_fwdbwd
if num_iterations > 0:
    print(f"Using user-provided number of iterations: {num_iterations:,}")
elif target_param_data_ratio > 0:
    target_tokens = target_param_data_ratio * num_params
    num_iterations = target_tokens // total_batch_size
    print(f"Calculated number of iterations from target data:param ratio: {num_iterations:,}")

adamw_optimizer = torch.optim.AdamW([*model[0].parameters(), *model[2].parameters()], lr=1e-3)
muon_optimizer = torch.optim.SGD(model[1].parameters(), lr=1e-2, momentum=0.95)
optimizers = [adamw_optimizer, muon_optimizer]
for opt in optimizers:
    for group in opt.param_groups:
        group["initial_lr"] = group["lr"]


def get_lr_multiplier(it):
    warmdown_iters = round(warmdown_ratio * num_iterations)
    return 1.0 if it <= num_iterations - warmdown_iters else (num_iterations - it) / warmdown_iters


def batches():
    while True:
        tokens = torch.randint(vocab, (device_batch_size, max_seq_len + 1))
        yield tokens[:, :-1], tokens[:, 1:]


train_loader = batches()
x, y = next(train_loader)
for step in range(num_iterations + 1):
    last_step = step == num_iterations
    if last_step or step % eval_every == 0:
        with torch.no_grad():
            print(f"Step {step:05d} | {nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()):.4f}")
    if last_step:
        break
    for _ in range(grad_accum_steps):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        (loss / grad_accum_steps).backward()
        x, y = next(train_loader)
    for opt in optimizers:
        for group in opt.param_groups:
            group["lr"] = group["initial_lr"] * get_lr_multiplier(step)
        opt.step()
    model.zero_grad(set_to_none=True)
