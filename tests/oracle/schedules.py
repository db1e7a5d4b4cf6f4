#!/usr/bin/env python3
"""Learning rates of PyTorch's schedulers and of timm's cosine, for golden.lr_pytorch.

    schedules.py OUT            writes tests/golden/lr_pytorch.json

Each curve has the members of td_lr_curve or td_lr_cycle in JSON, and `lr`: the rate of every epoch, or of every
step of one cycle.
"""

import json
import sys

import torch
from timm.scheduler import CosineLRScheduler
from torch.optim import lr_scheduler as schedulers

LR = 0.4
BASE, MOST = 0.85, 0.95  # momentum of one cycle


def rates(make, n):
    """The rates of n steps of the scheduler that `make` builds on an optimiser."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], LR)
    scheduler = make(optimizer)
    out = []
    for _ in range(n):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return out


def warmed(optimizer, main, warmup, start, form):
    """Torchvision's references: a warm-up, and then the main scheduler."""
    if form == "linear":
        first = schedulers.LinearLR(optimizer, start_factor=start / LR, total_iters=warmup)
    else:
        first = schedulers.ConstantLR(optimizer, factor=start / LR, total_iters=warmup)
    return schedulers.SequentialLR(optimizer, schedulers=[first, main], milestones=[warmup])


def curves():
    epochs, warmup = 60, 5
    rest = epochs - warmup
    mains = {
        "cosine": (dict(end=0.001), lambda o: schedulers.CosineAnnealingLR(o, T_max=rest, eta_min=0.001)),
        "step": (dict(drops="10,30,45", decay=0.2),
                 lambda o: schedulers.MultiStepLR(o, milestones=[10 - warmup, 30 - warmup, 45 - warmup], gamma=0.2)),
        "exponential": (dict(decay=0.7, decay_epochs=7), lambda o: schedulers.StepLR(o, step_size=7, gamma=0.7)),
        "polynomial": (dict(power=0.9), lambda o: schedulers.PolynomialLR(o, total_iters=rest, power=0.9)),
    }
    for name, (members, main) in mains.items():
        for form in "linear", "constant":
            def make(optimizer):
                return warmed(optimizer, main(optimizer), warmup, 0.01, form)
            yield dict(schedule=name, epochs=epochs, warmup=warmup, warmup_start=0.01, warmup_form=form, peak=LR,
                       **members, lr=rates(make, epochs))


def timm_curve(epochs, warmup, start, end):
    """timm's cosine, which counts the epochs of its warm-up."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], LR)
    scheduler = CosineLRScheduler(optimizer, t_initial=epochs, lr_min=end, warmup_t=warmup, warmup_lr_init=start)
    out = []
    for epoch in range(epochs):
        out.append(optimizer.param_groups[0]["lr"])
        scheduler.step(epoch + 1)
    return dict(schedule="cosine", epochs=epochs, warmup=warmup, warmup_start=start, warmup_form="linear", peak=LR, end=end,
                counts_warmup=True, lr=out)


def cycle(form, steps, start, div, end_div):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], LR, momentum=0.9)
    scheduler = schedulers.OneCycleLR(optimizer, max_lr=LR, total_steps=steps, pct_start=start, div_factor=div,
                                      final_div_factor=end_div, anneal_strategy=form, base_momentum=BASE, max_momentum=MOST)
    out, momentum = [], []
    for i in range(steps):
        out.append(optimizer.param_groups[0]["lr"])
        momentum.append(optimizer.param_groups[0]["momentum"])
        if i + 1 < steps:
            optimizer.step()
            scheduler.step()
    return dict(form=form, steps=steps, start=start, div=div, end_div=end_div, peak=LR, lr=out, base=BASE, most=MOST,
                momentum=momentum)


def main():
    cases = [(form, *case) for form in ("cos", "linear")
             for case in ((100, 0.3, 25, 1e4), (37, 0.25, 10, 100), (50, 0.0, 25, 1e4), (20, 1.0, 25, 1e4))]
    out = dict(torch=torch.__version__.split("+")[0], curves=[*curves(), timm_curve(100, 5, 1e-4, 1e-6), timm_curve(12, 3, 0.01, 0)], cycles=[cycle(*case) for case in cases])
    with open(sys.argv[1], "w") as file:
        json.dump(out, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
