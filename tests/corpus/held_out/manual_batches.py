"""No loader and no options: a permutation and slices, constants at the top."""

import torch

torch.manual_seed(0)
N, D_in, H, D_out = 1000, 30, 40, 5
learning_rate = 1e-3
n_epochs = 8
batch_size = 32

x = torch.randn(N, D_in)
y = torch.randn(N, D_out)
model = torch.nn.Sequential(torch.nn.Linear(D_in, H), torch.nn.ReLU(), torch.nn.Linear(H, D_out))
loss_fn = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=learning_rate)

for t in range(n_epochs):
    permutation = torch.randperm(N)
    epoch_loss = 0.0
    for i in range(0, N, batch_size):
        indices = permutation[i : i + batch_size]
        loss = loss_fn(model(x[indices]), y[indices])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
    print(t, epoch_loss / N)
