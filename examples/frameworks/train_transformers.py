"""The transformers Trainer without carbontui code. Pausing, the total and unloading work unchanged.

carbontui run -- python train_transformers.py
"""

from __future__ import annotations

import argparse
import hashlib

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Sums(torch.utils.data.Dataset):
    """Two tokens; is their sum even?"""

    def __init__(self, size: int) -> None:
        draw = torch.Generator().manual_seed(7)
        self.tokens = torch.randint(64, (size, 2), generator=draw)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index].sum() % 2}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--evaluate", choices=("no", "steps", "epoch"), default="no")
    args = parser.parse_args()

    set_seed(1)
    torch.set_num_threads(1)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=64, max_position_embeddings=8, **shape))
    trainer = Trainer(
        model,
        TrainingArguments(
            "out",
            num_train_epochs=args.epochs,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=args.accumulate,
            eval_strategy=args.evaluate,
            eval_steps=10,
            save_strategy="steps",
            save_steps=15,
            save_total_limit=1,
            logging_steps=10,
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=Sums(args.samples),
        eval_dataset=Sums(16),
    )
    trainer.train()
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
    print("steps", trainer.state.global_step, flush=True)
    print("evaluations", sum("eval_loss" in entry for entry in trainer.state.log_history), flush=True)


if __name__ == "__main__":
    main()
