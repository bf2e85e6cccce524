"""Knowledge distillation: a teacher is trained, a student alone, and another from the teacher, by two functions."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(42)
train_loader = DataLoader(TensorDataset(torch.randn(960, 20), torch.randint(10, (960,))), batch_size=32, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(320, 20), torch.randint(10, (320,))), batch_size=32)


def train(model, train_loader, epochs, learning_rate):
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=learning_rate)
    model.train()
    for epoch in range(epochs):
        running_loss = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        print(f"Epoch {epoch + 1}/{epochs}, Loss: {running_loss / len(train_loader)}")


def train_knowledge_distillation(teacher, student, train_loader, epochs, learning_rate, T, soft_weight):
    ce_loss = nn.CrossEntropyLoss()
    optimizer = optim.Adam(student.parameters(), lr=learning_rate)
    teacher.eval()
    student.train()
    for epoch in range(epochs):
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            with torch.no_grad():
                soft_targets = nn.functional.softmax(teacher(inputs) / T, dim=-1)
            logits = student(inputs)
            soft = nn.functional.kl_div(nn.functional.log_softmax(logits / T, dim=-1), soft_targets) * T**2
            loss = soft_weight * soft + (1 - soft_weight) * ce_loss(logits, labels)
            loss.backward()
            optimizer.step()
        print(f"Epoch {epoch + 1}/{epochs} distilled, Loss: {loss.item():.4f}")


def test(model, test_loader):
    model.eval()
    with torch.no_grad():
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader)
    print(f"Test Accuracy: {100 * correct / len(test_loader.dataset):.2f}%")


nn_deep = nn.Sequential(nn.Linear(20, 80), nn.ReLU(), nn.Linear(80, 40), nn.ReLU(), nn.Linear(40, 10))
train(nn_deep, train_loader, epochs=6, learning_rate=0.001)
test(nn_deep, test_loader)
nn_light = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 10))
train(nn_light, train_loader, epochs=4, learning_rate=0.001)
test(nn_light, test_loader)
new_nn_light = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 10))
train_knowledge_distillation(nn_deep, new_nn_light, train_loader, epochs=4, learning_rate=0.001, T=2, soft_weight=0.25)
test(new_nn_light, test_loader)
