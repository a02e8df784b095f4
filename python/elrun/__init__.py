"""elrun: elastic data-parallel training without a coordinator.

A training script of PyTorch becomes a peer of a job by a few lines (elrun.torch):

    import elrun.torch as elrun

    job = elrun.Job(net, opt)
    loader = job.loader(train, batch_size=512)
    for epoch in job.epochs(3):
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            if not job.backward(loss):
                continue
            opt.step()

``python3 train.py`` is a group of one, and ``elrun -n 4 python3 train.py`` a job of four peers.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("elrun does not run on Windows: install WSL (wsl --install), and elrun and PyTorch in it")

__version__ = "0.2.0"

__all__ = ["Error", "Left", "Lost", "NotFinite", "Quorum", "__version__"]


class Error(RuntimeError):
    """The training cannot go on at this peer. The text says why, and what to do."""


class Lost(Error):
    """The sidecar, which is this program's part of the job, has ended unexpectedly."""


class Quorum(Error):
    """Too few peers were left for too long, so the job has ended."""


class NotFinite(Error):
    """A loss or a gradient was infinite or NaN. The parameters are those before the step."""


class Left(SystemExit):
    """This peer was asked to leave the job. Raised out of the loops of a job, it ends the program with
    status 0, so that nothing after the loops runs with an unfinished model."""

    def __init__(self) -> None:
        super().__init__(0)
