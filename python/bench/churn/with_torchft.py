"""The training under torchft with its own DistributedDataParallel."""

import os
from datetime import timedelta

import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from training import Log, Plan, compute, model

seed, who = int(os.environ["CHURN_SEED"]), int(os.environ["CHURN_WHO"])
net, opt = model(seed)
plan, log = Plan(seed), Log(who)


def state_dict():
    return {"net": net.state_dict(), "opt": opt.state_dict()}


def load_state_dict(saved):
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])


store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
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
ddp = DistributedDataParallel(manager, net)
opt_ft = Optimizer(manager, opt)
while not log.over():
    step = manager.current_step()
    places = plan.part(step + 1, who)
    log.begin(step + 1, places)
    opt_ft.zero_grad()
    compute(ddp, plan.samples(places)).backward()
    opt_ft.step()
    if manager.current_step() != step + 1:
        log.drop()  # the step failed, or others were ahead
    if manager.current_step() != step:
        log.count(manager.current_step())
log.end(net, manager.current_step())
