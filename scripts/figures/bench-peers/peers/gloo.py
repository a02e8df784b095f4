"""The Gloo program of make bench-peers: torch.distributed.all_reduce of floats.

    MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=lo WORLD_SIZE=2 RANK=0 \
        python3 gloo.py 4:200,67108864:10

The argument lists sizes in bytes with the number of timed calls. Rank 0 prints a JSON
object for each size, with the names that "elrun bench --json" uses. Inputs and checks are
the same as in cmd/elrun/bench. The call is in place, with one tensor as source and
destination. Its time does not include the copy that an out-of-place call needs, which is an
advantage for Gloo.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

PERIOD = 1021
WARMUP = 3


def row(rank, t):
    """The first PERIOD elements of a rank's vector; the others repeat them."""
    return (3 * torch.arange(PERIOD) + 7 * rank + 5 * t).remainder(PERIOD).to(torch.float32)


def split(vector):
    """Split the vector into whole rows and the remaining elements."""
    whole = vector.numel() // PERIOD * PERIOD
    return vector[:whole].view(-1, PERIOD), vector[whole:]


def fill(vector, values):
    """Fill the vector with repetitions of the row."""
    rows, rest = split(vector)
    rows.copy_(values.expand_as(rows))
    rest.copy_(values[: rest.numel()])


def count_wrong(vector, values):
    """Count the elements that differ from the repeated row."""
    rows, rest = split(vector)
    # Compare in pieces, because a whole vector of results would count as memory of this process.
    wrong = int((rest != values[: rest.numel()]).sum())
    for piece in rows.split(256):
        wrong += int((piece != values).sum())
    return wrong


def anonymous():
    """Return the anonymous resident memory of this process, in bytes."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def over_all(number, op):
    """Reduce one number per rank with op."""
    cell = torch.tensor([number], dtype=torch.int64)
    dist.all_reduce(cell, op=op)
    return int(cell)


def measure(size, calls):
    """Measure one size and print it at rank 0."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    vector = torch.empty(max(1, size // 4), dtype=torch.float32)
    took = torch.empty(calls, dtype=torch.float64)
    wrong = 0
    for t in range(WARMUP + calls):
        fill(vector, row(rank, t))
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(vector)
        end = time.perf_counter()
        dist.barrier()
        if t >= WARMUP:
            took[t - WARMUP] = end - begin
        wrong += count_wrong(vector, sum(row(r, t) for r in range(ranks)))
    dist.all_reduce(took, op=dist.ReduceOp.MAX)  # the time of a call is the time of its slowest rank
    wrong = over_all(wrong, dist.ReduceOp.SUM)
    memory = over_all(anonymous(), dist.ReduceOp.MAX)
    if rank == 0:
        result = {"n": ranks, "bytes": size, "iters": calls, "us_min": float(took.min()) * 1e6,
                  "us_p50": float(took.median()) * 1e6, "wrong": wrong, "rss_anon": memory}
        print(json.dumps(result), flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for item in sys.argv[1].split(","):
        size, calls = item.split(":")
        measure(int(size), int(calls))
    dist.barrier()  # a rank that leaves early closes connections that other ranks still use


main()
