"""Trainings that save each step, and are killed meanwhile, for a test: children of one process, which imports torch once."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import torch
import torch.nn as nn

import elrun.torch as elrun

folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
data = [(torch.ones(10), 0)] * 64


def train(out: int) -> None:
    """Trains, and writes the process ID of the sidecar, and the steps."""
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(10, 500), nn.Linear(500, 500), nn.Linear(500, 2))
    opt = torch.optim.Adam(net.parameters(), 1e-4)
    job = elrun.Job(net, opt, checkpoint=folder, every=1, resume=True)
    loader = job.loader(data, batch_size=32)
    os.write(out, f"{job._link._process.pid}\n".encode())
    for _ in job.epochs(1000):
        for x, y in loader:
            opt.zero_grad()
            if job.backward(nn.functional.cross_entropy(net(x), y)):
                opt.step()
                os.write(out, f"{job.step}\n".encode())


choose = random.Random(seed)
for k in range(rounds):
    steps = [int(name[1]) for name in (re.fullmatch(r"step-(\d+)\.safetensors", f.name) for f in folder.iterdir()) if name]
    read, write = os.pipe()
    program = os.fork()
    if program == 0:
        try:
            train(write)
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as lines:
        sidecar, first = int(lines.readline()), int(lines.readline())
        for _ in range(choose.randrange(2, 6)):
            lines.readline()
        time.sleep(choose.random() * 0.03)  # any moment of a save
        for pid in (sidecar, program):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(program, 0)
    print("round", k, "began with step", first, "after", max(steps, default=0), flush=True)
