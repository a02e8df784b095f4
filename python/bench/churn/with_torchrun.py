"""The training under torchrun, which starts all workers again from a snapshot after a failure."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import Log, Plan, compute, model

EVERY = 100  # steps from snapshot to snapshot

seed = int(os.environ["CHURN_SEED"])
net, opt = model(seed)
rank = int(os.environ["RANK"])
plan, log = Plan(seed), Log(rank)
step = 0
# The agent's store keeps the addresses of workers that are dead: each restart needs a prefix of its own.
agent = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False)
store = dist.PrefixStore("restart" + os.environ["TORCHELASTIC_RESTART_COUNT"], agent)
dist.init_process_group("gloo", store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
snapshot = os.path.join(os.environ["CHURN_OUT"], "snapshot")
if os.path.exists(snapshot):
    saved = torch.load(snapshot)
    net.load_state_dict(saved["net"])
    opt.load_state_dict(saved["opt"])
    step = saved["step"]
ddp = DistributedDataParallel(net)
while not log.over():
    places = plan.part(step + 1, rank)
    log.begin(step + 1, places)
    opt.zero_grad()
    compute(ddp, plan.samples(places)).backward()
    opt.step()
    step += 1
    log.count(step)
    if rank == 0 and step % EVERY == 0:
        torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": step}, snapshot + ".new")
        os.replace(snapshot + ".new", snapshot)
log.end(net, step)
