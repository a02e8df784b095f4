"""Times steps of a Job beside those of DistributedDataParallel over Gloo, in one job of two peers or more.

    elrun -n 2 python3 python/bench/steps.py mlp

Blocks of steps alternate in the same processes: of the Job, of DistributedDataParallel, and of this peer alone with its
part of the batch. The first peer prints the medians. Each process has one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import elrun.torch as elrun

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    # The model, the shape of a sample, and the batch of all peers.
    "wide": (
        lambda: nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 3072), nn.ReLU(), nn.Linear(3072, 10)),
        (1024,),
        16,
    ),
    "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), (1, 28, 28), 256),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, 10),
        ),
        (1, 28, 28),
        256,
    ),
}

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=MODELS)
parser.add_argument("--rounds", type=int, default=20)
parser.add_argument("--block", type=int, default=10)  # steps of a block
args = parser.parse_args()

torch.set_num_threads(1)
make, shape, batch = MODELS[args.model]
rank, peers = int(os.environ["ELRUN_INDEX"]), int(os.environ["ELRUN_NP"])
rendezvous = os.path.join(tempfile.gettempdir(), f"elrun-bench-{os.environ['ELRUN_JOB']}")
part = batch // peers


class Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The numbers of the samples. The collate function takes a whole batch by them, so that loading takes no time."""

    def __len__(self) -> int:
        return 64 * batch

    def __getitem__(self, i: int) -> int:
        return i


xs = torch.randn(64 * batch, *shape, generator=torch.Generator().manual_seed(1))
ys = torch.randint(0, 10, (64 * batch,), generator=torch.Generator().manual_seed(2))


def take(indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return xs[indices], ys[indices]


def built() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = make()
    return model, torch.optim.SGD(model.parameters(), lr=0.001)


times: dict[str, list[float]] = {"job": [], "gloo": [], "alone": []}


def block(side: str, model: nn.Module, opt: torch.optim.Optimizer) -> None:
    """Trains for a block of steps with this peer's part of each batch."""
    dist.barrier()
    for step in range(args.block):
        begun = time.perf_counter()
        first = (step * batch + rank * part) % len(xs)
        x, y = take(list(range(first, first + part)))
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        opt.step()
        times[side].append(time.perf_counter() - begun)


net, sgd = built()
job = elrun.Job(net, sgd, admit="always")
loader = job.loader(Numbers(), batch, collate_fn=take)
dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=peers)
replica, replica_opt = built()
replica = DistributedDataParallel(replica)
single, single_opt = built()
done, last = 0, time.perf_counter()
for _ in job.epochs(-(-args.rounds * args.block // 64)):
    for x, y in loader:
        sgd.zero_grad()
        if not job.backward(F.cross_entropy(net(x), y)):
            continue
        sgd.step()
        times["job"].append(time.perf_counter() - last)
        if job.step % args.block == 0:
            block("gloo", replica, replica_opt)
            block("alone", single, single_opt)
            dist.barrier()
        last = time.perf_counter()
if rank == 0:
    medians = {side: statistics.median(t[args.block :]) for side, t in times.items()}
    print(
        f"{args.model}: alone {1e3 * medians['alone']:.2f} ms, DistributedDataParallel over Gloo {1e3 * medians['gloo']:.2f} ms,"
        f" Job {1e3 * medians['job']:.2f} ms: {medians['gloo'] / medians['job']:.2f} times as fast",
        flush=True,
    )
dist.destroy_process_group()
with contextlib.suppress(OSError):  # the other peer was first
    os.remove(rendezvous)
