#!/usr/bin/env python3
"""Tandem against PyTorch, frozen weights: five steps of SGD of resnet18 at 64, float32.

    freeze.py --tandem build/tandem

PyTorch's side has requires_grad = False on the stem and the first two stages, and for --freeze-bn their
norms in eval(); float64 from the same float32 start, its own float32 printed beside (`torch`).  A tensor's
error is the largest difference over its largest entry.  What is frozen must keep its bits.  Exit status 1 if
any check fails.
"""

import argparse
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file

import fill
import nets
from networks import (BATCH, DECAY, EPOCHS, LIMITS, LR, MOMENTUM, ROWS, SMOOTHING, STEPS, WARMUP, Judge, Tandem,
                      loss_of, network, numpy_of, rate, statistics, worst, write_start)

ARCH, CLASSES, SIZE = "resnet18", 10, 64
PATTERNS, FROZEN = "conv1*,bn1*,layer1.*,layer2.*", ("conv1.", "bn1.", "layer1.", "layer2.")


def trained(prefix, images, labels, dtype, keeps_norms):
    net = network(ARCH, CLASSES, prefix, dtype).train()
    for name, w in net.named_parameters():
        w.requires_grad = not name.startswith(FROZEN)
    for name, m in net.named_modules():
        if keeps_norms and isinstance(m, torch.nn.BatchNorm2d) and f"{name}.".startswith(FROZEN):
            m.eval()
    named = [(n, w) for n, w in net.named_parameters() if w.requires_grad]
    sgd = torch.optim.SGD([{"params": [p for n, p in named if "bn" in n], "weight_decay": 0.0},
                           {"params": [p for n, p in named if "bn" not in n], "weight_decay": DECAY}],
                          lr=LR, momentum=MOMENTUM)
    x, y = torch.from_numpy(images).to(dtype), torch.from_numpy(labels)
    for step in range(STEPS):
        row = step * BATCH % ROWS
        for group in sgd.param_groups:
            group["lr"] = rate(step)
        sgd.zero_grad()
        loss_of(net(x[row:row + BATCH]), y[row:row + BATCH]).backward()
        sgd.step()
    batches = {n: int(b) for n, b in net.named_buffers() if n.endswith("num_batches_tracked")}
    return {"weights": numpy_of(named), "statistics": statistics(net)}, batches


def tandem_trained(tandem, extra):
    tandem.run("train", tandem.file("data.safetensors"), "--data-backend", "tensors", *nets.TANDEM_ARGS[ARCH],
               "--num-classes", str(CLASSES), "--image-size", str(SIZE), "-b", str(BATCH),
               "--pretrained-weights", tandem.file("start.safetensors"), "--training-only", "--no-checkpoints",
               "--run-iters", str(STEPS), "--epochs", str(EPOCHS), "--lr", repr(LR), "--lr-schedule", "linear",
               "--warmup", str(WARMUP), "--momentum", repr(MOMENTUM), "--wd", repr(DECAY),
               "--label-smoothing", repr(SMOOTHING), "--freeze", PATTERNS, *extra,
               "--final-weights", tandem.file("end.safetensors"))
    return tandem.out("end.safetensors")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tandem", default="build/tandem")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prefix", default="recipe0.", help="of the draw")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        tandem = Tandem(o.tandem, folder, o.threads)
        images, labels = fill.images(o.prefix, ROWS, SIZE), fill.labels(o.prefix, ROWS, CLASSES)
        write_start(tandem, ARCH, CLASSES, o.prefix, loose=False)
        tandem.data("data.safetensors", images, labels)
        start = load_file(tandem.file("start.safetensors"))
        for keeps_norms in (False, True):
            what = "freeze-bn" if keeps_norms else "freeze"
            got = tandem_trained(tandem, ["--freeze-bn"] if keeps_norms else [])
            want, batches = trained(o.prefix, images, labels, torch.float64, keeps_norms)
            peer, _ = trained(o.prefix, images, labels, torch.float32, keeps_norms)
            for kind in want:
                error, where = worst(got, want[kind])
                judge.say(f"{ARCH} {what}", f"{kind} @{STEPS}", error, where, LIMITS[kind],
                          worst(peer[kind], want[kind])[0])
            kept = [n for n in start if n.startswith(FROZEN) and not n.endswith("num_batches_tracked")
                    and (keeps_norms or "running" not in n)]
            same = [n for n in kept if np.array_equal(got[n].reshape(-1).view(np.int32),
                                                      np.asarray(start[n]).reshape(-1).view(np.int32))]
            other = [n for n in batches if int(got[n]) != batches[n]]
            judge.say(f"{ARCH} {what}", f"{len(batches)} counters", float(len(other)), "batches", 0.0, 0.0)
            judge.say(f"{ARCH} {what}", f"{len(kept)} frozen tensors", float(len(kept) - len(same)), "bits", 0.0, 0.0)
    sys.exit(1 if judge.failed else 0)


if __name__ == "__main__":
    main()
