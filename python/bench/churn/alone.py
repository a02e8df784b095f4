"""Trains one process with several seeds, and prints the loss and the accuracy after each hundred steps as JSON.

python alone.py SEEDS STEPS
"""

import json
import sys

import training
from training import Plan, compute, model, test

training.PACE = 0
results: list[list[tuple[float, float]]] = []
for seed in range(int(sys.argv[1])):
    net, opt = model(seed)
    plan = Plan(seed)
    results.append([])
    for step in range(1, int(sys.argv[2]) + 100):
        opt.zero_grad()
        compute(net, plan.samples(plan.places(step))).backward()  # type: ignore[no-untyped-call]
        opt.step()
        if step % 100 == 0:
            results[seed].append(test(net))
print(json.dumps(results))
