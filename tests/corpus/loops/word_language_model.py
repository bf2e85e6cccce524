"""A recurrent language model: truncated backpropagation over a batchified tensor, a rate that falls when it must."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser(description="RNN Language Model")
parser.add_argument("--emsize", type=int, default=16)
parser.add_argument("--nhid", type=int, default=16)
parser.add_argument("--lr", type=float, default=2.0, help="initial learning rate")
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=6, help="upper epoch limit")
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--bptt", type=int, default=10, help="sequence length")
parser.add_argument("--log-interval", type=int, default=20)
args = parser.parse_args()
torch.manual_seed(1111)
ntokens = 25


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


train_data = batchify(torch.randint(ntokens, (4200,)), args.batch_size)
val_data = batchify(torch.randint(ntokens, (600,)), 4)
embed, rnn, decoder = nn.Embedding(ntokens, args.emsize), nn.GRU(args.emsize, args.nhid), nn.Linear(args.nhid, ntokens)
model = nn.ModuleList([embed, rnn, decoder])
criterion = nn.CrossEntropyLoss()
lr = args.lr
optimizer = torch.optim.SGD(model.parameters(), lr=lr)


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def forward(data, hidden):
    output, hidden = rnn(embed(data), hidden)
    return decoder(output).view(-1, ntokens), hidden


def evaluate(source):
    total_loss, hidden = 0.0, None
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i)
            output, hidden = forward(data, hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(source) - 1)


def train(epoch):
    hidden = None
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        optimizer.zero_grad()
        output, hidden = forward(data, hidden)
        hidden = hidden.detach()
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        if batch % args.log_interval == 0 and batch > 0:
            print(f"| epoch {epoch} | {batch}/{len(train_data) // args.bptt} batches | loss {loss.item():.2f}")


best_val_loss = None
for epoch in range(1, args.epochs + 1):
    train(epoch)
    val_loss = evaluate(val_data)
    print(f"| end of epoch {epoch} | valid loss {val_loss:.2f}")
    if not best_val_loss or val_loss < best_val_loss:
        best_val_loss = val_loss
    else:
        lr /= 4.0
        optimizer.param_groups[0]["lr"] = lr
