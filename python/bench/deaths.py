"""Times how long a job of three peers stands still when one of them is killed.

    PYTHONPATH=python python3 python/bench/deaths.py --gigabytes 4 --workers 2

A peer is killed at a random moment of a step, but never the first one; then another one joins, and so on. The time is from
the kill to the first step that the others commit without the dead peer. Each step takes 5 ms, for which the peers sleep.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--kills", type=int, default=30)
parser.add_argument("--gigabytes", type=float, default=0)  # of tensors in each program
parser.add_argument("--workers", type=int, default=0)  # that load data, in each program
parser.add_argument("--pace", type=float, default=0.005)  # seconds of a step
parser.add_argument("--folder", default="")  # of a peer
args = parser.parse_args()

PEERS = 3
PATIENCE = 300


def train() -> None:
    """Trains until the end of the job, and writes the time, the step and the number of peers of each commit."""
    import torch

    import elrun.torch as elrun

    ballast = torch.ones(int(args.gigabytes * (1 << 28)))
    net = torch.nn.Linear(8, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    job = elrun.Job(net, opt, admit="always")
    data = [(torch.ones(8), 0)] * 6400
    loader = job.loader(data, batch_size=48, num_workers=args.workers)
    with open(Path(args.folder) / str(os.getpid()), "w", buffering=1) as log:
        for _ in job.epochs(1 << 20):
            for x, y in loader:
                opt.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(x), y)
                time.sleep(args.pace)
                if job.backward(loss):
                    opt.step()
                    log.write(f"{time.monotonic_ns()} {job.step} {job.peers}\n")
    del ballast


def commits(log: Path) -> list[tuple[int, int, int]]:
    """The commits of a peer: time, step, peers."""
    lines = log.read_text().split("\n")[:-1]
    return [(int(t), int(s), int(n)) for t, s, n in (line.split() for line in lines)]


def complete(folder: Path, since: int, job: subprocess.Popen[bytes]) -> list[Path]:
    """Waits until all peers train together after a time, and returns their logs."""
    deadline = time.monotonic() + PATIENCE
    while True:
        logs = [log for log in folder.iterdir() if Path(f"/proc/{log.name}").exists()]
        last = [c[-1] for c in map(commits, logs) if c]
        if len(last) == PEERS and all(t > since and n == PEERS for t, _, n in last):
            return logs
        if time.monotonic() > deadline or job.poll() is not None:
            raise SystemExit(f"the job has {len(logs)} programs and {len(last)} peers that train, want {PEERS}")
        time.sleep(0.05)


def main() -> None:
    program = [sys.executable, __file__, "--folder"]
    flags = ["--gigabytes", str(args.gigabytes), "--workers", str(args.workers), "--pace", str(args.pace)]
    elrun, name, choose = os.environ.get("ELRUN", "elrun"), f"deaths{os.getpid()}", random.Random(1)
    times: list[float] = []
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        program += [where, *flags]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        job = subprocess.Popen([elrun, "-n", str(PEERS), "--name", name, *program], **quiet)  # type: ignore[call-overload]
        joins = []
        try:
            since, first = time.monotonic_ns(), Path()
            for k in range(args.kills):
                logs = complete(folder, since, job)
                first = first if first in logs else logs[0]  # its launcher runs the benchmark's job to the end
                victim = choose.choice([log for log in logs if log != first])
                time.sleep(0.5 + choose.random() * args.pace)
                begun = time.monotonic_ns()
                os.kill(int(victim.name), signal.SIGKILL)
                time.sleep(1)
                other = next(log for log in logs if log != victim)
                after = next((t for t, _, n in commits(other) if t > begun and n < PEERS), None)
                if after is None:
                    raise SystemExit("a second after the kill no step was committed")
                times.append((after - begun) / 1e6)
                since = time.monotonic_ns()
                if k < args.kills - 1:
                    joins.append(subprocess.Popen([elrun, "join", "-n", "1", "--name", name, *program], **quiet))  # type: ignore[call-overload]
        finally:
            for p in [*joins, job]:
                p.terminate()
                p.wait()
    times.sort()
    print(
        f"{len(times)} kills, {args.gigabytes:g} GB, {args.workers} workers: to the next step {statistics.median(times):.1f} ms,"
        f" 95 % within {times[min(len(times) - 1, int(0.95 * len(times)))]:.1f} ms, at most {times[-1]:.1f} ms"
    )


if args.folder:
    train()
else:
    main()
