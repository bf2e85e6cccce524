"""Segmentation: a bar for each epoch that counts images; validation several times within an epoch."""

import argparse
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from tqdm import tqdm


def evaluate(net, dataloader):
    net.eval()
    with torch.inference_mode():
        batches = tqdm(dataloader, total=len(dataloader), desc="Validation round", unit="batch", leave=False)
        score = sum(nn.functional.mse_loss(net(x), y).item() for x, y in batches)
    net.train()
    return score / max(len(dataloader), 1)


def train_model(model, epochs=5, batch_size=1, learning_rate=1e-5, val_percent=0.1):
    dataset = TensorDataset(torch.randn(440, 18), torch.randn(440, 18))
    n_val = int(len(dataset) * val_percent)
    n_train = len(dataset) - n_val
    train_set, val_set = random_split(dataset, [n_train, n_val], generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, shuffle=True, batch_size=batch_size)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, batch_size=batch_size)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=learning_rate, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    global_step = 0
    for epoch in range(1, epochs + 1):
        with tqdm(total=n_train, desc=f"Epoch {epoch}/{epochs}", unit="img") as pbar:
            for images, masks in train_loader:
                loss = nn.functional.mse_loss(model(images), masks)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                pbar.update(images.shape[0])
                global_step += 1
                division_step = n_train // (5 * batch_size)
                if division_step > 0 and global_step % division_step == 0:
                    scheduler.step(evaluate(model, val_loader))
        logging.info("epoch %d saved", epoch)


def get_args():
    parser = argparse.ArgumentParser(description="Train on images and target masks")
    parser.add_argument("--epochs", "-e", metavar="E", type=int, default=5)
    parser.add_argument("--batch-size", "-b", dest="batch_size", metavar="B", type=int, default=8)
    parser.add_argument("--learning-rate", "-l", type=float, default=1e-4, dest="lr")
    parser.add_argument("--validation", "-v", dest="val", type=float, default=10.0)
    return parser.parse_args()


if __name__ == "__main__":
    args = get_args()
    torch.manual_seed(0)
    train_model(nn.Linear(18, 18), args.epochs, args.batch_size, args.lr, args.val / 100)
