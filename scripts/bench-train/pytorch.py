"""One side of bench-train: trains a network with PyTorch on one thread, as one of RANKS processes that share each batch.

usage: pytorch.py DATA MODEL BATCH STEPS WARM RANKS RANK STORE

DATA is the folder of MNIST, MODEL is mlp or cnn, STORE is a file by which processes meet. After the last step rank 0 prints the medians of the time and of the processor time
of a step in milliseconds, without the first WARM steps, and the loss of the last step.
"""

import gzip
import statistics
import sys
import time

import torch
from torch import nn

data, model, batch, steps, warm, ranks, rank = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:8])
torch.set_num_threads(1)
torch.manual_seed(1)


def load(name, skip):
    """load returns the bytes of a file of MNIST after its header."""
    with gzip.open(f"{data}/{name}.gz") as f:
        return torch.frombuffer(bytearray(f.read()[skip:]), dtype=torch.uint8)


images = load("train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28).float() / 255
labels = load("train-labels-idx1-ubyte", 8).long()
networks = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 8, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(8, 16, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10),
    ),
}
network = networks[model]()
if ranks > 1:
    torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[8], rank=rank, world_size=ranks)
    network = nn.parallel.DistributedDataParallel(network)
rule = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, nesterov=True)
criterion = nn.CrossEntropyLoss()
order = torch.randperm(len(images))
wall, processor, loss = [], [], 0.0
for step in range(steps):
    began, used = time.perf_counter(), time.process_time()
    mine = torch.arange(step * batch + batch * rank // ranks, step * batch + batch * (rank + 1) // ranks)
    chosen = order[mine % len(images)]
    rule.zero_grad()
    result = criterion(network(images[chosen]), labels[chosen])
    result.backward()
    rule.step()
    loss = result.item()
    if step >= warm:
        wall.append(1000 * (time.perf_counter() - began))
        processor.append(1000 * (time.process_time() - used))
if rank == 0:
    print(statistics.median(wall), statistics.median(processor), loss)
if ranks > 1:
    torch.distributed.barrier()  # no rank ends while another one still speaks with it
    torch.distributed.destroy_process_group()
