"""The training under PCCL, as its MNIST example does it: the state is compared before each step, and failed sums are repeated."""

import os
import time

import torch
from pccl import Attribute, Communicator, PCCLError, ReduceOp, SharedState, TensorInfo
from training import WORKERS, Log, Plan, compute, model

seed, who = int(os.environ["CHURN_SEED"]), int(os.environ["CHURN_WHO"])
net, opt = model(seed)
plan, log = Plan(seed), Log(who)
for p in net.parameters():
    p.grad = torch.zeros_like(p)
opt.step()  # makes the state of the optimizer
infos = []
for name, p in net.named_parameters():
    infos.append(TensorInfo.from_torch(p.data, name))
    infos += [TensorInfo.from_torch(value, name + key) for key, value in opt.state[p].items()]
shared = SharedState(infos)
communicator = Communicator(os.environ["PCCL_MASTER"], 0)
communicator.connect()
joined = False


def workers():
    return communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE)


def synchronize():
    """Lets newcomers in and gives all the same state; False if it has to be tried again."""
    global joined
    try:
        if joined:
            communicator.update_topology()
        joined = True
        if workers() < 2:
            time.sleep(0.05)
            return False
        communicator.sync_shared_state(shared)
    except PCCLError:
        time.sleep(0.01)
        return False
    return True


def average():
    own = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    total = torch.empty_like(own)
    while True:
        ok, _, info = communicator.all_reduce_async(own, total, op=ReduceOp.SUM).wait()
        if ok:
            total /= info.local_world_size
            break
        if workers() < 2:
            total.copy_(own)
            break
    at = 0
    for p in net.parameters():
        p.grad.copy_(total[at : at + p.numel()].view_as(p))
        at += p.numel()


while not log.over():
    if not synchronize():
        continue
    step = shared.revision
    places = plan.part(step + 1, who % WORKERS)
    log.begin(step + 1, places)
    opt.zero_grad(set_to_none=False)
    compute(net, plan.samples(places)).backward()
    average()
    opt.step()
    shared.push_revision()
    log.count(shared.revision)
log.end(net, shared.revision)
