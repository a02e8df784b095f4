"""The training under torchft with timeouts tuned for fast recovery, and one sum of all gradients by its manager.

The hook of torchft's DistributedDataParallel fails an assertion where a worker dies in the middle of a step.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import Manager, Optimizer, ProcessGroupGloo
from training import Log, Plan, compute, model

seed, who = int(os.environ["CHURN_SEED"]), int(os.environ["CHURN_WHO"])
net, opt = model(seed)
plan, log = Plan(seed), Log(who)


def state_dict():
    return {"net": net.state_dict(), "opt": opt.state_dict()}


def load_state_dict(saved):
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])


def average():
    flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    manager.allreduce(flat).wait()
    at = 0
    for p in net.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=1)),
    min_replica_size=1,
    load_state_dict=load_state_dict,
    state_dict=state_dict,
    replica_id=f"worker{who}",
    store_addr="localhost",
    store_port=store.port,
    rank=0,
    world_size=1,
    timeout=timedelta(seconds=30),
)
opt_ft = Optimizer(manager, opt)
while not log.over():
    step = manager.current_step()
    places = plan.part(step + 1, who)
    log.begin(step + 1, places)
    opt_ft.zero_grad()
    compute(net, plan.samples(places)).backward()
    average()
    opt_ft.step()
    if manager.current_step() != step + 1:
        log.drop()  # the step failed, or others were ahead
    if manager.current_step() != step:
        log.count(manager.current_step())
log.end(net, manager.current_step())
