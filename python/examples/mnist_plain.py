"""Trains a small CNN on MNIST: mnist_plain.py in one process, mnist.py in a job of elrun."""

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from mnist_data import mnist

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/mnist")
parser.add_argument("--samples", type=int, default=60000)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=512)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--bfloat16", action="store_true")
parser.add_argument("--checkpoint", default="")
args = parser.parse_args()

train, test = mnist(args.data, args.samples)
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(32 * 6 * 6, 10),
)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
steps = args.epochs * -(-len(train) // args.batch_size)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=steps)

first = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint)
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])
    sched.load_state_dict(saved["sched"])
    first = saved["epoch"] + 1
loader = DataLoader(train, args.batch_size, shuffle=True, num_workers=args.workers)
for epoch in range(first, args.epochs):
    net.train()
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bfloat16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
    net.eval()
    right = n = 0
    with torch.no_grad():
        for x, y in DataLoader(test, 1000):
            right += int((net(x).argmax(1) == y).sum())
            n += len(y)
    print(f"epoch {epoch}: {right / n:.4f} of the test set are right", flush=True)
    if args.checkpoint:
        torch.save(
            {"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "epoch": epoch},
            args.checkpoint,
        )
