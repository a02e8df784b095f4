"""A training whose data are slow to load, in two workers, for tests. It notes the samples that are loaded, and the times of steps.

Run by hand with elrun -n 3, a kill and a join, it shows whether steps wait for data: with the defaults they need not.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.nn as nn

import elrun.torch as elrun

parser = argparse.ArgumentParser()
parser.add_argument("log")  # a file of lines: "load SAMPLE PROGRAM", and "step N SAMPLES WHOLE COMPUTING PEERS", with times in s
parser.add_argument("--load", type=float, default=0.005)  # seconds of a sample
parser.add_argument("--pace", type=float, default=0.004)  # seconds that computing a sample takes
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--imported", default="")  # a file to make when torch is imported
args = parser.parse_args()
if args.imported:
    open(args.imported, "w").close()


def note(*words: object) -> None:
    with open(args.log, "a") as f:
        f.write(" ".join(map(str, words)) + "\n")


class Slow:
    def __len__(self) -> int:
        return 500

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(args.load)
        if torch.utils.data.get_worker_info() is not None:
            note("load", i, os.getppid())
        return torch.full((3,), float(i))


net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-6)
job = elrun.Job(net, opt, admit="always")
loader = job.loader(Slow(), batch_size=96, microbatch=4, num_workers=2)
began = time.monotonic()
for _ in job.epochs(args.epochs):
    for x in loader:
        opt.zero_grad()
        time.sleep(args.pace * len(x))
        if job.backward(net(x).mean()):
            opt.step()
            now = time.monotonic()
            note("step", job.step, len(x), round(now - began, 4), round(args.pace * len(x), 4), job.peers)
            began = now
