"""Compares the speed of peers that are not equally fast with the sum of their speeds.

    PYTHONPATH=python elrun -n 4 python3 python/bench/speeds.py

The last peer is four times slower than the others. Peers sleep for each sample, as if a device computed. The first peer prints
the samples a second of the last half of the steps, beside those of all peers by themselves.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import torch

import elrun.torch as elrun

parser = argparse.ArgumentParser()
parser.add_argument("--sample", type=float, default=0.0005)  # seconds of a sample at a fast peer
parser.add_argument("--slow", type=float, default=4)
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()

torch.set_num_threads(1)
BATCH = 512
rank, peers = int(os.environ["ELRUN_INDEX"]), int(os.environ["ELRUN_NP"])
sample = args.sample * (args.slow if rank == peers - 1 else 1)
speeds = (peers - 1) / args.sample + 1 / args.sample / args.slow

torch.manual_seed(0)
net = torch.nn.Linear(8, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
job = elrun.Job(net, opt, admit="always")
data = [(torch.ones(8), 0)] * (BATCH * args.steps)
# The collate function makes no tensors of samples, so that loading takes no time.
loader = job.loader(data, BATCH, collate_fn=lambda samples: (torch.ones(len(samples), 8), torch.zeros(len(samples)).long()))
commits: list[float] = []
mine: list[int] = []
for _ in job.epochs(1):
    share = 0
    for x, y in loader:
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        time.sleep(sample * len(x))
        share += len(x)
        if job.backward(loss):
            opt.step()
            commits.append(time.monotonic())
            mine.append(share)
            share = 0
if rank == 0:
    half = commits[len(commits) // 2 :]
    rate = BATCH * (len(half) - 1) / (half[-1] - half[0])
    print(
        f"{peers} peers, the last one {args.slow:g} times slower: {rate:.0f} samples a second, {100 * rate / speeds:.1f} % of"
        f" the sum of their speeds; {statistics.median(mine[len(mine) // 2 :]):g} of {BATCH} samples here",
        flush=True,
    )
