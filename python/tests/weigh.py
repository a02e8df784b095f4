"""A training on sequences of unequal length, for tests: the loss is a mean over tokens. It prints the loss of each step."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import elrun.torch as elrun

ready, hold = sys.argv[1:] if len(sys.argv) > 2 else ("", "")
generator = torch.Generator().manual_seed(7)
lengths = torch.randint(1, 50, (192,), generator=generator)
data = [torch.randint(0, 9, (int(n) + 1,), generator=generator) for n in lengths]


def padded(samples: list[torch.Tensor]) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-1)


torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))
opt = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
job = elrun.Job(net, opt, admit="always")
losses = {}
loader = job.loader(data, batch_size=64, microbatch=4, collate_fn=padded)
for _ in job.epochs(4):
    for x in loader:
        opt.zero_grad()
        targets = x[:, 1:]
        loss = F.cross_entropy(net(x[:, :-1].clamp(min=0)).transpose(1, 2), targets, ignore_index=-1)
        if ready and job.step == 3:
            open(ready, "w").close()
        while hold and job.step == 5 and not os.path.exists(hold):
            time.sleep(0.01)
        if not job.backward(loss, weight=(targets >= 0).sum()):
            continue
        opt.step()
        losses[job.step] = job.loss
print("losses", *(f"{step}:{loss:.7f}" for step, loss in losses.items()), flush=True)
