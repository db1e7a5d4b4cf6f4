#!/usr/bin/env python3
"""Averages of weights by torchvision's rule, for golden.averages.

    averages.py OUT            writes tests/golden/classification/averages.json

The loop of torchvision's references/classification/train.py with torch.optim.swa_utils.AveragedModel, in float64: the
weight of step t is cos(0.7 t), and `average` is the average after every step of every epoch.
"""

import json
import math
import sys

import torch
from torch.optim.swa_utils import AveragedModel

CASES = [  # decay, every, warm-up, epochs, batch of a rank, ranks, steps of an epoch
    (0.99998, 32, 5, 600, 128, 8, 70),
    (0.99998, 32, 0, 600, 128, 8, 70),
    (0.9, 1, 1, 8, 4, 1, 5),
    (0.9, 3, 2, 8, 2, 2, 7),
    (0.5, 2, 3, 3, 2, 1, 5),
]


class Averages(AveragedModel):
    """torchvision's ExponentialMovingAverage."""

    def __init__(self, model, decay):
        super().__init__(model, "cpu", lambda average, value, _: decay * average + (1 - decay) * value, use_buffers=True)


def case(decay, every, warmup, epochs, batch, ranks, steps):
    model = torch.nn.Linear(1, 1, bias=False).double()
    adjust = ranks * batch * every / epochs
    average = Averages(model, decay=1.0 - min(1.0, (1.0 - decay) * adjust))
    trained, out = min(epochs, warmup + 3), []
    for epoch in range(trained):
        for i in range(steps):
            with torch.no_grad():
                model.weight.fill_(math.cos(0.7 * (epoch * steps + i)))
            if i % every == 0:
                average.update_parameters(model)
                if epoch < warmup:
                    average.n_averaged.fill_(0)
            out.append(average.module.weight.item())
    return dict(decay=decay, every=every, warmup=warmup, epochs=epochs, step_images=batch * ranks, steps=steps, average=out)


def main():
    with open(sys.argv[1], "w") as file:
        json.dump(dict(torch=torch.__version__.split("+")[0], cases=[case(*c) for c in CASES]), file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
