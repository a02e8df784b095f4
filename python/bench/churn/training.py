"""What every worker trains: a small network on MNIST with Adam, a batch of 512, and a log of the samples that counted.

A "device" takes a tenth of a millisecond a sample, which is slept, so that the processor's cores do not limit the workers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 512  # samples of a step, of all workers
WORKERS = 3
PACE = 0.0001  # seconds of the device a sample

torch.set_num_threads(1)


def _read(name: str, head: int) -> torch.Tensor:
    data = Path(os.environ["CHURN_DATA"], name).read_bytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=head)


def _set(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    images = _read(f"{name}-images-idx3-ubyte", 16).reshape(-1, 784).float() / 255
    return images, _read(f"{name}-labels-idx1-ubyte", 8).long()


x, y = _set("train")


def model(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network with the weights of a seed, and its optimizer."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return net, torch.optim.Adam(net.parameters(), 1e-3)


def compute(net: nn.Module, samples: torch.Tensor) -> torch.Tensor:
    """The mean loss of samples, after the time of the device."""
    loss = F.cross_entropy(net(x[samples]), y[samples])
    time.sleep(PACE * len(samples))
    return loss


class Plan:
    """The order of the samples of one seed. Places count from the beginning of the training, epoch after epoch."""

    def __init__(self, seed: int) -> None:
        self._seed, self._epoch, self._order = seed, -1, torch.empty(0)

    def places(self, step: int, first: int = 0, end: int = BATCH) -> list[int]:
        """The places of a step, from 1 on, or of a part of its batch."""
        return list(range((step - 1) * BATCH + first, (step - 1) * BATCH + end))

    def part(self, step: int, worker: int) -> list[int]:
        """The places of one of the workers, with fixed parts."""
        return self.places(step, worker * BATCH // WORKERS, (worker + 1) * BATCH // WORKERS)

    def samples(self, places: list[int]) -> torch.Tensor:
        return torch.tensor([self._sample(p) for p in places])

    def _sample(self, place: int) -> int:
        epoch, at = divmod(place, len(x))
        if epoch != self._epoch:
            g = torch.Generator().manual_seed(self._seed * 1000 + epoch)
            self._epoch, self._order = epoch, torch.randperm(len(x), generator=g)
        return int(self._order[at])


def test(net: nn.Module) -> tuple[float, float]:
    """The mean loss of the test set, and the part of it that is right."""
    images, labels = _set("t10k")
    with torch.no_grad():
        out = net(images)
        return float(F.cross_entropy(out, labels)), float((out.argmax(1) == labels).float().mean())


class Tally(nn.Module):
    """A witness of the samples in the sums of all workers: the gradients of its weight are their number and mean place.

    Both are parts, of the batch and of an epoch. A worker sees what it computes, but not which of it the sums have.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def of(self, places: torch.Tensor) -> torch.Tensor:
        """What is added to the loss: zero."""
        return self.weight[0] + self.weight[1] * (places % len(x) / len(x)).mean()

    def seen(self) -> list[float]:
        assert self.weight.grad is not None
        return self.weight.grad.tolist()


class Log:
    """The log of a worker, from which the driver computes all figures. A killed worker's lines stay.

    begin STEP PLACES    the worker computes samples of a step
    count STEP PLANNED   the step is complete, with what was begun since the last line of this kind; what a Tally has seen
    drop                 what was begun does not count
    test RESULT          the result of the worker at the end
    """

    def __init__(self, who: int | str) -> None:
        self._folder = Path(os.environ["CHURN_OUT"])
        self._file = os.open(self._folder / f"{who}.{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def _write(self, *words: object) -> None:
        os.write(self._file, f"{time.time():.6f} {' '.join(map(str, words))}\n".encode())

    def begin(self, step: int, places: Iterable[int]) -> None:
        self._write("begin", step, *places)

    def count(self, step: int, planned: int = BATCH, seen: Iterable[float] = ()) -> None:
        """planned is the number of samples that the step has at all workers together."""
        self._write("count", step, planned, *seen)

    def drop(self) -> None:
        self._write("drop")

    def over(self) -> bool:
        """Whether the driver has ended the run."""
        return (self._folder / "over").exists()

    def end(self, net: nn.Module, step: int) -> None:
        """Logs the result, and ends the process."""
        loss, right = test(net)
        self._write("test", json.dumps({"step": step, "loss": loss, "right": right}))
        os._exit(0)
