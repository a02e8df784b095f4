"""Elastic training of PyTorch models.

Job replaces three things of a training script: the DataLoader (Job.loader), the range of epochs
(Job.epochs) and loss.backward() (Job.backward). The optimizer, clipping and schedulers stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import math
import os
import random
import re
import struct
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import default_collate

from . import Error, Left, Lost, NotFinite, Quorum, __version__, _link
from ._loader import Loader, fetch, units

__all__ = ["Error", "Job", "Left", "Loader", "Lost", "NotFinite", "Quorum"]

_ALIGNMENT = 64  # bytes; that of exact mode


def _up(n: int) -> int:
    return (n + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


def _dense(t: torch.Tensor) -> bool:
    """Whether the elements of t fill its memory without gaps, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted((st, si) for st, si in zip(t.stride(), t.shape) if si != 1):
        if stride != expected:
            return False
        expected *= size
    return True


class _Slot:
    """A parameter, or a buffer that the model updates, in the memory of the job."""

    def __init__(self, name: str, tensor: torch.Tensor, buffer: bool, offset: int, grad_offset: int) -> None:
        self.name, self.tensor, self.buffer = name, tensor, buffer
        self.offset, self.grad_offset = offset, grad_offset
        self.data = self.grad = torch.empty(0)  # views of the memory
        self.old = torch.empty(0)  # of a buffer, before a call of the model

    @property
    def integer(self) -> bool:
        return not self.tensor.is_floating_point()


class Job:
    """A training of a model in which peers may join, leave and die.

    model       its parameters and buffers move to memory that the sidecar shares. All that it computes must be float32
                on the CPU.
    state       what else the updates depend on: optimizers, schedulers, a GradScaler, or anything with state_dict and
                load_state_dict. A peer that joins, and a checkpoint, has their state.
    seed        determines the order of the samples and the random numbers of each step.
    exact       makes the result the same, bit for bit, for any number of peers.
    checkpoint  a folder for checkpoints, written every so many steps or so long ("10m"); resume goes on from the newest.
    admit       "helps" lets a peer join if it makes steps shorter, "always" at any speed.
    max_share   bounds the microbatches of a step that this peer computes; 0 means no bound.
    means       names of numbers of which backward gets the means over the samples of each call: Job.means has them.
    settings    settings of the script that must be equal at all peers, such as its flags.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *state: Any,
        seed: int = 0,
        exact: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | str | None = None,
        resume: bool = False,
        admit: str = "helps",
        max_share: int = 0,
        compress: str = "",
        means: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        for s in state:
            if not (hasattr(s, "state_dict") and hasattr(s, "load_state_dict")):
                raise Error(f"{type(s).__name__} has no state_dict and load_state_dict: pass optimizers, schedulers and the like")
            if isinstance(s, torch.optim.LBFGS):
                raise Error(
                    "LBFGS evaluates the model several times in a step, and peers could disagree how often: use another optimizer"
                )
            if isinstance(s, torch.optim.SparseAdam):
                raise Error("SparseAdam takes sparse gradients only, and peers add up gradients densely: use Adam")
        self.model, self.state = model, state
        self.step, self.epoch, self.rank, self.peers = 0, 0, 0, 1
        self.loss = float("nan")
        if isinstance(means, str):
            raise Error(f"means={means!r}: want a list of names, such as means=[{means!r}]")
        if means and compress:
            raise Error("means= and compress=: a compressed sum is not exact, so leave one of them out")
        self.means = dict.fromkeys(means, float("nan"))
        """Means over the whole batch of the last complete step, like loss."""
        self.result: dict[str, Any] | None = None
        self.kept: dict[str, torch.Tensor] | None = None
        """The state_dict of the model at the last job.keep(), after the training."""
        # A GradScaler leaves out the steps whose gradients are not finite. It has its factor in the loss.
        self._scaler = next((s for s in state if hasattr(s, "unscale_") and s.is_enabled()), None)
        if self._scaler is not None and (exact or compress):
            raise Error(
                "a GradScaler with exact= or compress=: their sums have no infinite gradients; use bfloat16 without a scaler"
            )
        self._exact, self._seed = exact, seed
        self._options = {
            "Seed": seed,
            "Exact": exact,
            "Admit": admit,
            "MaxShare": max_share,
            "Compress": compress,
            "Checkpoint": os.fspath(checkpoint) if checkpoint else "",
            "Resume": os.fspath(checkpoint) if checkpoint and resume else "",
            **_interval(every if checkpoint and every else ("10m" if checkpoint else None)),
        }
        self._settings = [["torch", torch.__version__.split("+")[0]]]
        self._settings += _hyperparameters([s for s in state if hasattr(s, "param_groups")])
        self._settings += [[name, str(value)] for name, value in (settings or {}).items()]
        if exact:
            torch.set_num_threads(1)  # the number of threads is part of the bits
            self._settings.append(["arithmetic of torch", _probe()])
        self._groups = [len(g["params"]) for s in state for g in getattr(s, "param_groups", ())]
        self._used: set[int] = set()  # parameters that have got a gradient in this call
        self._slots, size = self._layout()
        self._link = _link.Link(size)
        self._move()
        self._loader: Loader | None = None
        self._pushed: _link.Frame | None = None  # a frame that came too early
        self._indices: list[int] | None = None  # samples of the iteration; None between iterations
        self._units = 0  # microbatches of the iteration
        self._replay = False  # the step was computed by others
        self._stand_in = 0  # the first sample of the stand-ins for such a step
        self._replayed: _link.Frame | None = None  # the frame of such a step
        self._scale = 1.0  # factor of the gradients
        self._weighs: bool | None = None  # whether calls of backward have a weight; None before the first
        self._strange = ""  # the samples of a loss that is not finite
        self._applying = False  # the loop updates the parameters
        self._rate = 0.0
        self._stepped = False  # an optimizer was called since the last mean
        # A GradScaler may leave out a call, and old versions of torch do not tell of calls.
        optimizers = [s for s in state if hasattr(s, "register_step_post_hook")]
        self._watches = bool(optimizers) and self._scaler is None
        for s in optimizers:
            s.register_step_post_hook(self._note_step)
        self._updated = 0  # the last step of which the loop has updated them
        self._point: dict[str, Any] | None = None  # the end of an epoch
        self._stop = self._keep = False
        self._began = self._over = False
        self._reasons: list[str] = []  # of busy, the last one inside the others

    # Memory.

    def _layout(self) -> tuple[list[_Slot], int]:
        found: list[tuple[str, torch.Tensor, bool]] = []
        for name, p in self.model.named_parameters():
            if p.requires_grad and p.numel() > 0:
                found.append((_plain(name), p, False))
        found += [
            (_plain(name), b, True)
            for name, b in self.model.named_buffers()
            if b.numel() > 0 and b.dtype in (torch.float32, torch.int64)
        ]
        if not any(not buffer for _, _, buffer in found):
            raise Error("the model has no parameters to train: set requires_grad of some")
        for name, t, _ in found:
            if t.device.type != "cpu":
                raise Error(f"{name} is on {t.device}: move the model to the CPU before Job")
            if t.is_floating_point() and t.dtype != torch.float32:
                raise Error(f"{name} has the type {t.dtype}: convert the model with model.float() before Job")
            if t.layout != torch.strided or not _dense(t):
                raise Error(f"{name} does not fill its memory: replace it by its contiguous() copy before Job")
        # Sums of a step that are no gradients: by parameter the weight of the samples for which it had one, and the means.
        trained = sum(not buffer for _, _, buffer in found)
        sums = [("elrun.used", torch.zeros(trained), True)] + [(f"elrun.mean.{name}", torch.zeros(1), True) for name in self.means]
        found += sums
        at, slots, grad = 0, [], 0
        for name, t, buffer in found:
            slots.append(_Slot(name, t, buffer, at, grad))
            at = _up(at + 4 * t.numel())
            grad += _up(4 * t.numel()) if self._exact else 4 * t.numel()
        for s in slots:
            s.grad_offset += at
        return slots, at + grad

    def _move(self) -> None:
        """Moves the parameters into the memory."""
        for s in self._slots:
            n = s.tensor.numel()

            def view(offset: int, like: torch.Tensor = s.tensor, n: int = n) -> torch.Tensor:
                flat = torch.frombuffer(self._link.memory, dtype=torch.float32, count=n, offset=offset)
                return flat.as_strided(like.shape, like.stride())

            s.data, s.grad = view(s.offset), view(s.grad_offset)
            s.data.copy_(s.tensor.detach())
            if not s.integer:
                s.tensor.data = s.data
        own = len(self._slots) - 1 - len(self.means)
        self._params = [s for s in self._slots[:own] if not s.buffer]
        self._buffers = [s for s in self._slots[:own] if s.buffer]
        self._uses, *self._sums = self._slots[own:]
        used = self._used  # a hook must not keep the job
        for i, s in enumerate(self._params):
            s.tensor.register_hook(lambda _, i=i: used.add(i))  # type: ignore[no-untyped-call]
        self._addresses = [s.tensor.data_ptr() for s in self._params]
        # Where each parameter stands in the model, and whether it is trained.
        self._homes = [
            (m._parameters, key, p, p is not None and p.requires_grad, _plain(f"{prefix}.{key}".lstrip(".")))
            for prefix, m in self.model.named_modules()
            for key, p in m._parameters.items()
        ]
        shared = {id(s.tensor) for s in self._slots}
        tensors = list(self.model.named_parameters()) + list(self.model.named_buffers())
        self._rest = [(name, t) for name, t in tensors if id(t) not in shared and t.numel() > 0]

    # Frames.

    def _next(self) -> _link.Frame:
        """The next frame that the loop has to see. It answers the others."""
        if self._pushed is not None:
            f, self._pushed = self._pushed, None
            return f
        while True:
            f = self._link.receive()
            if f.kind == _link.SAVE:
                buffer = io.BytesIO()
                torch.save(_packed(self._saved()), buffer)
                self._link.send(_link.BLOB, payload=buffer.getbuffer())
            elif f.kind == _link.LOAD:
                self._load(f.payload)
                self._link.send(_link.LOADED)
            elif f.kind == _link.AHEAD:
                if self._loader is not None:
                    self._loader.ahead(f)
            elif f.kind == _link.END:
                self._end(json.loads(f.payload))
                return f
            else:
                return f

    def _saved(self) -> Any:
        # Equal states must have equal bytes.
        saved = {
            "step": self._updated,
            "means": [self.loss, *self.means.values()],  # the loop of a newcomer decides by them, too
            "state": [s.state_dict() for s in self.state],
            "rest": [t.detach() for _, t in self._rest],
        }
        return _canonical(saved)

    def _load(self, payload: bytes) -> None:
        # The bytes come from another peer: they must not be able to run code.
        saved = _unpacked(torch.load(io.BytesIO(payload), weights_only=True))
        if len(saved["state"]) != len(self.state) or len(saved["rest"]) != len(self._rest):
            raise Error(
                f"the job has the state of {len(saved['state'])} objects, and this script {len(self.state)}: start the same script"
            )
        for s, d in zip(self.state, saved["state"]):
            if self._updated and saved["step"] == self._updated:
                _compare(s, d, self._updated)
            s.load_state_dict(d)
        self._updated = saved["step"]
        self.loss, *means = saved["means"]
        self.means.update(zip(self.means, means))
        with torch.no_grad():
            for (_, t), v in zip(self._rest, saved["rest"]):
                t.copy_(v)
            self._integers()

    def _integers(self) -> None:
        """Sets the integer buffers to their values in the memory."""
        for s in self._buffers:
            if s.integer:
                s.tensor.copy_(s.data)

    def _end(self, end: dict[str, Any]) -> None:
        """The sidecar has ended the training: return, or raise what it says."""
        self._link.ended()
        self._link.close()
        if end["Kept"]:
            self.kept = self._copy()
        if self._loader is not None:
            self._loader.close()
        self._over, self.result = True, end.get("Result")
        kind, text = end["Class"], end["Error"]
        if kind in ("left", "late"):
            raise Left
        if kind == "quorum":
            raise Quorum(text)
        if kind == "notfinite":
            raise NotFinite(text + self._strange)
        if kind == "weights":
            raise Error(_MIXED)
        if kind:
            raise Error(text)

    def _copy(self) -> dict[str, torch.Tensor]:
        """A state_dict of the model, with the tensors that the memory of the gradients has."""
        slots = {id(s.tensor): s for s in self._slots}
        named = self.model.state_dict(keep_vars=True)
        copies = {}
        for name, t in named.items():
            value = slots[id(t)].grad if id(t) in slots else t
            copies[name] = value.detach().to(t.dtype, copy=True)
        return copies

    # The loops.

    def loader(
        self,
        dataset: Any,
        batch_size: int,
        *,
        microbatch: int = 16,
        max_samples: int = 0,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = True,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> Loader:
        """The training set: iterating over it yields this peer's part of each step. batch_size is that of all peers.

        The arguments are those of a DataLoader. Those that would change which samples a step has raise an Error. Workers
        live as long as the job, and load what the rest of this step and the next step need, whatever prefetch_factor says.
        There is no memory to pin without a GPU. max_samples bounds the samples of an iteration, for models that need much
        memory; 0 means no bound.
        """
        if self._loader is not None:
            raise Error("Job.loader was called twice: a job has one training set; use Job.part for evaluation")
        self._loader = Loader(
            self,
            dataset,
            batch_size,
            microbatch=microbatch,
            max_samples=max_samples,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
        )
        return self._loader

    def epochs(self, n: int) -> Iterator[int]:
        """The epochs of the training. In a peer that joins they begin at the job's epoch."""
        if self._began:
            raise Error("Job.epochs was called twice: make a new Job")
        if self._loader is None:
            raise Error("Job.epochs before Job.loader: make the loader first")
        self._began = True
        self._hello(n)
        while not self._over:
            f = self._next()
            if self._over:
                return
            self._pushed = f
            step = f.a - 1 if f.kind == _link.POINT else f.a
            per_epoch = len(self._loader)
            self.epoch = (step - (f.kind != _link.POINT)) // per_epoch
            yield self.epoch
            self._applied()
            if self._point is None and not self._over:
                f = self._next()
                if f.kind != _link.POINT:
                    raise Error(
                        "the loop over the loader was left before its end: iterate to the end; job.stop() stops after an epoch"
                    )
            if not self._over:
                self._point = None
                self._link.send(_link.GOON, a=_STOP * self._stop + _KEEP * self._keep)
                self._keep = False

    def _hello(self, passes: int) -> None:
        if passes < 1:
            raise Error(f"{passes} epochs, want at least 1")
        loader = self._loader
        assert loader is not None
        # The gradients of a share are those of its part of the mean over the whole batch: a step of few peers must not have
        # larger ones. A power of two leaves their bits. In exact mode each call has a microbatch, for any number of peers.
        self._scale = 1.0 if self._exact else 1.0 / (1 << (loader.batch_size - 1).bit_length())
        hello = {
            "Version": _link.VERSION,
            "Release": __version__,
            "Params": [{"Name": s.name, "Shape": list(s.tensor.shape) or [1], "Offset": s.offset} for s in self._slots],
            "Grads": [s.grad_offset for s in self._slots],
            "GradScale": self._scale,
            "MaxSamples": loader.max_samples,
            "NotFinite": self._scaler is not None,
            "Batch": loader.batch_size,
            "Microbatch": loader.microbatch,
            "Passes": passes,
            "Settings": self._settings,
            **self._options,
            **loader.start(),
        }
        self._link.joined = True
        self._link.send(_link.HELLO, payload=json.dumps(hello).encode())

    def _begin(self, f: _link.Frame) -> list[list[int]]:
        """Begins an iteration, for WORK or APPLY, and returns its microbatches."""
        self.step, self._replay = f.a, f.kind == _link.APPLY
        if self._replay:
            # The step was computed by others: the loop runs with stand-ins, so that it updates the parameters.
            self._news(f)
            self._replayed = f
            n = len(self._loader.dataset)  # type: ignore[union-attr]
            microbatches = [[(self._stand_in + i) % n for i in range(min(2, n))]]
            self._random = (torch.get_rng_state(), random.getstate())
        else:
            self._stand_in = 0
            microbatches = units(f.payload)
        self._units = len(microbatches)
        for s in self._buffers:
            s.old = s.tensor.clone()
        self._indices = [i for m in microbatches for i in m]
        self._hide()
        return microbatches

    def _news(self, f: _link.Frame) -> None:
        news = json.loads(f.payload)
        self.loss, self.peers = news["Loss"], news["Peers"]

    def _applied(self) -> None:
        """Tells the sidecar that the loop has updated the parameters."""
        if self._applying:
            if self._watches and not self._stepped:
                self._watches = False  # said once
                warnings.warn(
                    f"step {self.step}: no parameter was updated after job.backward returned True: call opt.step() each time;"
                    " to accumulate gradients use a larger batch_size",
                    stacklevel=3,
                )
            self._applying, self._updated = False, self.step
            told = {"rate": self._rate, "metrics": {name: x for name, x in self.means.items() if math.isfinite(x)}}
            self._link.send(_link.APPLIED, payload=json.dumps(told).encode())

    def _learning_rate(self) -> float:
        """The learning rate of the first group of the first optimizer; 0 if it is unknown."""
        for s in self.state:
            for group in getattr(s, "param_groups", ()):
                rate = float(group.get("lr", 0))
                return rate if math.isfinite(rate) else 0
        return 0

    def backward(
        self,
        loss: torch.Tensor,
        weight: float | torch.Tensor | None = None,
        means: Mapping[str, float | torch.Tensor] | None = None,
    ) -> bool:
        """Computes the gradients of a loss that is the mean over the samples of this iteration.

        It returns True when each p.grad is the mean over the whole batch of all peers: update the parameters. After
        False more samples of the step follow: continue with the next iteration.

        If the loss is a mean over something else, such as tokens, weight is their number. It may be any number, and 0
        leaves the samples out. All calls have a weight, or none.

        means has numbers that are means over the samples, too, by the names of Job(means=...). After True, Job.means has
        their means over the whole batch, the same at all peers.
        """
        self._link.check()
        if self._indices is None:
            raise Error("job.backward outside of an iteration of the loader, or twice in one: add up the losses, and call it once")
        given = None if weight is None else float(weight)
        if given is not None and not (given == 0 or _LEAST <= given <= _MOST):
            raise Error(f"job.backward with weight={given}: want 0, or a number from 1e-6 to 7e13, such as the number of tokens")
        if given != 0 and not self._replay:
            if self._weighs == (given is None):
                raise Error(_MIXED)
            self._weighs = given is not None
        numbers = self._numbers(means or {})
        indices, self._indices = self._indices, None
        n = len(indices) if given is None else given
        self._check()
        for s in self._params:
            if s.tensor.grad is not None:
                raise Error(f"{s.name} has the gradient of another backward: add up the losses, and call job.backward once")
        for s in self._params:
            s.tensor.grad = s.grad
        if self._replay:
            self._restore(0)
            self._mean()
            return True
        if loss.numel() != 1 or not loss.requires_grad:
            raise Error(
                f"job.backward of a loss of the shape {tuple(loss.shape)}: want the mean loss, a scalar that needs a gradient"
            )
        total = 0.0
        if n:
            self._used.clear()
            try:
                (loss * (n * self._scale)).backward()  # type: ignore[no-untyped-call]
            except (MemoryError, RuntimeError) as e:
                if not _out_of_memory(e) or self._units < 2:
                    raise
                # The sidecar drops what was added, and asks for half as many microbatches at once.
                self._restore(0)
                self._hide()
                self._link.send(_link.DONE, a=-1)
                self._pushed = self._next_or_over()
                return False
            self._add_sums(numbers, n * self._scale)
            total = float(loss.detach()) * n
            if self._scaler is not None:
                total /= self._scaler.get_scale()
            if not math.isfinite(total):
                of = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
                self._strange = f"; the loss here is {float(loss.detach())} for the samples {of} of step {self.step}"
        self._restore(n * self._scale)
        self._link.send(_link.DONE, a=self._waited(), b=total, payload=b"" if given is None else _floats([given]))
        f = self._next_or_over()
        if f.kind == _link.APPLY:
            self._news(f)
            self._mean()
            return True
        self._pushed = f
        self._hide()
        return False

    def _numbers(self, means: Mapping[str, float | torch.Tensor]) -> list[float]:
        """The numbers of a call of backward, in the order of Job.means."""
        if set(means) != set(self.means):
            raise Error(
                f"job.backward has the means {sorted(means)}, and Job has {sorted(self.means)}: pass the same names to both"
            )
        numbers = [float(means[name]) for name in self.means]
        for name, x in zip(self.means, numbers):
            if not (abs(x) < 1e30 or self._replay):
                raise Error(
                    f"job.backward with means={{{name!r}: {x}}}: want a finite number, or call job.skip() for these samples"
                )
        return numbers

    def _add_sums(self, numbers: list[float], factor: float) -> None:
        """Adds to the step what is no gradient: which parameters had one, and numbers."""
        if len(self._used) == len(self._params):
            self._uses.grad.add_(factor)
        else:
            self._uses.grad[sorted(self._used)] += factor
        for s, x in zip(self._sums, numbers):
            s.grad.add_(x * factor)

    def skip(self) -> None:
        """Leaves out the samples of this iteration, in place of backward: `job.skip()`, then `continue`.

        The mean of the step is that of the other samples. If all samples of a step are skipped, at all peers, the step
        updates nothing.
        """
        if self._indices is None:
            raise Error("job.skip outside of an iteration of the loader, or after job.backward: call one of them in each iteration")
        self._indices = None
        self._restore(0)
        if not self._replay:
            self._hide()
            self._link.send(_link.DONE, a=self._waited(), payload=_floats([0]))
            return
        # The loop has to update the parameters, which it does after a backward.
        self._stand_in += 2
        if self._stand_in >= 32:
            raise Error(
                f"step {self.step}: job.skip was called in 16 iterations for the update of the step: all losses are bad;"
                " lower the learning rate, or check the data"
            )
        self._pushed = self._replayed

    def _waited(self) -> int:
        return self._loader.unforeseen() if self._loader is not None else 0

    def _hide(self) -> None:
        """Hides the gradients: zero_grad must not touch what the step needs."""
        for s in self._params:
            s.tensor.grad = None

    def _next_or_over(self) -> _link.Frame:
        f = self._next()
        if self._over:
            raise Error("the training has ended in the middle of a step")
        return f

    def _restore(self, factor: float) -> None:
        """Takes back the changes of the buffers, and adds them times a factor to the step, as gradients."""
        with torch.no_grad():
            for s in self._buffers:
                if factor:
                    s.grad.add_((s.tensor - s.old).to(torch.float32), alpha=factor)
                s.tensor.copy_(s.old)
        if self._replay:
            torch.set_rng_state(self._random[0])
            random.setstate(self._random[1])

    def _mean(self) -> None:
        """The gradients are the mean of the step: updates the buffers. The loop updates the parameters."""
        self._applying, self._rate = True, self._learning_rate()  # before the loop's scheduler changes it
        with torch.no_grad():
            for s in self._buffers:
                s.data.add_(s.grad.round() if s.integer else s.grad)
            self._integers()
        # A parameter that had no gradient at any peer has None, as in one process: optimizers leave it alone.
        if not self._options["Compress"] and torch.count_nonzero(self._uses.grad) < len(self._params):
            for i in (self._uses.grad == 0).nonzero().flatten().tolist():
                self._params[i].tensor.grad = None
        for name, s in zip(self.means, self._sums):
            self.means[name] = float(s.grad)
        self._stepped = False

    def _note_step(self, *_: object) -> None:
        self._stepped = True

    def _check(self) -> None:
        """Raises if the model or the optimizer is not that of Job any more."""
        for home, key, p, trained, name in self._homes:
            if home.get(key) is not p:
                raise Error(f"{name} is no longer in the job's memory: it was replaced; change parameters in place, or before Job")
            if p is not None and p.requires_grad != trained:
                raise Error(
                    f"requires_grad of {name} has changed since Job: set it before Job; to train a part later, give its parameter"
                    " group the learning rate 0 until then"
                )
        for s, address in zip(self._params, self._addresses):
            if s.tensor.data_ptr() != address:
                raise Error(
                    f"{s.name} is no longer in the job's memory: change parameters in place, with p.copy_ under torch.no_grad()"
                )
        if self._groups != [len(g["params"]) for s in self.state for g in getattr(s, "param_groups", ())]:
            raise Error("the parameter groups of the optimizer have changed since Job: make all groups before Job")

    # The end of an epoch.

    def _at_end(self, what: str) -> None:
        self._applied()
        if self._point is None:
            f = self._pushed if self._pushed is not None else None
            if f is None or f.kind != _link.POINT:
                raise Error(f"job.{what} inside an epoch: call it after the loop over the loader, before the next epoch")
            self._pushed = None
            self._reached(f)

    def _reached(self, f: _link.Frame) -> None:
        self._point = json.loads(f.payload)
        self.step, self.rank, self.peers = self._point["Step"], self._point["Rank"], self._point["Ranks"]

    def part(self, dataset: Any, batch_size: int, *, collate_fn: Any = None) -> Iterator[Any]:
        """Batches of this peer's part of a set, for evaluation. All peers together get each sample once."""
        self._at_end("part")
        collate = collate_fn or default_collate
        n = len(dataset)
        done: list[list[int]] = []
        while True:
            flat = [x for r in done for x in r]
            self._link.send(_link.PART, a=n, payload=_words(flat))
            f = self._next_or_over()
            if f.a == 0:
                return
            todo = memoryview(f.payload).cast("q").tolist()
            for first, end in zip(todo[::2], todo[1::2]):
                for lo in range(first, end, batch_size):
                    yield collate(fetch(dataset, range(lo, min(end, lo + batch_size))))
                done = _merged([*done, [first, end]])

    def sum(self, *numbers: Any) -> Any:
        """The sums of numbers over all peers, the same at each peer: one number, or a tuple."""
        self._at_end("sum")
        values = [float(x) for x in numbers]
        sums: list[float] = []
        for i in range(0, len(values), 2):
            self._link.send(_link.SUM, payload=_floats(values[i : i + 2]))
            f = self._next_or_over()
            if f.a == 1:
                warnings.warn("a peer was lost at the end of the evaluation: its part is missing in job.sum", stacklevel=2)
            sums += memoryview(f.payload).cast("d").tolist()
        back = [int(s) if isinstance(x, int) else s for x, s in zip(numbers, sums)]
        return back[0] if len(back) == 1 else tuple(back)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Makes the other peers wait in a with block for something long that uses no processor: `with job.busy("download")`.

        Without it a peer for which the others have waited for half a minute, and which does not compute, is put out.
        """
        self._reasons.append(what)
        self._tell_busy()
        try:
            yield
        finally:
            self._reasons.pop()
            self._tell_busy()

    def _tell_busy(self) -> None:
        if not self._over:
            self._link.send(_link.BUSY, payload="".join(self._reasons[-1:]).encode()[:100])

    def keep(self) -> None:
        """Keeps a copy of the model of this epoch, in place of an earlier one: Job.kept has it after the training.

        All peers must decide alike, by job.sum or job.loss. For a peer that joined later the others decide.
        """
        self._at_end("keep")
        self._keep = True

    def stop(self) -> None:
        """Ends the training after this epoch, at all peers. All peers must decide alike: decide by job.sum or job.loss."""
        self._stop = True


_STOP, _KEEP = 1, 2  # in GOON

_MIXED = "job.backward with weight= in some calls and without it in others: pass weight= in each call, or in none"

_LEAST, _MOST = 2.0**-20, 2.0**46  # bounds of a weight above 0

_NUMBER = "number in text"  # the mark of a number that is packed


def _packed(tree: Any) -> Any:
    """A copy of the tree without numbers that torch.load(weights_only=True) of old versions of torch refuses."""
    if isinstance(tree, Mapping):
        return {k: _packed(v) for k, v in tree.items()}
    if isinstance(tree, float):
        return (_NUMBER, tree.hex())
    if type(tree) is int and not -(1 << 31) <= tree < 1 << 31:
        return (_NUMBER, str(tree))
    if type(tree) in (list, tuple):
        return type(tree)(_packed(v) for v in tree)
    return tree


def _unpacked(tree: Any) -> Any:
    """The tree of which tree is _packed."""
    if isinstance(tree, dict):
        return {k: _unpacked(v) for k, v in tree.items()}
    if isinstance(tree, tuple) and len(tree) == 2 and tree[0] == _NUMBER:
        return int(tree[1]) if tree[1].lstrip("-").isdigit() else float.fromhex(tree[1])
    if type(tree) in (list, tuple):
        return type(tree)(_unpacked(v) for v in tree)
    return tree


def _out_of_memory(e: Exception) -> bool:
    # Versions of torch differ in the type.
    return isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator: " in str(e)


def _plain(name: str) -> str:
    """The name of a tensor without the marks of torch.compile, so that a peer that compiles has the names of one that does not."""
    return name.replace("_orig_mod.", "")


def _bytes(t: torch.Tensor) -> bytes:
    t = t.detach().contiguous()
    return ctypes.string_at(t.data_ptr(), t.numel() * t.element_size())


def _merged(ranges: list[list[int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for first, end in sorted(ranges):
        if merged and merged[-1][1] >= first:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([first, end])
    return merged


def _words(values: list[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _floats(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def _interval(every: int | str | None) -> dict[str, Any]:
    """EverySteps or Every, in seconds, of a number of steps or a text like 10m."""
    if every is None:
        return {}
    if isinstance(every, int):
        return {"EverySteps": every}
    m = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", every)
    if m is None:
        raise Error(f"every={every!r}: want a number of steps, or a time such as '30s', '10m' or '1h'")
    return {"Every": float(m[1]) * {"s": 1, "m": 60, "h": 3600}[m[2]]}


def _canonical(value: Any) -> Any:
    """A copy of containers of which equal ones have equal pickles, which depend on who shares a text or a tuple with whom."""
    if isinstance(value, dict):
        return {_canonical(k): _canonical(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_canonical(v) for v in value)
    return sys.intern(value) if type(value) is str else value


def _compare(own: Any, state: dict[str, Any], step: int) -> None:
    """Raises if an optimizer here has other settings than the others' after the same step."""
    for mine, theirs in zip(getattr(own, "param_groups", ()), state.get("param_groups", ())):
        for name, value in mine.items():
            other = theirs.get(name)
            if isinstance(value, (int, float)) and isinstance(other, (int, float)) and value != other:
                raise Error(
                    f"{name} of {type(own).__name__} was {value:.6g} at this peer and {other:.6g} at others after step {step}: "
                    "decide alike at all peers, by job.loss or job.sum"
                )


def _hyperparameters(optimizers: list[Any]) -> list[list[str]]:
    """The hyperparameters of optimizers, each as a setting of its own, so that an error has only the one that differs."""
    settings = []
    for i, optimizer in enumerate(optimizers):
        name = type(optimizer).__name__ + (f" {i + 1}" if len(optimizers) > 1 else "")
        groups = optimizer.param_groups
        settings.append([f"the number of parameter groups of {name}", str(len(groups))])
        for key in sorted({k for g in groups for k in g} - {"params", "initial_lr"}):
            values = [str(g.get(key)) for g in groups]
            settings.append([f"{key} of {name}", values[0] if len(set(values)) == 1 else ", ".join(values)])
    return settings


def _probe() -> str:
    """Identifies the arithmetic of torch here: peers with other bits are refused in exact mode."""
    g = torch.Generator().manual_seed(1)
    a, b = torch.rand(67, 129, generator=g), torch.rand(129, 71, generator=g)
    c = torch.nn.functional.conv2d(torch.rand(3, 4, 17, 19, generator=g), torch.rand(5, 4, 3, 3, generator=g))
    h = hashlib.sha256()
    for t in (a @ b, c, torch.exp(a).sum(), torch.tanh(a)):
        h.update(_bytes(t))
    return f"{torch.get_num_threads()} threads, {h.hexdigest()[:16]}"
