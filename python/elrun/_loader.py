"""The training set of a Job, in batches of this peer."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, default_collate

from . import Error, _link, _workers

if TYPE_CHECKING:
    from .torch import Job

_COMPARED = 8  # samples by which peers compare their data


class Loader:
    """The training set of a Job. Iterating over it yields the batches that this peer computes in an epoch.

    The arguments are those of torch.utils.data.DataLoader. batch_size is that of all peers. Microbatches are what peers
    share out, and what a worker loads at once. With a collate_fn the workers load samples, and it runs in this process,
    since a batch has several microbatches.
    """

    def __init__(
        self,
        job: Job,
        dataset: Any,
        batch_size: int,
        *,
        microbatch: int,
        max_samples: int,
        shuffle: bool | None,
        sampler: Any,
        batch_sampler: Any,
        num_workers: int,
        collate_fn: Any,
        drop_last: bool,
        timeout: float,
        worker_init_fn: Any,
        multiprocessing_context: Any,
        generator: Any,
    ) -> None:
        if isinstance(dataset, IterableDataset):
            raise Error("an IterableDataset has no indices, so samples could be lost or repeated: use a map-style dataset")
        n = len(dataset)
        if n < 1 or batch_size < 1 or microbatch < 1 or num_workers < 0:
            raise Error(
                f"loader of {n} samples, batch_size {batch_size}, microbatch {microbatch}: want at least 1 of each;"
                f" num_workers {num_workers}: want 0 or more"
            )
        if max_samples and max_samples < min(microbatch, batch_size):
            raise Error(
                f"max_samples={max_samples} is less than a microbatch, which has {microbatch} samples: lower microbatch, too"
            )
        if shuffle is not None and not shuffle:
            raise Error("shuffle=False: a job shuffles by its seed, so leave shuffle out; for an evaluation in order use job.part")
        if sampler is not None or batch_sampler is not None:
            name = "sampler" if sampler is not None else "batch_sampler"
            raise Error(f"{name}: a job shares out the samples by itself, so leave it out; for some of the samples use Subset")
        if drop_last and n % batch_size != 0:
            raise Error(
                f"drop_last=True: the last step of an epoch has the {n % batch_size} samples that are left, so leave drop_last out"
            )
        if any(isinstance(m, torch.nn.BatchNorm1d) for m in job.model.modules()):
            _check_sizes(n, batch_size, min(microbatch, batch_size))
        if generator is not None:
            raise Error("generator: the seed of Job determines the order and the random numbers, so leave generator out")
        self._job, self.dataset, self.batch_size, self.microbatch = job, dataset, batch_size, min(microbatch, batch_size)
        self.max_samples = max_samples
        self._collate, self._single = collate_fn or default_collate, collate_fn is None and num_workers > 0
        self._load = functools.partial(_load, dataset, self._single, job._seed)
        self._init = functools.partial(_init, dataset, num_workers, job._seed, worker_init_fn)
        self._workers, self._context, self._timeout = num_workers, multiprocessing_context, timeout
        self._pool: _workers.Pool | None = None
        self._active = False

    def __len__(self) -> int:
        """The number of steps of an epoch."""
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        job = self._job
        if not job._began:
            raise Error(
                "the loader outside of job.epochs: iterate over it inside `for epoch in job.epochs(n)`; dataset[0] is a sample"
            )
        if self._active:
            raise Error("two loops over one loader at once: a step has one batch")
        if job._point is not None:
            raise Error("the loader a second time in an epoch: an epoch has each sample once; use job.part for an evaluation")
        self._active = True
        try:
            while True:
                job._applied()
                f = job._next_or_over() if job._pushed is None else job._next()
                if f.kind not in (_link.WORK, _link.APPLY):
                    job._pushed = f
                    if f.kind == _link.POINT:
                        job._pushed = None
                        job._reached(f)
                    return
                microbatches = job._begin(f)
                # The batch of a stand-in has a step of its own, so that no microbatch is taken for it.
                batch = self._batch(-job.step if job._replay else job.step, microbatches)
                seed_random(job._seed, job.step, microbatches[0][0])
                yield batch
                if job._indices is not None:
                    raise Error(
                        f"step {job.step}: the loop did not call job.backward for a batch: call it in each iteration, or job.skip()"
                    )
        finally:
            self._active = False

    def _batch(self, step: int, microbatches: list[list[int]]) -> Any:
        """The collated samples of microbatches."""
        parts = self._pool.get(step, microbatches) if self._pool else [self._load(step, m) for m in microbatches]
        return _joined(parts) if self._single else self._collate([sample for part in parts for sample in part])

    def unforeseen(self) -> int:
        """The microseconds that the last batch has waited for samples that no AHEAD has named."""
        return int(self._pool.unforeseen * 1e6) if self._pool else 0

    def start(self) -> dict[str, Any]:
        """Starts the workers. Returns what HELLO says of the data."""
        if self._workers:
            self._pool = _workers.Pool(self._workers, self._load, self._init, self._context, self._timeout)
        n = len(self.dataset)
        compared = [[i] for i in sorted({k * (n - 1) // (_COMPARED - 1) for k in range(_COMPARED)})]
        digests = [self._load(0, c) for c in compared] if self._pool is None else self._pool.get(0, compared)
        data = hashlib.blake2b("".join(digests).encode(), digest_size=8).hexdigest()
        return {"Samples": n, "Data": f"{n} samples, {data}", "Ahead": self._pool is not None}

    def ahead(self, f: _link.Frame) -> None:
        """Handles AHEAD."""
        if self._pool is not None:
            self._pool.ahead(f.a, units(f.payload))

    def close(self) -> None:
        """Ends the workers."""
        if self._pool is not None:
            self._pool.close()


def _check_sizes(n: int, batch_size: int, microbatch: int) -> None:
    """Raises if a peer may get a single sample, which batch norm cannot train on."""
    sizes = {min(n, batch_size), n % batch_size or batch_size}

    def single(m: int) -> bool:
        return m == 1 or any(s % m == 1 for s in sizes)

    if 1 in sizes:
        raise Error("the last step of an epoch has 1 sample, which batch norm cannot train on: leave one out by Subset")
    if single(microbatch):
        fits = next(m for m in range(max(microbatch, 2), batch_size + 2) if not single(m))
        raise Error(f"a microbatch of a step would have 1 sample, which batch norm cannot train on: use microbatch={fits}")


def _load(dataset: Any, collate: bool, seed: int, step: int, indices: list[int]) -> Any:
    """A microbatch, by itself if collate is set. What is random in it depends on the step and its first sample only.

    In step 0 it is a text that identifies the samples, for a comparison of the data.
    """
    if step == 0:
        twice = []
        for _ in range(2):
            seed_random("compare", indices[0])
            twice.append(_digest(fetch(dataset, indices)))
        return twice[0] if twice[0] == twice[1] else ""  # random numbers of another source
    seed_random(seed, step, indices[0], "data")
    samples = fetch(dataset, indices)
    return default_collate(samples) if collate else samples


def _init(dataset: Any, workers: int, seed: int, init: Any, worker: int) -> None:
    """Begins a worker."""
    seed_random(seed, "worker", worker)
    with contextlib.suppress(ImportError, AttributeError):  # for torch.utils.data.get_worker_info
        from torch.utils.data._utils import worker as module

        module._worker_info = module.WorkerInfo(id=worker, num_workers=workers, seed=torch.initial_seed(), dataset=dataset)
    if init is not None:
        init(worker)


def fetch(dataset: Any, indices: Iterable[int]) -> list[Any]:
    """Samples of a dataset."""
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(list(indices)))
    samples = []
    for i in indices:
        try:
            samples.append(dataset[i])
        except Exception as e:
            with contextlib.suppress(AttributeError):
                e.elrun_sample = i  # type: ignore[attr-defined]
                e.add_note(f"in sample {i} of the dataset")  # type: ignore[attr-defined]
            raise
    return samples


def _joined(parts: list[Any]) -> Any:
    """What default_collate makes of all samples, of its results for their parts."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(parts)
    if isinstance(first, Mapping):
        joined = {key: _joined([p[key] for p in parts]) for key in first}
        with contextlib.suppress(Exception):  # as default_collate keeps the type
            clone = copy.copy(first)
            clone.update(joined)  # type: ignore[attr-defined]
            return clone
        return joined
    if isinstance(first, (list, tuple)):
        if first and isinstance(first[0], (str, bytes)):  # of the samples
            return type(first)(x for p in parts for x in p)
        fields = [_joined(list(f)) for f in zip(*parts)]
        return type(first)(*fields) if hasattr(first, "_fields") else type(first)(fields)
    raise Error(f"batches of the type {type(first).__name__} cannot be joined: pass collate_fn=torch.utils.data.default_collate")


def _digest(value: Any) -> str:
    """Identifies a sample. Numbers that are not whole count by rough figures: their last bits depend on the processor."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point() or value.numel() == 0:
            return f"{value.dtype}{tuple(value.shape)}{value.tolist()}"
        x = value.detach().double()
        figures = [float(f) for f in (x.abs().mean(), x.clamp(min=0).mean(), x.norm())]
        return f"{value.dtype}{tuple(value.shape)}" + " ".join(f"{f:.3g}" for f in figures)
    if isinstance(value, (list, tuple)):
        return "(" + ",".join(_digest(v) for v in value) + ")"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{_digest(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:.3g}"
    if value is None or isinstance(value, (int, str, bytes)):
        return repr(value)
    if type(value).__module__ == "numpy":
        with contextlib.suppress(TypeError, ValueError):
            return _digest(torch.as_tensor(value))
    return type(value).__name__


def units(payload: bytes) -> list[list[int]]:
    """The microbatches of WORK and AHEAD: for each its length and its samples."""
    words = memoryview(payload).cast("q").tolist()
    found, at = [], 0
    while at < len(words):
        end = at + 1 + words[at]
        found.append(words[at + 1 : end])
        at = end
    return found


def seed_random(*parts: object) -> None:
    """Sets the random numbers of torch on the CPU, random and numpy, for what parts name."""
    mixed = int.from_bytes(hashlib.blake2b(" ".join(map(str, parts)).encode(), digest_size=7).digest(), "little")
    torch.default_generator.manual_seed(mixed)
    random.seed(mixed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(mixed % (1 << 32))
