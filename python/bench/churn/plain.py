"""The training in one process, without failures: what the scripts beside it make elastic."""

import os

from training import Log, Plan, compute, model

seed = int(os.environ["CHURN_SEED"])
net, opt = model(seed)
plan, log = Plan(seed), Log(0)
step = 0
while not log.over():
    places = plan.places(step + 1)
    log.begin(step + 1, places)
    opt.zero_grad()
    compute(net, plan.samples(places)).backward()  # type: ignore[no-untyped-call]
    opt.step()
    step += 1
    log.count(step)
log.end(net, step)
