"""The training under elrun."""

import os

import torch
from training import BATCH, Log, Tally, compute, model, x

import elrun.torch as elrun

seed = int(os.environ["CHURN_SEED"])
net, opt = model(seed)
log = Log(os.environ.get("CHURN_WHO") or os.environ["ELRUN_INDEX"])
tally = Tally()
job = elrun.Job(torch.nn.ModuleList([net, tally]), opt, seed=seed, admit="always")
loader = job.loader(range(len(x)), BATCH, collate_fn=torch.tensor)
for epoch in job.epochs(1000):
    for samples in loader:
        places = epoch * len(x) + samples
        if not job._replay:  # stand-ins for a step that others computed do not count
            log.begin(job.step, places.tolist())
        opt.zero_grad()
        if not job.backward(compute(net, samples) + tally.of(places)):
            continue
        opt.step()
        log.count(job.step, min(BATCH, len(x) - (job.step - 1) % len(loader) * BATCH), tally.seen())
        if log.over():
            log.end(net, job.step)
