"""A language model on a stream of documents: packed into blocks without a known number, --max_steps ends it."""

import argparse
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class ConstantLengthDataset(IterableDataset):
    def __init__(self, documents, seq_length, infinite=True, seed=0):
        self.documents, self.seq_length, self.infinite, self.seed = documents, seq_length, infinite, seed

    def __iter__(self):
        buffer = []
        for turn in itertools.count() if self.infinite else range(1):
            dice = torch.Generator().manual_seed(self.seed + turn)
            for _ in range(self.documents):
                length = int(torch.randint(5, 60, (1,), generator=dice))
                buffer += torch.randint(1, 50, (length,), generator=dice).tolist() + [0]
                while len(buffer) >= self.seq_length:
                    yield torch.tensor(buffer[: self.seq_length])
                    buffer = buffer[self.seq_length :]


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_batch_size", type=int, default=6)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    parser.add_argument("--num_warmup_steps", type=int, default=30)
    parser.add_argument("--max_train_steps", type=int, default=180)
    parser.add_argument("--max_eval_steps", type=int, default=5)
    parser.add_argument("--save_checkpoint_steps", type=int, default=60)
    parser.add_argument("--seq_length", type=int, default=32)
    return parser.parse_args()


def run():
    args = get_args()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(50, 24), nn.Linear(24, 50))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    train_dataloader = DataLoader(ConstantLengthDataset(100, args.seq_length), batch_size=args.train_batch_size)
    eval_dataloader = DataLoader(ConstantLengthDataset(40, args.seq_length, infinite=False), batch_size=2)
    completed_steps = 0
    for step, batch in enumerate(train_dataloader, start=1):
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        (loss / args.gradient_accumulation_steps).backward()
        if step % args.gradient_accumulation_steps == 0:
            for group in optimizer.param_groups:
                group["lr"] = args.learning_rate * min(1.0, (completed_steps + 1) / args.num_warmup_steps)
            optimizer.step()
            optimizer.zero_grad()
            completed_steps += 1
        if step % args.save_checkpoint_steps == 0:
            with torch.no_grad():
                shown = [model(x).mean().item() for x in itertools.islice(eval_dataloader, args.max_eval_steps)]
            print(completed_steps, round(loss.item(), 3), len(shown))
        if completed_steps >= args.max_train_steps:
            break


if __name__ == "__main__":
    run()
