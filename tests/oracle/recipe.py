#!/usr/bin/env python3
"""Tandem against PyTorch, the whole recipe: twenty optimiser steps, float32.

    recipe.py --tandem build/tandem                       resnet18 and resnet50 at 64, every optimiser
    recipe.py --tandem build/tandem --arch resnet18
    recipe.py --tandem build/tandem --arch resnet50 --run sgd --lr 0.016 --prefix recipe1.

Mixup with given coefficients and permutations, label smoothing 0.1, four batches accumulated to a step
across ends of epochs, Nesterov momentum, cosine with warm-up, weight decay but for names with `bn`, averages
of weights and statistics after every batch, or by torchvision's rule.  PyTorch does what the reference
program does, in float64 from the same float32 start; its own float32 is judged by the same measure and
printed beside (`torch`).  A tensor's error is the largest difference over its largest entry.  Exit status
1 if any check fails.
"""

import argparse
import math
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import save_file
from timm.optim import Lamb

import fill
import nets
from networks import Judge, Tandem, network, numpy_of, statistics, worst, write_start

# 18 batches of four are an epoch: no multiple of ACC, so steps lie across its end.
BATCH, ROWS, ACC, STEPS, EPOCHS, WARMUP = 4, 72, 4, 20, 8, 2
CLASSES, SIZE, SMOOTHING, DECAY, EMA = 10, 64, 0.1, 1.0 / 32768, 0.99
PER_EPOCH = ROWS // BATCH
LIMIT = 1e-3

RUNS = {
    "sgd": dict(optimizer="sgd", lr=0.05, momentum=0.875, nesterov=True, mode="batch"),
    "rmsprop": dict(optimizer="rmsprop", lr=0.001, momentum=0.9, nesterov=False, mode="batch"),
    "adam": dict(optimizer="adam", lr=0.001, mode="batch", decay=0.001),
    "adamw": dict(optimizer="adamw", lr=0.001, mode="batch", decay=0.1),
    "adamw, scaled, clipped": dict(optimizer="adamw", lr=0.001, mode="batch", decay=0.1, scale=1024, norm=0.5),
    "sgd, clipped": dict(optimizer="sgd", lr=0.05, momentum=0.875, nesterov=False, mode="batch", norm=0.5),
    "sgd, values clipped": dict(optimizer="sgd", lr=0.05, momentum=0.9, nesterov=False, mode="batch", value=0.01, scale=64),
    "bce": dict(optimizer="sgd", lr=0.5, momentum=0.9, nesterov=False, mode="batch", loss="bce"),
    "bce, threshold": dict(optimizer="adamw", lr=0.001, mode="batch", decay=0.1, loss="bce", threshold=0.2),
    "class weights": dict(optimizer="sgd", lr=0.05, momentum=0.9, nesterov=False, mode="batch",
                          weights=[0.5 + 0.1 * k for k in range(CLASSES)]),
    "lamb": dict(optimizer="lamb", lr=0.001, mode="batch", decay=0.05),
    "sgd, one cycle": dict(optimizer="sgd", lr=0.05, momentum=0.9, nesterov=True, mode="batch", cycle="cos"),
    "adamw, one cycle": dict(optimizer="adamw", lr=0.001, mode="batch", decay=0.1, cycle="linear"),
    "rmsprop, one cycle": dict(optimizer="rmsprop", lr=0.001, momentum=0.9, nesterov=False, mode="batch", cycle="cos"),
    "lamb, one cycle": dict(optimizer="lamb", lr=0.001, mode="batch", decay=0.05, cycle="cos"),
    "sgd, torchvision's averages": dict(optimizer="sgd", lr=0.05, momentum=0.9, nesterov=False, mode="batch", every=2),
    "sgd, mixup by sample": dict(optimizer="sgd", lr=0.05, momentum=0.875, nesterov=False, mode="sample"),
}
ALPHA, EPS = 0.9, 0.01
BETAS, ADAM_EPS = (0.8, 0.99), 0.1
ADAM = ("adam", "adamw", "lamb")


def draws(mode):
    """Coefficients and partners of all batches."""
    rng = np.random.default_rng(7)
    n = STEPS * ACC
    if mode == "batch":
        return rng.beta(0.2, 0.2, n).astype(np.float32), np.stack([rng.permutation(BATCH) for _ in range(n)])
    return rng.beta(0.2, 0.2, (n, BATCH)).astype(np.float32), np.tile(np.arange(BATCH)[::-1], (n, 1))


def rate(lr, epoch):
    if epoch < WARMUP:
        return lr * (epoch + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (epoch - WARMUP) / (EPOCHS - WARMUP))) * lr


def optimizer(run, named):
    groups = [{"params": [p for n, p in named if "bn" in n], "weight_decay": 0.0},
              {"params": [p for n, p in named if "bn" not in n], "weight_decay": run.get("decay", DECAY)}]
    if run["optimizer"] in ADAM:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "lamb": Lamb}[run["optimizer"]]
        return kind(groups, lr=run["lr"], betas=BETAS, eps=ADAM_EPS)
    if run["optimizer"] == "rmsprop":
        return torch.optim.RMSprop(groups, lr=run["lr"], momentum=run["momentum"], alpha=ALPHA, eps=EPS)
    return torch.optim.SGD(groups, lr=run["lr"], momentum=run["momentum"], nesterov=run["nesterov"])


def mixed(x, lam, perm):
    lam = lam.reshape(-1, *[1] * (x.dim() - 1)).to(x.dtype)
    return lam * x + (1 - lam) * x[perm]


def batch_loss(run, logits, q):
    """The mean loss of a batch; q: targets without smoothing."""
    if run.get("loss") == "bce":
        q = (1 - SMOOTHING) * q + SMOOTHING / CLASSES
        q = (q > run["threshold"]).to(q.dtype) if "threshold" in run else q
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, q)
    if "weights" in run:
        q = (1 - SMOOTHING) * q + SMOOTHING / CLASSES
        return torch.nn.functional.cross_entropy(logits, q, torch.tensor(run["weights"], dtype=q.dtype))
    log_p = torch.log_softmax(logits, 1)
    return ((1 - SMOOTHING) * -(log_p * q).sum(1) - SMOOTHING * log_p.mean(1)).mean()


def ema_factor(run, t):
    """What batch t leaves of the averages: the reference's rule, or torchvision's with `every`."""
    if "every" not in run:
        return min(EMA, (1 + t) / (10 + t))
    epoch, i = divmod(t, PER_EPOCH)
    if (t + 1) % ACC or i // ACC % run["every"]:
        return 1
    if epoch < WARMUP or (epoch == WARMUP and i // ACC == 0):
        return 0
    return 1 - min(1, (1 - EMA) * BATCH * ACC * run["every"] / EPOCHS)


def trained(run, arch, prefix, images, labels, dtype):
    """Weights, statistics and averages after STEPS steps."""
    net = network(arch, CLASSES, prefix, dtype).train()
    named = list(net.named_parameters())
    opt = optimizer(run, named)
    lams, perms = draws(run["mode"])
    x = torch.from_numpy(images).to(dtype)
    q = torch.nn.functional.one_hot(torch.from_numpy(labels), CLASSES).to(dtype)
    averages = {n: t.clone() for n, t in net.state_dict().items()}
    opt.zero_grad()
    cycle = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=run["lr"], total_steps=EPOCHS * PER_EPOCH // ACC,
                                                anneal_strategy=run["cycle"]) if "cycle" in run else None
    for t in range(STEPS * ACC):
        epoch, i = divmod(t, PER_EPOCH)
        for group in [] if cycle else opt.param_groups:
            group["lr"] = rate(run["lr"], epoch)
        lam, perm = torch.from_numpy(lams[t:t + 1].reshape(-1)), torch.from_numpy(perms[t])
        rows = slice(i * BATCH, (i + 1) * BATCH)
        loss = batch_loss(run, net(mixed(x[rows], lam, perm)), mixed(q[rows], lam, perm))
        (loss / ACC).backward()
        if (t + 1) % ACC == 0:
            if "norm" in run:
                torch.nn.utils.clip_grad_norm_(net.parameters(), run["norm"])
            if "value" in run:
                torch.nn.utils.clip_grad_value_(net.parameters(), run["value"])
            opt.step()
            opt.zero_grad()
            if cycle:
                cycle.step()
        m = ema_factor(run, t)
        for n, v in net.state_dict().items():
            if not n.endswith("num_batches_tracked"):
                averages[n] = m * averages[n] + (1 - m) * v
    return {"weights": numpy_of(named), "statistics": statistics(net),
            "ema": {n: a.double().numpy() for n, a in averages.items() if not n.endswith("num_batches_tracked")}}


def tandem_trained(tandem, run, arch):
    lams, perms = draws(run["mode"])
    save_file({"lambda": lams, "perm": np.ascontiguousarray(perms).astype(np.int64)}, tandem.file("mixup.safetensors"))
    extra = ["--rmsprop-alpha", repr(ALPHA), "--rmsprop-eps", repr(EPS)] if run["optimizer"] == "rmsprop" else []
    if run["optimizer"] in ADAM:
        extra += ["--adam-beta1", repr(BETAS[0]), "--adam-beta2", repr(BETAS[1]), "--adam-eps", repr(ADAM_EPS)]
    else:
        extra += ["--momentum", repr(run["momentum"])]
    extra += ["--nesterov"] if run.get("nesterov") else []
    for key, option in ("scale", "static-loss-scale"), ("norm", "clip-grad-norm"), ("value", "clip-grad-value"), \
            ("loss", "loss"), ("threshold", "bce-target-thresh"):
        extra += [f"--{option}", str(run[key])] if key in run else []
    schedule = ["--lr-schedule", "cosine", "--warmup", str(WARMUP)]
    if "cycle" in run:
        schedule = ["--lr-schedule", "one_cycle", "--anneal-strategy", run["cycle"]]
    if "every" in run:
        extra += ["--ema-rule", "torchvision", "--ema-steps", str(run["every"])]
    if "weights" in run:
        extra += ["--class-weights", ",".join(map(repr, run["weights"]))]
    tandem.run("train", tandem.file("data.safetensors"), "--data-backend", "tensors", *nets.TANDEM_ARGS[arch],
               "--num-classes", str(CLASSES), "--image-size", str(SIZE), "-b", str(BATCH),
               "--optimizer-batch-size", str(BATCH * ACC), "--pretrained-weights", tandem.file("start.safetensors"),
               "--training-only", "--no-checkpoints", "--run-iters", str(STEPS), "--epochs", str(EPOCHS),
               "--lr", repr(run["lr"]), *schedule,
               "--optimizer", run["optimizer"], "--wd", repr(run.get("decay", DECAY)),
               "--label-smoothing", repr(SMOOTHING), "--mixup", "0.2", "--mixup-mode", run["mode"],
               "--mixup-file", tandem.file("mixup.safetensors"), "--use-ema", repr(EMA), *extra,
               "--final-state", "--final-weights", tandem.file("end.safetensors"))
    end = tandem.out("end.safetensors")
    return {"weights": end, "statistics": end,
            "ema": {n.removeprefix("ema."): a for n, a in end.items() if n.startswith("ema.")}}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tandem", default="build/tandem")
    p.add_argument("--arch", action="append", help="resnet18 and resnet50 unless given")
    p.add_argument("--run", action="append", choices=sorted(RUNS))
    p.add_argument("--lr", type=float, help="instead of the run's own")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prefix", default="recipe0.", help="of the draw")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        tandem = Tandem(o.tandem, folder, o.threads)
        for arch in o.arch or ["resnet18", "resnet50"]:
            images, labels = fill.images(o.prefix, ROWS, SIZE), fill.labels(o.prefix, ROWS, CLASSES)
            write_start(tandem, arch, CLASSES, o.prefix, loose=False)
            tandem.data("data.safetensors", images, labels)
            for name in o.run or RUNS:
                run = dict(RUNS[name], lr=o.lr or RUNS[name]["lr"])
                got = tandem_trained(tandem, run, arch)
                want = trained(run, arch, o.prefix, images, labels, torch.float64)
                peer = trained(run, arch, o.prefix, images, labels, torch.float32)
                for what in want:
                    error, where = worst(got[what], want[what])
                    judge.say(f"{arch} {name}", f"{what} @{STEPS}", error, where, LIMIT,
                              worst(peer[what], want[what])[0])
    sys.exit(1 if judge.failed else 0)


if __name__ == "__main__":
    main()
