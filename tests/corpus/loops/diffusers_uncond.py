"""Unconditional diffusion: a bar for each epoch, a cosine schedule counted in all steps, a moving average."""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader
from tqdm.auto import tqdm


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_batch_size", type=int, default=16)
    parser.add_argument("--num_epochs", type=int, default=6)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--lr_warmup_steps", type=int, default=50)
    parser.add_argument("--ddpm_num_steps", type=int, default=1000)
    parser.add_argument("--save_images_epochs", type=int, default=2)
    return parser.parse_args()


def get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps):
    def lr_lambda(current_step):
        if current_step < num_warmup_steps:
            return current_step / max(1, num_warmup_steps)
        progress = (current_step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)


def main(args):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(33, 66), nn.SiLU(), nn.Linear(66, 32))
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    train_dataloader = DataLoader(torch.randn(1100, 32), batch_size=args.train_batch_size, shuffle=True)
    lr_scheduler = get_cosine_schedule_with_warmup(
        optimizer,
        num_warmup_steps=args.lr_warmup_steps,
        num_training_steps=len(train_dataloader) * args.num_epochs,
    )
    num_update_steps_per_epoch = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
    global_step = 0
    for epoch in range(args.num_epochs):
        model.train()
        progress_bar = tqdm(total=num_update_steps_per_epoch)
        progress_bar.set_description(f"Epoch {epoch}")
        for step, clean in enumerate(train_dataloader):
            noise = torch.randn_like(clean)
            timesteps = torch.randint(args.ddpm_num_steps, (len(clean), 1)) / args.ddpm_num_steps
            noisy = clean * (1 - timesteps) + noise * timesteps
            loss = nn.functional.mse_loss(model(torch.cat([noisy, timesteps], 1)), noise)
            (loss / args.gradient_accumulation_steps).backward()
            last = step + 1 == len(train_dataloader)
            if (step + 1) % args.gradient_accumulation_steps == 0 or last:
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
                ema.update_parameters(model)
                progress_bar.update(1)
                global_step += 1
                progress_bar.set_postfix(loss=loss.item(), step=global_step)
        progress_bar.close()
        if epoch % args.save_images_epochs == 0 or epoch == args.num_epochs - 1:
            with torch.no_grad():
                ema(torch.randn(4, 33))


if __name__ == "__main__":
    main(parse_args())
