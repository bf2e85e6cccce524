"""Transfer learning: a dict of loaders by phase, the epochs are a parameter of train_model()."""

import copy
import time

import torch
from torch import nn, optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
sizes = {"train": 244, "val": 153}
image_datasets = {x: TensorDataset(torch.randn(n, 24), torch.randint(2, (n,))) for x, n in sizes.items()}
dataloaders = {x: DataLoader(image_datasets[x], batch_size=4, shuffle=True) for x in ["train", "val"]}


def train_model(model, criterion, optimizer, scheduler, num_epochs=25):
    since = time.time()
    best_acc, best = 0.0, copy.deepcopy(model.state_dict())
    for epoch in range(num_epochs):
        print(f"Epoch {epoch}/{num_epochs - 1}")
        for phase in ["train", "val"]:
            model.train(phase == "train")
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_corrects += torch.sum(outputs.argmax(1) == labels).item()
            if phase == "train":
                scheduler.step()
            epoch_acc = running_corrects / sizes[phase]
            if phase == "val" and epoch_acc > best_acc:
                best_acc, best = epoch_acc, copy.deepcopy(model.state_dict())
    print(f"complete in {time.time() - since:.0f} s, best {best_acc:.2f}")
    model.load_state_dict(best)
    return model


model_ft = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer_ft = optim.SGD(model_ft.parameters(), lr=0.001, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=7, gamma=0.1)
model_ft = train_model(model_ft, nn.CrossEntropyLoss(), optimizer_ft, exp_lr_scheduler, num_epochs=8)
