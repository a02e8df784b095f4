"""The training set of a Job, in batches of this peer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import default_collate

from . import Error, _link

if TYPE_CHECKING:
    from .torch import Job


class Loader:
    """The training set of a Job. Iterating over it yields the batches that this peer computes in an epoch."""

    def __init__(self, job: Job, dataset: Any, batch_size: int, microbatch: int, collate_fn: Any) -> None:
        self._job, self.dataset, self.batch_size, self.microbatch = job, dataset, batch_size, microbatch
        self._collate = collate_fn or default_collate
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
                indices = job._begin(f)
                yield self._collate(fetch(self.dataset, indices))
                if job._indices is not None:
                    raise Error(f"step {job.step}: the loop did not call job.backward for a batch: call it in each iteration")
        finally:
            self._active = False


def fetch(dataset: Any, indices: Iterable[int]) -> list[Any]:
    if hasattr(dataset, "__getitems__"):
        return list(dataset.__getitems__(list(indices)))
    return [dataset[i] for i in indices]


def units(payload: bytes) -> list[list[int]]:
    """The microbatches of WORK and AHEAD: for each its length and its samples."""
    words = memoryview(payload).cast("q").tolist()
    found, at = [], 0
    while at < len(words):
        end = at + 1 + words[at]
        found.append(words[at + 1 : end])
        at = end
    return found
