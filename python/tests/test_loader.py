"""The loader of a Job in one process: what it yields with and without workers, and mistakes."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn as nn
from torch.utils.data import TensorDataset, WeightedRandomSampler, default_collate, get_worker_info

import elrun.torch as elrun

Pair = namedtuple("Pair", "a b")


def show_nothing(job: elrun.Job, batch: Any) -> None:
    pass


def train(dataset: Any, see: Any = show_nothing, epochs: int = 1, batch_size: int = 20, **arguments: Any) -> elrun.Job:
    """A training that shows its batches to see."""
    net = nn.Linear(1, 1)
    job = elrun.Job(net, torch.optim.SGD(net.parameters(), lr=0.01), settings={"test": 1})
    try:
        loader = job.loader(dataset, batch_size, microbatch=8, **arguments)
        for _ in job.epochs(epochs):
            for batch in loader:
                see(job, batch)
                job.backward(net(torch.ones(1, 1)).mean())
    finally:
        job._link.close("the test is over")
        if job._loader is not None:
            job._loader.close()
    return job


class Kinds:
    """Samples with all that default_collate knows. The first number is the index."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> Any:
        t = torch.full((2, 3), float(i))
        return {
            "i": i,
            "x": (t, t.to(torch.bfloat16), t > 7, t[:0], t.t()),
            "text": f"sample {i}",
            "pair": Pair(float(i), np.full(3, i, dtype=np.int16)),
            "texts": (f"a{i}", f"b{i}"),
            "image": torch.full((3, 40, 50), i, dtype=torch.uint8),
        }


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return bool(a == b)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own", [False, True])
def test_batches_are_those_of_a_dataloader(workers: int, own: bool) -> None:
    data, seen = Kinds(), []

    def see(job: elrun.Job, batch: Any) -> None:
        seen.extend(batch["i"].tolist())
        assert same(batch, default_collate([data[i] for i in batch["i"].tolist()]))
        batch["x"][0].zero_()  # as training code does

    # The first arguments are those of a pasted call.
    pasted = dict(shuffle=True, pin_memory=True, persistent_workers=True, prefetch_factor=4, drop_last=False, timeout=100)
    train(data, see, epochs=2, num_workers=workers, collate_fn=default_collate if own else None, **pasted)
    assert sorted(seen[:50]) == sorted(seen[50:]) == list(range(50))


class Numbers:
    """Samples with random numbers of three sources."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> Any:
        return i, np.random.rand(), random.random(), torch.rand(1, dtype=torch.float64)


def numbers(workers: int) -> dict[tuple[int, int], tuple[float, ...]]:
    found = {}

    def see(job: elrun.Job, batch: Any) -> None:
        for i, *rest in zip(*(b.flatten().tolist() for b in batch)):
            found[job.epoch, i] = tuple(rest)

    train(Numbers(), see, epochs=2, num_workers=workers)
    return found


def test_random_numbers_do_not_repeat_or_depend_on_workers() -> None:
    found = numbers(0)
    assert len(found) == 100
    assert len({x for xs in found.values() for x in xs}) == 300
    assert found == numbers(2)


class Counted:
    """Samples that note which process has loaded them, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> tuple[int, int]:
        with open(self.path, "a") as f:
            f.write(f"{os.getpid()} {i}\n")
        return i, torch.get_num_threads()


def test_workers_load_each_sample_once(tmp_path: Path) -> None:
    threads = []
    train(Counted(tmp_path / "log"), lambda job, batch: threads.extend(batch[1].tolist()), epochs=2, num_workers=2, batch_size=32)
    lines = (tmp_path / "log").read_text().splitlines()
    pids = {line.split()[0] for line in lines}
    assert len(pids) == 2 and str(os.getpid()) not in pids
    # Peers compare eight samples, and each of these is loaded twice to find random ones.
    assert len(lines) == 2 * 64 + 2 * 8
    assert set(threads) == {1}


class Strange:
    """A dataset with a bad sample, or one that kills its process."""

    def __init__(self, how: str) -> None:
        self.how, self.worker = how, -1

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> int:
        if i == 17 and self.how == "raise":
            raise ValueError("bad sample")
        if i == 17 and self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "worker":
            info = get_worker_info()
            assert info is not None and info.num_workers == 2 and info.dataset.worker == info.id + 5
        return i


def begin(worker: int) -> None:
    get_worker_info().dataset.worker = worker + 5  # type: ignore[union-attr]


def test_mistakes_in_workers() -> None:
    with pytest.raises(elrun.Error, match=r"^sample 17: ValueError: bad sample \(in worker") as caught:
        train(Strange("raise"), num_workers=2)
    assert "in __getitem__" in str(caught.value)
    with pytest.raises(ValueError, match="bad sample"):
        train(Strange("raise"))
    with pytest.raises(elrun.Error, match="was killed by SIGKILL"):
        train(Strange("kill"), num_workers=2)
    train(Strange("worker"), num_workers=2, worker_init_fn=begin)
    with pytest.raises(elrun.Error, match="TypeError"):
        train(Strange(""), num_workers=2, worker_init_fn=lambda: None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"shuffle": False}, "job.part"),
        ({"sampler": WeightedRandomSampler([1.0], 1)}, "^sampler: .*Subset"),
        ({"batch_sampler": [[1]]}, "^batch_sampler: .*Subset"),
        ({"drop_last": True}, "has the 10 samples that are left"),
        ({"generator": torch.Generator()}, "seed of Job"),
        ({"num_workers": -1}, "num_workers -1"),
    ],
)
def test_arguments_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(elrun.Error, match=text):
        train(Kinds(), **arguments)


def test_the_loader_twice_in_an_epoch() -> None:
    net = nn.Linear(1, 1)
    job = elrun.Job(net, torch.optim.SGD(net.parameters(), lr=0.01))
    loader = job.loader(TensorDataset(torch.ones(16, 1)), 16, drop_last=True)
    with pytest.raises(elrun.Error, match="a second time in an epoch"):
        for _ in job.epochs(1):
            for _ in range(2):
                for (x,) in loader:
                    job.backward(net(x).mean())
    job._link.close("the test is over")


@pytest.fixture(autouse=True)
def no_worker_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []
