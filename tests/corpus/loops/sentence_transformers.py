"""Sentence embeddings: several objectives, each with loader, optimizer and schedule; the shortest is an epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm.autonotebook import trange


class SentenceTransformer(nn.Sequential):
    def fit(self, train_objectives, evaluator=None, epochs=1, steps_per_epoch=None, warmup_steps=100, lr=2e-5):
        dataloaders = [dataloader for dataloader, _ in train_objectives]
        loss_models = [loss for _, loss in train_objectives]
        if steps_per_epoch is None or steps_per_epoch == 0:
            steps_per_epoch = min(len(dataloader) for dataloader in dataloaders)
        num_train_steps = int(steps_per_epoch * epochs)

        def warmup_linear(step):
            left = (num_train_steps - step) / max(1, num_train_steps - warmup_steps)
            return step / max(1, warmup_steps) if step < warmup_steps else max(0.0, left)

        optimizers, schedulers = [], []
        for loss_model in loss_models:
            optimizer = torch.optim.AdamW(loss_model.parameters(), lr=lr)
            schedulers.append(torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_linear))
            optimizers.append(optimizer)
        data_iterators = [iter(dataloader) for dataloader in dataloaders]
        for epoch in trange(epochs, desc="Epoch"):
            for _ in trange(steps_per_epoch, desc="Iteration", smoothing=0.05):
                for idx, loss_model in enumerate(loss_models):
                    try:
                        data = next(data_iterators[idx])
                    except StopIteration:
                        data_iterators[idx] = iter(dataloaders[idx])
                        data = next(data_iterators[idx])
                    loss_model(*data).backward()
                    nn.utils.clip_grad_norm_(loss_model.parameters(), 1)
                    optimizers[idx].step()
                    optimizers[idx].zero_grad()
                    schedulers[idx].step()
            if evaluator is not None:
                print(epoch, evaluator(self))


class CosineSimilarityLoss(nn.Module):
    def __init__(self, model, classes=None):
        super().__init__()
        self.model, self.head = model, classes and nn.Linear(32, classes)

    def forward(self, a, b, label):
        u, v = self.model(a), self.model(b)
        if self.head:
            return nn.functional.cross_entropy(self.head(torch.cat([u, v], 1)), label.long())
        return nn.functional.mse_loss(torch.cosine_similarity(u, v), label)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = SentenceTransformer(nn.EmbeddingBag(90, 24), nn.Linear(24, 16))
    sts = TensorDataset(torch.randint(90, (500, 8)), torch.randint(90, (500, 8)), torch.rand(500))
    nli = TensorDataset(torch.randint(90, (900, 8)), torch.randint(90, (900, 8)), torch.randint(3, (900,)))
    objectives = [
        (DataLoader(nli, shuffle=True, batch_size=10), CosineSimilarityLoss(model, 3)),
        (DataLoader(sts, shuffle=True, batch_size=10), CosineSimilarityLoss(model)),
    ]

    @torch.no_grad()
    def evaluator(model):
        return sum(torch.cosine_similarity(model(a), model(b)).mean().item() for a, b, _ in DataLoader(sts, 4))

    model.fit(train_objectives=objectives, evaluator=evaluator, epochs=4, warmup_steps=20)
