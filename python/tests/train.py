"""A training as users write it, for tests: a small net, Adam, clipping, a scheduler and an evaluation.

It prints the hash of the model and of the optimizer at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time

if "CAPABILITIES" in os.environ:  # of each peer
    capabilities = os.environ["CAPABILITIES"].split(",")
    os.environ["ATEN_CPU_CAPABILITY"] = capabilities[int(os.environ.get("ELRUN_INDEX", "0")) % len(capabilities)]

import torch
import torch.nn as nn
import torch.nn.functional as F

import elrun.torch as elrun

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--pace", type=float, default=0)  # seconds of a batch
parser.add_argument("--exact", action="store_true")
parser.add_argument("--checkpoint")
parser.add_argument("--steps-between", type=int, default=10)
parser.add_argument("--fail", default="")  # at step 5, "exception", "exit", "hard" or "breakpoint"
parser.add_argument("--ready", default="")  # a file to make at step 3
parser.add_argument("--imported", default="")  # a file to make now, when torch is imported
parser.add_argument("--hold", default="")  # a file to wait for at step 5
parser.add_argument("--again", action="store_true")  # a second job at the end
parser.add_argument("--plateau", action="store_true")  # a learning rate by the loss of this peer alone
parser.add_argument("--kill", default="")  # "5:2:0" kills peer 2 in step 5 before backward, 1 after it, 2 after the update
args = parser.parse_args()
kills = {tuple(kill.split(":")) for kill in args.kill.split(",")}
index = os.environ.get("ELRUN_INDEX", "0")


def die_at(step: int, place: int) -> None:
    if (str(step), index, str(place)) in kills:
        os.kill(os.getpid(), signal.SIGKILL)


if args.imported:
    open(args.imported, "w").close()

generator = torch.Generator().manual_seed(7)
x = torch.randn(640, 20, generator=generator)
y = (x[:, :4].sum(1) > 0).long() + 2 * (x[:, 4:8].sum(1) > 0).long()
data = list(zip(x, y))

torch.manual_seed(0 if args.exact else os.getpid())  # peers may begin apart


class Rarely(nn.Linear):
    """A layer that few batches use, and has no gradient else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if (x > 3).any() or not self.training else x


net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), Rarely(32, 32), nn.Linear(32, 4))
opt = torch.optim.Adam(net.parameters(), 1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100)
job = elrun.Job(
    net,
    opt,
    sched,
    exact=args.exact,
    admit="always",
    checkpoint=args.checkpoint,
    every=args.steps_between,
    resume=True,
    means=["right"],
)
loader = job.loader(data[:512], batch_size=64)
for _ in job.epochs(args.epochs):
    net.train()
    for xs, ys in loader:
        opt.zero_grad()
        out = net(xs)
        loss, means = F.cross_entropy(out, ys), {"right": (out.argmax(1) == ys).float().mean()}
        time.sleep(args.pace)
        if args.ready and job.step == 3:
            open(args.ready, "w").close()
        while args.hold and job.step == 5 and not os.path.exists(args.hold):
            time.sleep(0.01)
        if job.step == 5 and args.fail == "exception":
            raise ValueError("bad sample")
        if job.step == 5 and args.fail == "exit":
            sys.exit(3)
        if job.step == 5 and args.fail == "breakpoint":
            breakpoint()
        if job.step == 5 and args.fail == "hard":
            os._exit(3)
        die_at(job.step, 0)
        if not job.backward(loss, means=means):
            continue
        die_at(job.step, 1)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        die_at(job.step, 2)
        if args.plateau:
            opt.param_groups[0]["lr"] = 0.01 * loss.item()
    net.eval()
    right = n = 0
    with torch.no_grad():
        for xs, ys in job.part(data[512:], batch_size=10):
            right += int((net(xs).argmax(1) == ys).sum())
            n += len(ys)
    right, n = job.sum(right, n)
    assert n == 128 and right <= n


def digest(tensors: list[torch.Tensor]) -> str:
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().numpy().tobytes())
    return h.hexdigest()[:16]


moments = [v for s in opt.state_dict()["state"].values() for v in s.values()]
print(
    "end",
    digest(list(net.state_dict().values())),
    digest(moments),
    f"{sched.get_last_lr()[0]:.6g},{job.means['right']:.6g}",
    right,
    flush=True,
)

if args.again:
    other = nn.Linear(20, 4)
    opt = torch.optim.SGD(other.parameters(), 0.1)
    job = elrun.Job(other, opt)
    loader = job.loader(data, batch_size=64)
    for _ in job.epochs(1):
        for xs, ys in loader:
            opt.zero_grad()
            if job.backward(F.cross_entropy(other(xs), ys)):
                opt.step()
    print("again with", job.peers, "peer", flush=True)
