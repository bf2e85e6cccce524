"""Domain adaptation: batches of a source and a target loader in pairs; the shorter loader ends the epoch."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)
lr = 1e-3
batch_size = 16
n_epoch = 8

dataset_source = TensorDataset(torch.randn(900, 20), torch.randint(10, (900,)))
dataset_target = TensorDataset(torch.randn(560, 20) + 0.5, torch.randint(10, (560,)))
dataloader_source = DataLoader(dataset_source, batch_size=batch_size, shuffle=True)
dataloader_target = DataLoader(dataset_target, batch_size=batch_size, shuffle=True)

feature = nn.Sequential(nn.Linear(20, 40), nn.ReLU())
class_head = nn.Linear(40, 10)
domain_head = nn.Linear(40, 2)
my_net = nn.ModuleList([feature, class_head, domain_head])
optimizer = optim.Adam(my_net.parameters(), lr=lr)
loss_class = nn.CrossEntropyLoss()
loss_domain = nn.CrossEntropyLoss()


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.alpha * grad, None


for epoch in range(n_epoch):
    len_dataloader = min(len(dataloader_source), len(dataloader_target))
    for i, ((s_img, s_label), (t_img, _)) in enumerate(zip(dataloader_source, dataloader_target)):  # noqa: B905
        p = float(i + epoch * len_dataloader) / n_epoch / len_dataloader
        alpha = 2.0 / (1.0 + torch.exp(torch.tensor(-10 * p))) - 1
        optimizer.zero_grad()
        s_feature, t_feature = feature(s_img), feature(t_img)
        err_s_label = loss_class(class_head(s_feature), s_label)
        err_s = loss_domain(domain_head(Reverse.apply(s_feature, alpha)), torch.zeros(len(s_img)).long())
        err_t = loss_domain(domain_head(Reverse.apply(t_feature, alpha)), torch.ones(len(t_img)).long())
        (err_t + err_s + err_s_label).backward()
        optimizer.step()
    print(f"epoch {epoch}: {err_s_label.item():.3f} {err_s.item():.3f} {err_t.item():.3f}")
