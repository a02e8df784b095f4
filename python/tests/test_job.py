"""Calls of a Job in one process, which is a group of its own: right ones, and mistakes that get an error with the cure."""

from __future__ import annotations

import gc
import io
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn as nn
from torch.utils.data import IterableDataset

import elrun.torch as elrun


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


data = [(torch.full((3,), float(i)), i % 2) for i in range(20)]


class Training:
    """A job with its parts."""

    def __init__(self, model: nn.Module | None = None, optimizer: Any = torch.optim.SGD) -> None:
        self.model = net() if model is None else model
        self.opt = optimizer(self.model.parameters(), lr=0.01)
        self.job = elrun.Job(self.model, self.opt)
        self.loader = self.job.loader(data, batch_size=8)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.opt.zero_grad()
        if self.job.backward(nn.functional.cross_entropy(self.model(x), y)):
            self.opt.step()


@pytest.fixture
def t() -> Iterator[Training]:
    training = Training()
    yield training
    training.job._link.close("the test is over")


def test_a_plain_loop_has_the_same_weights(t: Training) -> None:
    seen = []
    for _ in t.job.epochs(2):
        for x, y in t.loader:
            seen.append((x, y))
            t.step(x, y)
    plain = net()
    opt = torch.optim.SGD(plain.parameters(), lr=0.01)
    for x, y in seen:
        opt.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()
        opt.step()
    assert sorted(int(v) for x, _ in seen[:3] for v in x[:, 0]) == list(range(20))
    for a, b in zip(plain.parameters(), t.model.parameters()):
        assert torch.allclose(a, b, atol=1e-6)
    assert t.job.result is not None and t.job.result["Steps"] == 6


def test_buffers_are_those_of_a_plain_loop() -> None:
    torch.manual_seed(0)
    t = Training(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    opt = torch.optim.SGD(plain.parameters(), lr=0.01)
    for _ in t.job.epochs(1):
        for x, y in t.loader:
            t.step(x, y)
            opt.zero_grad()
            nn.functional.cross_entropy(plain(x), y).backward()
            opt.step()
    for (name, a), b in zip(plain.state_dict().items(), t.model.state_dict().values()):
        assert torch.allclose(a, b, atol=1e-5), name
    assert int(t.model[1].num_batches_tracked) == 3  # type: ignore[union-attr,index]


def test_evaluation_has_each_sample_once(t: Training) -> None:
    for _ in t.job.epochs(1):
        for x, y in t.loader:
            t.step(x, y)
        got = [int(v) for x, _ in t.job.part(data, batch_size=3) for v in x[:, 0]]
        assert got == list(range(20))
        assert t.job.sum(3, 0.5, 7) == (3, 0.5, 7)
        assert isinstance(t.job.sum(3), int)


def test_a_kept_model(t: Training) -> None:
    want = {}
    for epoch in t.job.epochs(3):
        for x, y in t.loader:
            t.step(x, y)
        if epoch == 1:
            t.job.keep()
            want = {name: v.clone() for name, v in t.model.state_dict().items()}
    assert t.job.kept is not None and t.job.kept.keys() == want.keys()
    for name, v in want.items():
        assert torch.equal(t.job.kept[name], v)
        assert not torch.equal(t.model.state_dict()[name], v)
    t.model.load_state_dict(t.job.kept)


def refused(text: str) -> Any:
    return pytest.raises(elrun.Error, match=text)


def test_backward_out_of_place(t: Training) -> None:
    with refused("outside of an iteration"):
        t.job.backward(torch.zeros(()))
    with refused("outside of an iteration of the loader, or twice"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.step(x, y)
                t.step(x, y)


def test_batch_without_backward(t: Training) -> None:
    with refused("did not call job.backward.*job.skip"):
        for _ in t.job.epochs(1):
            for _ in t.loader:
                continue


def tokens(x: torch.Tensor) -> torch.Tensor:
    """The number of tokens of each sample of a batch; some have none."""
    return x[:, 0].long() * 7 % 5


def token_loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean loss over the tokens of a batch."""
    losses = nn.functional.cross_entropy(model(x), y, reduction="none")
    return (losses * tokens(x)).sum() / tokens(x).sum()


@pytest.mark.parametrize("exact", [False, True])
def test_weights_are_those_of_the_whole_batch(exact: bool) -> None:
    # In exact mode a call has three samples of eight, and the step the mean over the tokens of all.
    model, threads = net(), torch.get_num_threads()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    job = elrun.Job(model, opt, exact=exact)
    losses, steps = [], []
    batch: list[Any] = []
    for _ in job.epochs(2) if (loader := job.loader(data, batch_size=8, microbatch=3)) else ():
        for x, y in loader:
            batch += zip(x, y)
            opt.zero_grad()
            if not job.backward(token_loss(model, x, y), weight=tokens(x).sum()):
                continue
            opt.step()
            losses.append(job.loss)
            steps.append(batch)
            batch = []
    torch.set_num_threads(threads)
    plain = net()
    opt = torch.optim.SGD(plain.parameters(), lr=0.01)
    # In the first step of exact mode a part may be computed twice.
    for batch, got in zip(steps, losses):
        both = list({int(x[0]): (x, y) for x, y in batch}.values())
        x, y = torch.stack([x for x, _ in both]), torch.stack([torch.as_tensor(y) for _, y in both])
        opt.zero_grad()
        loss = token_loss(plain, x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        opt.step()
        assert abs(float(loss.detach()) - got) < 1e-5
    for a, b in zip(plain.parameters(), model.parameters()):
        assert torch.allclose(a, b, atol=1e-5)


class Branches(nn.Module):
    """A model of which a part gets no gradient for some samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.always, self.rarely, self.never = nn.Linear(3, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.always(x)
        return self.rarely(y) if (x == 3).any() else y


@pytest.mark.parametrize("exact", [False, True])
def test_parameters_without_a_gradient(exact: bool) -> None:
    # AdamW decays a parameter whose gradient is zero, and leaves one alone that has none.
    model, threads = Branches(), torch.get_num_threads()
    opt = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    job = elrun.Job(model, opt, exact=exact)
    loader = job.loader(data, batch_size=8, microbatch=8)
    plain = Branches()
    adam = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    used, updated = set(), 0
    for _ in job.epochs(2):
        for x, y in loader:
            opt.zero_grad()
            if not job.backward(nn.functional.cross_entropy(model(x), y)):
                continue
            opt.step()
            adam.zero_grad()
            nn.functional.cross_entropy(plain(x), y).backward()  # type: ignore[no-untyped-call]
            adam.step()
            updated += 1
            used |= {(name, p.grad is not None) for name, p in model.named_parameters()}
    torch.set_num_threads(threads)
    assert updated == 6
    assert {(name[:5], some) for name, some in used} == {("alway", True), ("rarel", True), ("rarel", False), ("never", False)}
    for a, b in zip(plain.parameters(), model.parameters()):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("weighed", [False, True])
def test_means(weighed: bool) -> None:
    model, threads = net(), torch.get_num_threads()
    job = elrun.Job(model, exact=True, means=["first", "second"])
    sums: list[float] = []
    for _ in job.epochs(1) if (loader := job.loader(data[:16], batch_size=16, microbatch=4)) else ():
        for x, y in loader:
            w = tokens(x) if weighed else torch.ones(len(x))
            first = (x[:, 0] * w).sum() / w.sum()
            loss = nn.functional.cross_entropy(model(x), y)
            if job.backward(loss, weight=w.sum() if weighed else None, means={"first": first, "second": -1e9}):
                sums.append(job.means["first"])
                assert job.means["second"] == pytest.approx(-1e9)
    torch.set_num_threads(threads)
    everything = torch.stack([x for x, _ in data[:16]])
    w = tokens(everything) if weighed else torch.ones(16)
    assert sums == [pytest.approx(float((everything[:, 0] * w).sum() / w.sum()), rel=1e-4)]


def test_a_newcomer_knows_the_means() -> None:
    job, other = (elrun.Job(net(), means=["accuracy"]) for _ in range(2))
    job.loss, job.means["accuracy"] = 0.5, 0.75
    b = io.BytesIO()
    torch.save(elrun._packed(job._saved()), b)
    other._load(b.getvalue())
    assert (other.loss, other.means) == (0.5, {"accuracy": 0.75})


def test_means_refused(t: Training) -> None:
    with refused("want a list of names"):
        elrun.Job(net(), means="accuracy")
    with refused("leave one of them out"):
        elrun.Job(net(), means=["accuracy"], compress="int8")
    job = elrun.Job(net(), means=["accuracy"])
    for means, text in (
        ({}, r"has the means \[\], and Job has \['accuracy'\]"),
        ({"accuracy": float("nan")}, "want a finite number"),
    ):
        with refused(text):
            for _ in t.job.epochs(1):
                for x, y in t.loader:
                    t.job.means = job.means
                    t.job.backward(nn.functional.cross_entropy(t.model(x), y), means=means)
        t = Training()


def test_a_bound_of_the_samples_of_a_call() -> None:
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    job = elrun.Job(model, opt)
    loader = job.loader(data, batch_size=20, microbatch=2, max_samples=8)
    plain, sizes = net(), []
    for _ in job.epochs(2):
        for x, y in loader:
            sizes.append(len(x))
            opt.zero_grad()
            if job.backward(nn.functional.cross_entropy(model(x), y)):
                opt.step()
    assert sorted(sizes) == [4, 4, 8, 8, 8, 8]
    sgd = torch.optim.SGD(plain.parameters(), lr=0.01)
    x, y = torch.stack([x for x, _ in data]), torch.tensor([y for _, y in data])
    for _ in range(2):
        sgd.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()  # type: ignore[no-untyped-call]
        sgd.step()
    for a, b in zip(plain.parameters(), model.parameters()):
        assert torch.allclose(a, b, atol=1e-6)
    with refused("less than a microbatch"):
        elrun.Job(net()).loader(data, batch_size=20, max_samples=8)


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this PyTorch has no GradScaler for the CPU")
def test_a_scaler_leaves_out_a_step() -> None:
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    job = elrun.Job(model, opt, scaler)
    before = None
    for _ in job.epochs(1) if (loader := job.loader(data, batch_size=8)) else ():
        for x, y in loader:
            opt.zero_grad()
            out = model(x)
            if job.step == 2:
                before = model.weight.detach().clone()  # type: ignore[operator,union-attr]
                out.register_hook(lambda g: g * float("inf"))
            loss = nn.functional.cross_entropy(out, y)
            if job.backward(scaler.scale(loss)):
                scaler.unscale_(opt)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                assert abs(job.loss - float(loss.detach())) < 1e-4
                assert torch.equal(before, model.weight) == (job.step == 2) if before is not None else job.step == 1  # type: ignore[arg-type]
    assert scaler.get_scale() == 512
    with refused("GradScaler with exact"):
        elrun.Job(net(), scaler, exact=True)


def test_skipped_samples(t: Training) -> None:
    # Step 2 is skipped as a whole; a skip in the iteration for an update gets other samples for it.
    before = None
    for _ in t.job.epochs(1):
        for x, y in t.loader:
            if t.job.step == 2:
                before = t.model.weight.detach().clone()  # type: ignore[operator,union-attr]
                t.job.skip()
                continue
            if t.job.step == 3:
                assert before is not None and torch.equal(before, t.model.weight)  # type: ignore[arg-type]
            t.step(x, y)
    assert t.job.result is not None and t.job.result["Steps"] == 3
    assert not torch.equal(before, t.model.weight)  # type: ignore[arg-type]


def test_a_weight_in_some_calls(t: Training) -> None:
    with refused("weight= in some calls"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                loss = nn.functional.cross_entropy(t.model(x), y)
                if t.job.backward(loss, weight=3 if t.job.step == 1 else 0 if t.job.step == 2 else None):
                    t.opt.step()


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), 1e-9])
def test_weights_refused(t: Training, weight: float) -> None:
    with refused("want 0, or a number"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.job.backward(nn.functional.cross_entropy(t.model(x), y), weight=weight)


def test_a_loop_that_is_left(t: Training) -> None:
    with refused("left before its end"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.step(x, y)
                break


def test_sum_inside_an_epoch(t: Training) -> None:
    with refused("inside an epoch"):
        for _ in t.job.epochs(1):
            for _ in t.loader:
                t.job.sum(1)


def test_loader_out_of_place(t: Training) -> None:
    with refused("outside of job.epochs"):
        next(iter(t.loader))
    with refused("twice"):
        t.job.loader(data, batch_size=8)
    with refused("at least 1"):
        next(t.job.epochs(0))


def test_a_loss_that_is_no_mean(t: Training) -> None:
    with refused("want the mean loss"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.job.backward(nn.functional.cross_entropy(t.model(x), y, reduction="none"))


def test_a_parameter_that_is_replaced(t: Training) -> None:
    with refused("weight is no longer in the job's memory"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.step(x, y)
                t.model.weight.data = t.model.weight.data.clone()  # type: ignore[union-attr,operator]


def test_a_parameter_that_is_assigned(t: Training) -> None:
    with refused("weight is no longer in the job's memory: it was replaced"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.step(x, y)
                t.model.weight = nn.Parameter(t.model.weight.detach().clone())  # type: ignore[union-attr,operator]


def test_a_parameter_that_is_frozen_later(t: Training) -> None:
    with refused("requires_grad of bias has changed since Job"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.step(x, y)
                t.model.bias.requires_grad_(False)  # type: ignore[union-attr,operator]


def test_groups_that_are_added(t: Training) -> None:
    with refused("parameter groups of the optimizer have changed since Job"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.step(x, y)
                if t.job.step == 2:
                    t.opt.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})


def test_a_parameter_without_elements() -> None:
    model = net()
    model.none = nn.Parameter(torch.zeros(0, 3))
    t = Training(model)
    for _ in t.job.epochs(1):
        for x, y in t.loader:
            t.step(x, y)
    assert t.job.result is not None


@pytest.mark.parametrize("none", [True, False])
def test_another_backward(t: Training, none: bool) -> None:
    with refused("weight has the gradient of another backward: add up the losses"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.opt.zero_grad(set_to_none=none)
                loss = nn.functional.cross_entropy(t.model(x), y)
                if t.job.step == 2:
                    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
                if t.job.backward(loss):
                    t.opt.step()


def test_a_loop_without_updates(t: Training) -> None:
    with pytest.warns(UserWarning, match="step 2: no parameter was updated"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                if t.job.backward(nn.functional.cross_entropy(t.model(x), y)) and t.job.step % 2:
                    t.opt.step()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fused", [True, False])
def test_updates_are_seen(fused: bool) -> None:
    t = Training(optimizer=lambda p, lr: torch.optim.AdamW(p, lr=lr, fused=fused, foreach=not fused))
    for _ in t.job.epochs(1):
        for x, y in t.loader:
            t.step(x, y)


def test_batch_norm_of_one_sample() -> None:
    normed = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    with refused("a microbatch of a step would have 1 sample.*: use microbatch=4"):  # 7 and 6 samples
        elrun.Job(normed).loader(data, batch_size=7, microbatch=3)
    with refused("last step of an epoch has 1 sample"):
        elrun.Job(normed).loader(data, batch_size=19)
    elrun.Job(normed).loader(data, batch_size=7, microbatch=4)


def test_a_compiled_model_has_the_names_of_the_plain_one() -> None:
    model = torch.compile(net(), backend="eager")
    t = Training(model)  # type: ignore[arg-type]
    assert [s.name for s in t.job._slots] == ["weight", "bias", "elrun.used"]
    for _ in t.job.epochs(1):
        for x, y in t.loader:
            t.step(x, y)


class Greedy(torch.autograd.Function):
    """Fails in backward with more than four samples."""

    error: Exception

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        if len(grad) > 4:
            raise Greedy.error
        return grad


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: ...")],
)
def test_too_little_memory_for_backward(error: Exception) -> None:
    Greedy.error = error
    model, plain = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.0), nn.Linear(4, 2)).eval() for _ in range(2))
    plain.load_state_dict(model.state_dict())
    opt, opt_plain = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, plain))
    job = elrun.Job(model, opt)
    loader = job.loader(data, batch_size=8, microbatch=2)
    batch: list[Any] = []
    for _ in job.epochs(2):
        for x, y in loader:
            opt.zero_grad()
            # The end of the model computes its gradient before the memory is too little.
            out = model[2](Greedy.apply(model[1](model[0](x))))
            batch += zip(x, y)
            if not job.backward(nn.functional.cross_entropy(out, y)):
                if len(x) > 4:
                    batch = []
                continue
            opt.step()
            opt_plain.zero_grad()
            nn.functional.cross_entropy(plain(torch.stack([x for x, _ in batch])), torch.stack([y for _, y in batch])).backward()
            opt_plain.step()
            batch = []
    for a, b in zip(model.parameters(), plain.parameters()):
        assert torch.allclose(a, b, atol=1e-5)
    assert job.result is not None and job.result["Steps"] == 6


def test_a_microbatch_that_does_not_fit() -> None:
    Greedy.error = MemoryError()
    model = net()
    job = elrun.Job(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(MemoryError):
        for _ in job.epochs(1) if (loader := job.loader(data, batch_size=8, microbatch=8)) else ():
            for x, y in loader:
                job.backward(nn.functional.cross_entropy(Greedy.apply(model(x)), y))
    job._link.close("the test is over")


def test_a_loss_that_is_not_finite(t: Training) -> None:
    before = None
    with pytest.raises(elrun.NotFinite, match=r"is nan for the samples \d+, .* of step 2"):
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                if t.job.step == 2:
                    before = t.model.weight.detach().clone()  # type: ignore[operator,union-attr]
                    x = x * float("inf")
                t.step(x, y)
    assert before is not None and torch.equal(before, t.model.weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (nn.Linear(3, 2).double(), "float64"),
        (nn.Linear(3, 2).half(), "float16"),
        (nn.Linear(3, 2).requires_grad_(False), "no parameters to train"),
    ],
)
def test_models_refused(model: nn.Module, text: str) -> None:
    with refused(text):
        elrun.Job(model)


def test_arguments_refused() -> None:
    model = net()
    with refused("LBFGS"):
        elrun.Job(model, torch.optim.LBFGS(model.parameters()))
    sparse = nn.Embedding(5, 3, sparse=True)
    with refused("SparseAdam takes sparse gradients only"):
        elrun.Job(sparse, torch.optim.SparseAdam(list(sparse.parameters())))
    with refused("no state_dict"):
        elrun.Job(model, 3)
    with refused("every="):
        elrun.Job(model, checkpoint="x", every="soon")

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter([1])

    with refused("IterableDataset"):
        elrun.Job(model).loader(Stream(), batch_size=4)


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_a_state_is_no_code(t: Training, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    b = io.BytesIO()
    torch.save({"state": [Evil()], "rest": []}, b)
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        t.job._load(b.getvalue())
    assert not (tmp_path / "evil").exists()


def test_a_state_comes_back() -> None:
    state = {
        "lr": 0.1,
        3: [float("inf"), -1e-300, (1, 2.5), None, True],
        "n": 1 << 40,
        "less": -(1 << 40),
        "t": torch.ones(2),
        "s": "x",
    }
    b = io.BytesIO()
    torch.save(elrun._packed(state), b)
    back = elrun._unpacked(torch.load(io.BytesIO(b.getvalue()), weights_only=True))
    assert torch.equal(back.pop("t"), state.pop("t"))  # type: ignore[arg-type]
    assert back == state


def test_hyperparameters_are_settings() -> None:
    a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    settings = dict(elrun._hyperparameters([torch.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1)]))
    assert settings["lr of SGD"] == "0.1, 0.5" and settings["momentum of SGD"] == "0"
    assert settings["the number of parameter groups of SGD"] == "2"
    assert len(elrun._hyperparameters([torch.optim.SGD([a], lr=0.1), torch.optim.SGD([b], lr=0.1)])) == 2 * (len(settings))


def test_a_child_has_no_job(t: Training) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            t.job.backward(torch.zeros(()))
        except elrun.Error as e:
            os.write(write, str(e).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert b"child of the job's program" in os.read(read, 1000)
    os.close(read)
    os.close(write)
    for _ in t.job.epochs(1):  # the parent goes on
        for x, y in t.loader:
            t.step(x, y)


def test_many_jobs_leave_nothing() -> None:
    def one() -> tuple[int, int]:
        t = Training()
        assert threading.active_count() == before  # a fork beside threads warns
        for _ in t.job.epochs(1):
            for x, y in t.loader:
                t.step(x, y)
        del t  # a job and its loader refer to each other
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    handler, before = signal.getsignal(signal.SIGTERM), threading.active_count()
    first = one()
    assert {one() for _ in range(5)} == {first}
    assert signal.getsignal(signal.SIGTERM) == handler


def test_busy_in_an_iteration_and_before(t: Training) -> None:
    with t.job.busy("before"):
        pass
    for _ in t.job.epochs(1):
        for x, y in t.loader:
            with t.job.busy("download"), t.job.busy("unpack"):
                pass
            t.step(x, y)
        with t.job.busy("evaluation"):
            pass
    with t.job.busy("after the end"):
        pass
