"""The training under Hivemind. Its peers draw samples by themselves, until all together have the batch."""

import os
from pathlib import Path

import hivemind
import torch
from training import BATCH, Log, compute, model, x

PER_CALL = 32  # samples between looks at what the peers have together

seed, who = int(os.environ["CHURN_SEED"]), int(os.environ["CHURN_WHO"])
net, opt = model(seed)
log = Log(who)
addresses = Path(os.environ["CHURN_OUT"], "dht")
peers = addresses.read_text().split() if addresses.exists() else []
dht = hivemind.DHT(initial_peers=peers, start=True, host_maddrs=["/ip4/127.0.0.1/tcp/0"])
if not peers:
    new = addresses.with_suffix(".new")
    new.write_text("\n".join(str(a) for a in dht.get_visible_maddrs()))
    new.replace(addresses)
optimizer = hivemind.Optimizer(
    dht=dht,
    run_id="churn",
    batch_size_per_step=PER_CALL,
    target_batch_size=BATCH,
    optimizer=opt,
    use_local_updates=False,
    matchmaking_time=1.0,
    averaging_timeout=5.0,
    delay_state_averaging=False,
    verbose=False,
)
if peers:
    optimizer.load_state_from_peers()
generator = torch.Generator().manual_seed(os.getpid())
drawn = os.getpid() << 32  # no two samples are the same for the log
while not log.over():
    step = optimizer.local_epoch
    samples = torch.randint(len(x), (PER_CALL,), generator=generator)
    log.begin(step + 1, range(drawn, drawn + PER_CALL))
    drawn += PER_CALL
    compute(net, samples).backward()
    optimizer.step()
    optimizer.zero_grad()
    if optimizer.local_epoch != step:
        log.count(optimizer.local_epoch)
log.end(net, optimizer.local_epoch)
