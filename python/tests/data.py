"""A training whose peers have worker processes for their data, for tests. It prints what the samples of each epoch were."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn

import elrun.torch as elrun

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--exact", action="store_true")
parser.add_argument("--differ", action="store_true")  # each peer has other data
parser.add_argument("--pools", action="store_true")  # a pool of processes in each epoch
parser.add_argument("--ready", default="")  # a file to make at step 3
parser.add_argument("--hold", default="")  # a file to wait for at step 5
args = parser.parse_args()
index = int(os.environ.get("ELRUN_INDEX", "0"))


class Numbers:
    """Samples with random numbers of three sources."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, i: int) -> tuple[int, float, float, torch.Tensor]:
        return i + index * args.differ, np.random.rand(), random.random(), torch.rand(1, dtype=torch.float64)


net = nn.Linear(1, 1)
job = elrun.Job(net, torch.optim.SGD(net.parameters(), lr=0.01), exact=args.exact, admit="always")
loader = job.loader(Numbers(), 24, microbatch=4, num_workers=args.workers)
for epoch in job.epochs(2):
    if args.pools:
        with multiprocessing.Pool(2) as pool:
            assert pool.map(abs, [-1, 2]) == [1, 2]
        child = multiprocessing.Process(target=time.sleep, args=(1000,))
        child.start()
        child.terminate()
        child.join()
    for i, a, b, c in loader:
        if args.ready and job.step == 3:
            open(args.ready, "w").close()
        while args.hold and job.step == 5 and not os.path.exists(args.hold):
            time.sleep(0.01)
        for numbers in zip(i.tolist(), a.tolist(), b.tolist(), c.flatten().tolist()):
            print("sample", epoch, *numbers, flush=True)
        job.backward(net(torch.ones(1, 1)).mean())
print("end", flush=True)
