"""A training whose peers differ as options say, for tests of what goes wrong elsewhere."""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--slow", action="store_true")  # peer 2 is, peer 1 is not compiled, and the batch has fewer parts than peers
parser.add_argument("--ends", action="store_true")  # peer 0 ends by sys.exit, peer 1 by os._exit, peer 2 leaves
parser.add_argument("--here", default="")  # "import", "batch", "backward", "evaluation" or "end": prints HERE there, and stays
parser.add_argument("--ready", default="")  # a file to make at step 3
parser.add_argument("--hold", default="")  # a file to wait for at step 5
parser.add_argument("--imported", default="")  # a file to make when torch is imported
args = parser.parse_args()
index = int(os.environ.get("ELRUN_INDEX", "0"))


def here(place: str) -> None:
    if place == args.here:
        print("HERE", flush=True)
        while place != "import":
            time.sleep(1)


here("import")
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402

import elrun.torch as elrun  # noqa: E402

if args.imported:
    open(args.imported, "w").close()
compilations = 0


def count(module: Any, inputs: Any) -> Any:
    """A compiler for torch.compile that leaves all as it is."""
    global compilations
    compilations += 1
    return module.forward


class Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        here("backward")
        return grad


generator = torch.Generator().manual_seed(7)
x = torch.randn(320, 10, generator=generator)
data = list(zip(x, (x[:, 0] > 0).long()))
torch.manual_seed(1)
plain = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
net: Any = torch.compile(plain, backend=count) if args.slow and index != 1 else plain
opt = torch.optim.Adam(net.parameters(), args.lr)
job = elrun.Job(net, opt, admit="always")
loader = job.loader(data, batch_size=32 if args.slow else 64, microbatch=16, num_workers=args.workers)
for _ in job.epochs(args.epochs):
    for xs, ys in loader:
        here("batch")
        if args.slow and index == 2:
            time.sleep(0.005 * len(xs))
        if args.ends and job.step == 3:
            if index == 0:
                sys.exit(3)
            if index == 1:
                os._exit(3)
            if index == 2:
                os.kill(os.getpid(), signal.SIGTERM)
        if args.ready and job.step == 3:
            open(args.ready, "w").close()
        if args.hold and job.step == 5:
            with job.busy("newcomers"):
                while not os.path.exists(args.hold):
                    time.sleep(0.01)
        opt.zero_grad()
        if job.backward(nn.functional.cross_entropy(Wait.apply(net(xs)), ys)):
            opt.step()
    for _ in job.part(data, batch_size=100):
        here("evaluation")
    job.sum(1)
here("end")
digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in plain.state_dict().values())).hexdigest()[:16]
print("end", digest, int(plain[1].num_batches_tracked), "compilations", compilations, flush=True)  # type: ignore[arg-type]
