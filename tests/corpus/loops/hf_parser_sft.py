"""Supervised fine-tuning: dataclasses parsed by HfArgumentParser, epochs as a float, max_steps is -1."""

import math
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import HfArgumentParser, get_cosine_schedule_with_warmup


@dataclass
class ScriptArguments:
    seq_length: int = field(default=16, metadata={"help": "Input sequence length"})
    dataset_rows: int = 520
    vocab: int = 64


@dataclass
class SFTArguments:
    num_train_epochs: float = field(default=2.5, metadata={"help": "Total number of epochs"})
    max_steps: int = -1
    batch_size: int = 4
    gradient_accumulation_steps: int = 2
    learning_rate: float = 2e-4
    warmup_ratio: float = 0.05
    logging_steps: int = 20
    seed: int = 42


class Finetuner:
    def __init__(self, model, args, dataset):
        self.model, self.args = model, args
        self.loader = DataLoader(dataset, args.batch_size, shuffle=True)
        per_epoch = max(1, len(self.loader) // args.gradient_accumulation_steps)
        self.steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        warmup = math.ceil(self.steps * args.warmup_ratio)
        self.schedule = get_cosine_schedule_with_warmup(self.optimizer, warmup, self.steps)

    def train(self):
        done = 0
        for _epoch in range(math.ceil(self.args.num_train_epochs) if self.args.max_steps <= 0 else 10**6):
            for i, ids in enumerate(self.loader, 1):
                logits = self.model(ids[:, :-1]).flatten(0, 1)
                loss = nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
                (loss / self.args.gradient_accumulation_steps).backward()
                if i % self.args.gradient_accumulation_steps:
                    continue
                self.optimizer.step()
                self.schedule.step()
                self.model.zero_grad()
                done += 1
                if done % self.args.logging_steps == 0:
                    print({"loss": round(loss.item(), 3), "step": done})
                if done >= self.steps:
                    return


if __name__ == "__main__":
    script_args, training_args = HfArgumentParser((ScriptArguments, SFTArguments)).parse_args_into_dataclasses()
    torch.manual_seed(training_args.seed)
    model = nn.Sequential(nn.Embedding(script_args.vocab, 24), nn.Linear(24, script_args.vocab))
    tokens = torch.randint(script_args.vocab, (script_args.dataset_rows, script_args.seq_length))
    Finetuner(model, training_args, tokens).train()
