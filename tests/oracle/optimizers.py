#!/usr/bin/env python3
"""Makes tests/golden/optimizers: five steps of Adam, AdamW and LAMB on a small state.

    optimizers.py [--out tests/golden/optimizers]
    optimizers.py --check      make them again in memory and compare with the files that are there

PyTorch and timm in float64 from the start and the gradients of fill.py; results are stored as float32 after the
first and the last step.  Groups are those of the reference program: parameters with `bn` in their name are not
decayed.  The format is that of tests/golden/classification/optimizers.json, with betas, eps and the optimizer's name.
"""

import argparse
import json
import os
import sys

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from timm.optim import Lamb

import fill

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "golden", "optimizers")
PREFIX = "optimizers."
SHAPES = {"conv1.weight": (6, 3, 3, 3), "bn1.weight": (6,), "bn1.bias": (6,), "fc.weight": (10, 33), "fc.bias": (10,)}
RATES = [0.05, 0.1, 0.1, 0.02, 0.01]
STORED = [0, 4]
NAMES = {"exp_avg": ".exp_avg", "exp_avg_sq": ".exp_avg_sq"}

RUNS = [
    dict(name="adam", optimizer="adam", beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0),
    dict(name="adam-decay", optimizer="adam", beta1=0.8, beta2=0.99, eps=1e-3, weight_decay=0.1),
    dict(name="adamw", optimizer="adamw", beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01),
    dict(name="adamw-decay", optimizer="adamw", beta1=0.5, beta2=0.9, eps=0.1, weight_decay=0.3),
    dict(name="lamb", optimizer="lamb", beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.02),
    dict(name="lamb-plain", optimizer="lamb", beta1=0.9, beta2=0.99, eps=1e-3, weight_decay=0.0),
]


def drawn(name, shape):
    n = int(np.prod(shape))
    return torch.from_numpy((2 * fill.uniform(PREFIX + name, n) - 1).astype(np.float32).astype(np.float64).reshape(shape))


def optimizer(run, groups):
    betas = (run["beta1"], run["beta2"])
    if run["optimizer"] == "lamb":
        return Lamb(groups, lr=1, betas=betas, eps=run["eps"], max_grad_norm=None)
    kind = torch.optim.AdamW if run["optimizer"] == "adamw" else torch.optim.Adam
    return kind(groups, lr=1, betas=betas, eps=run["eps"])


def run_all():
    runs, tensors = [], {}
    for run in RUNS:
        params = {n: torch.nn.Parameter(drawn(f"opt.start.{n}", s)) for n, s in SHAPES.items()}
        groups = [{"weight_decay": 0.0, "params": [n for n in SHAPES if "bn" in n]},
                  {"weight_decay": run["weight_decay"], "params": [n for n in SHAPES if "bn" not in n]}]
        opt = optimizer(run, [dict(g, params=[params[n] for n in g["params"]]) for g in groups])
        for step, lr in enumerate(RATES):
            for group in opt.param_groups:
                group["lr"] = lr
            for name, p in params.items():
                p.grad = drawn(f"opt.grad.{step}.{name}", SHAPES[name])
            opt.step()
            for name, p in params.items() if step in STORED else ():
                tensors[f"{run['name']}.{step}.{name}"] = p.detach().numpy().astype(np.float32)
                for key, tail in NAMES.items():
                    tensors[f"{run['name']}.{step}.{name}{tail}"] = opt.state[p][key].numpy().astype(np.float32)
        runs.append(dict(run, groups=groups))
    return {"prefix": PREFIX, "lr": RATES, "stored_after": STORED, "runs": runs}, tensors


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", default=OUT)
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    doc, tensors = run_all()
    text = json.dumps(doc, indent=1) + "\n"
    paths = [os.path.join(o.out, f"optimizers.{e}") for e in ("json", "safetensors")]
    if not o.check:
        os.makedirs(o.out, exist_ok=True)
        with open(paths[0], "w", encoding="utf-8") as f:
            f.write(text)
        save_file(tensors, paths[1])
        return
    there = load_file(paths[1])
    worst = max(float(np.abs(there[n] - t).max()) for n, t in tensors.items()) if there.keys() == tensors.keys() else 1
    with open(paths[0], encoding="utf-8") as f:
        same = f.read() == text
    print(f"{len(tensors)} tensors, largest difference {worst:.1e}, index {'the same' if same else 'differs'}")
    sys.exit(0 if same and worst < 1e-6 else 1)


if __name__ == "__main__":
    main()
