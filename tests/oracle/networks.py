#!/usr/bin/env python3
"""Tandem against PyTorch, whole networks, float32: logits, gradients, five optimiser steps, file names.

    networks.py --tandem build/tandem                          every architecture at 64, 97 and 224
    networks.py --tandem build/tandem --arch resnet50 --size 64
    networks.py --tandem build/tandem --arch resnet18 --names  only the exchange of weight files
    networks.py --search --arch resnet18 --size 97             choose the draws of prefixes.json again

What is compared is the command itself, through files.  The other side is PyTorch in float64 starting from
the same float32 numbers; PyTorch's own float32 is judged by the same measure and printed beside (`torch`).
One line a check: measured error, limit, verdict.  Exit status 1 if any check fails.

A tensor's error is the largest difference over the tensor's largest entry.  At 224 some ReLU inputs always
lie within rounding of zero: a gradient there is another one, and single entries differ by more than any
rounding, PyTorch's float32 from its float64 too.  So gradients, momentum and the weights after five steps
are judged there as one vector (L2).
"""

import argparse
import json
import os
import sys
import tempfile
import warnings

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

import fill
import nets
from command import (DECAY, EPOCHS, LR, MOMENTUM, ROWS, SMOOTHING, STEPS, WARMUP, Judge, Tandem, l2, off, only,
                     split_state, train_args, worst)

HERE = os.path.dirname(os.path.abspath(__file__))
PREFIXES = os.path.join(HERE, "prefixes.json")
SIZES = (64, 97, 224)
BATCH = 4
WHOLE = 224  # from this size on gradients, momentum and weights are judged as one vector

LIMITS = {
    "logits_eval": 1e-4,
    "logits_train": 1e-4,
    "gradients": 1e-3,
    "statistics": 1e-5,
    "weights": 1e-5,
    "momentum": 2e-3,
}


# --------------------------------------------------------------------------------- PyTorch


def network(arch, classes, prefix, dtype):
    net = nets.build(arch, classes)
    nets.load(net, fill.state(prefix, nets.shapes(net), "margin", nets.is_basic(arch)))
    return net.to(dtype)


def numpy_of(named):
    return {name: t.detach().double().numpy().copy() for name, t in named}


def statistics(net):
    return numpy_of((n, b) for n, b in net.named_buffers() if not n.endswith("num_batches_tracked"))


def loss_of(logits, labels):
    """(1 - s) cross-entropy of the label + s mean over classes; PyTorch's own smoothing is the same."""
    return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=SMOOTHING)


def rate(step):
    """Linear warm-up, by epoch."""
    epoch = step // (ROWS // BATCH)
    return LR * (epoch + 1) / WARMUP if epoch < WARMUP else LR * (1 - (epoch - WARMUP) / (EPOCHS - WARMUP))


def one_step(arch, classes, prefix, images, labels, dtype):
    """Evaluation logits, then training logits, gradients and statistics of one step."""
    net = network(arch, classes, prefix, dtype)
    x, y = torch.from_numpy(images).to(dtype), torch.from_numpy(labels)
    net.eval()
    with torch.no_grad():
        evaluated = net(x).double().numpy().copy()
    net.train()
    logits = net(x)
    loss_of(logits, y).backward()
    return {
        "logits_eval": evaluated,
        "logits_train": logits.detach().double().numpy(),
        "gradients": numpy_of((n, p.grad) for n, p in net.named_parameters()),
        "statistics": statistics(net),
    }


def several_steps(arch, classes, prefix, images, labels, dtype):
    """Weights, momentum and statistics after STEPS steps of SGD."""
    net = network(arch, classes, prefix, dtype).train()
    named = list(net.named_parameters())
    groups = [
        {"params": [p for n, p in named if "bn" in n], "weight_decay": 0.0},
        {"params": [p for n, p in named if "bn" not in n], "weight_decay": DECAY},
    ]
    sgd = torch.optim.SGD(groups, lr=LR, momentum=MOMENTUM)
    x, y = torch.from_numpy(images).to(dtype), torch.from_numpy(labels)
    for step in range(STEPS):
        row = step * BATCH % ROWS
        for group in sgd.param_groups:
            group["lr"] = rate(step)
        sgd.zero_grad()
        loss_of(net(x[row:row + BATCH]), y[row:row + BATCH]).backward()
        sgd.step()
    return {
        "weights": numpy_of(named),
        "momentum": numpy_of((n, sgd.state[p]["momentum_buffer"]) for n, p in named),
        "statistics": statistics(net),
    }


# --------------------------------------------------------------------------------- draws


def kinks(arch, classes, prefix, images, dtype):
    """Inputs of every ReLU and of the max-pool in one training forward, in order."""
    seen = []
    net = network(arch, classes, prefix, dtype).train()
    for module in net.modules():
        if isinstance(module, (torch.nn.ReLU, torch.nn.MaxPool2d)):
            module.register_forward_pre_hook(
                lambda m, args: seen.append((isinstance(m, torch.nn.ReLU), args[0].detach().double().clone())))
    with torch.no_grad():
        net(torch.from_numpy(images).to(dtype))
    return seen


def clearance(arch, classes, prefix, images):
    """Distance of the nearest kink, in float32 errors of its tensor; 2 and more is clean."""
    nearest = float("inf")
    single = kinks(arch, classes, prefix, images, torch.float32)
    double = kinks(arch, classes, prefix, images, torch.float64)
    for (is_relu, a), (_, b) in zip(single, double):
        error = float((a - b).abs().max())
        if is_relu:
            gap = float(b.abs().min())
        else:
            windows = torch.nn.functional.unfold(
                torch.nn.functional.pad(b, (1, 1, 1, 1), value=-1e30).flatten(0, 1)[:, None], 3, stride=2)
            top = windows.topk(2, dim=1).values
            pairs = (top[:, 0] - top[:, 1])[top[:, 0] > 0]
            gap = float(pairs.min())
        nearest = min(nearest, gap / max(error, 1e-30))
    return nearest


def drift(arch, classes, prefix, size):
    """Error of PyTorch's own float32 momentum after STEPS steps."""
    images, labels = fill.images(prefix, ROWS, size), fill.labels(prefix, ROWS, classes)
    want = several_steps(arch, classes, prefix, images, labels, torch.float64)["momentum"]
    err = worst(several_steps(arch, classes, prefix, images, labels, torch.float32)["momentum"], want)[0]
    with torch.backends.mkldnn.flags(enabled=False):
        other = several_steps(arch, classes, prefix, images, labels, torch.float32)["momentum"]
    return max(err, worst(other, want)[0])


def search(arch, classes, size, tries, start):
    """The first clean draws, or the best of those tried: one for a single step, one for STEPS of them."""
    draws = [f"margin{i}." for i in range(start, start + tries)]
    best = (-1.0, None)
    for prefix in draws:
        best = max(best, (clearance(arch, classes, prefix, fill.images(prefix, BATCH, size)), prefix))
        if best[0] >= 2:
            break
    found = {"step": best[1], "clearance": round(best[0], 2), "steps": draws[0]}
    if size < WHOLE:
        calm = (float("inf"), None)
        for prefix in draws:
            calm = min(calm, (drift(arch, classes, prefix, size), prefix))
            if calm[0] <= 5e-4:
                break
        found.update(steps=calm[1], drift=float(f"{calm[0]:.1e}"))
    return found


def prefixes(arch, size):
    with open(PREFIXES) as f:
        table = json.load(f)
    return table[f"{arch}-s{size}"]


# --------------------------------------------------------------------------------- Tandem


def common_args(arch, classes, size):
    return ["--data-backend", "tensors", *nets.TANDEM_ARGS[arch], "--num-classes", str(classes),
            "--image-size", str(size), "-b", str(BATCH)]


def tandem_one_step(tandem, arch, classes, size, names):
    """As one_step(): the momentum after one step without decay is the gradient."""
    common = common_args(arch, classes, size)
    weights = ["--pretrained-weights", tandem.file("start.safetensors")]
    tandem.run("evaluate", tandem.file("one.safetensors"), *common, *weights,
               "--logits", tandem.file("logits.safetensors"))
    tandem.run("train", tandem.file("one.safetensors"), *common, *weights, *train_args(1, MOMENTUM, 0.0),
               "--train-logits", tandem.file("train.safetensors"), "--final-weights", tandem.file("end.safetensors"))
    end = tandem.out("end.safetensors")
    return {
        "logits_eval": only(tandem.out("logits.safetensors"), "logits"),
        "logits_train": only(tandem.out("train.safetensors"), "logits"),
        "gradients": split_state(end, names),
        "statistics": end,
    }


def tandem_several_steps(tandem, arch, classes, size, names):
    tandem.run("train", tandem.file("many.safetensors"), *common_args(arch, classes, size),
               "--pretrained-weights", tandem.file("start.safetensors"), *train_args(STEPS, MOMENTUM, DECAY),
               "--final-weights", tandem.file("end.safetensors"))
    end = tandem.out("end.safetensors")
    return {"weights": end, "momentum": split_state(end, names), "statistics": end}


# --------------------------------------------------------------------------------- checks


def compare(judge, case, size, got, want, peer, stage):
    for what in want:
        measure = worst
        if what in ("gradients", "momentum", "weights") and size >= WHOLE:
            measure = l2
        if what.startswith("logits"):
            measure = lambda a, b: (off(a, b), "")
        error, where = measure(got[what], want[what])
        judge.say(case, f"{what} {stage}", error, where, LIMITS[what], measure(peer[what], want[what])[0])


def write_start(tandem, arch, classes, prefix, loose):
    """The filled network as a weight file; `loose` gives the SE layers the other of their two shapes."""
    shapes = nets.shapes(nets.build(arch, classes))
    state = fill.state(prefix, shapes, "margin", nets.is_basic(arch))
    if loose:
        for name in state:
            if ".se.fc" in name and name.endswith("weight"):
                shape = state[name].shape
                state[name] = state[name].reshape(shape[:2] if len(shape) == 4 else shape + (1, 1))
    save_file(state, tandem.file("start.safetensors"))


def check_size(judge, tandem, arch, classes, size, prefix):
    case = f"{arch}-k{classes}-s{size}"
    names = [n for n, _ in nets.build(arch, classes).named_parameters()]
    chosen = {"step": prefix, "steps": prefix} if prefix else prefixes(arch, size)

    draw = chosen["step"]
    images, labels = fill.images(draw, BATCH, size), fill.labels(draw, BATCH, classes)
    write_start(tandem, arch, classes, draw, loose=False)
    tandem.data("one.safetensors", images, labels)
    got = tandem_one_step(tandem, arch, classes, size, names)
    want = one_step(arch, classes, draw, images, labels, torch.float64)
    peer = one_step(arch, classes, draw, images, labels, torch.float32)
    compare(judge, case, size, got, want, peer, "")
    check_decay(judge, tandem, case, arch, classes, size, names, got["gradients"])

    draw = chosen["steps"]
    images, labels = fill.images(draw, ROWS, size), fill.labels(draw, ROWS, classes)
    write_start(tandem, arch, classes, draw, loose=True)
    tandem.data("many.safetensors", images, labels)
    got = tandem_several_steps(tandem, arch, classes, size, names)
    want = several_steps(arch, classes, draw, images, labels, torch.float64)
    peer = several_steps(arch, classes, draw, images, labels, torch.float32)
    compare(judge, case, size, got, want, peer, f"@{STEPS}")
    counted = {n: int(np.asarray(got["weights"][n]).reshape(())) for n in got["weights"]
               if n.endswith("num_batches_tracked")}
    norms = sum(n.endswith("running_mean") for n in want["statistics"])
    judge.fact(case, "batch counters", len(counted) == norms and set(counted.values()) == {STEPS},
               f"{len(counted)} of {norms}, values {sorted(set(counted.values()))}")


def check_decay(judge, tandem, case, arch, classes, size, names, gradients):
    """Which tensors are decayed: with decay 1/2, the first momentum is gradient + weight / 2 or gradient."""
    tandem.run("train", tandem.file("one.safetensors"), *common_args(arch, classes, size),
               "--pretrained-weights", tandem.file("start.safetensors"), *train_args(1, MOMENTUM, 0.5),
               "--final-weights", tandem.file("end.safetensors"))
    momentum = split_state(tandem.out("end.safetensors"), names)
    start = load_file(tandem.file("start.safetensors"))
    wrong = []
    for n in names:
        decayed = gradients[n] + 0.5 * start[n].reshape(gradients[n].shape)
        nearer = np.abs(momentum[n] - decayed).max() < np.abs(momentum[n] - gradients[n]).max()
        if nearer != ("bn" not in n):
            wrong.append(n)
    judge.fact(case, "decayed tensors", not wrong, f"{sum('bn' not in n for n in names)} of {len(names)}"
               + (f", wrong: {wrong[:4]}" if wrong else ""))


def check_names(judge, tandem, arch):
    """`init` files load into torchvision and timm, and their files load here."""
    case, classes = f"{arch} names", 1000
    tandem.run("init", "--overwrite", *nets.TANDEM_ARGS[arch], "--num-classes", str(classes), "--seed", "1",
               "-o", tandem.file("init.safetensors"))
    made = tandem.out("init.safetensors")
    net = nets.build(arch, classes)
    wanted = {n: tuple(t.shape) for n, t in net.state_dict().items()}
    try:
        nets.load(net, made)
        judge.fact(case, "init loads, strict", True, f"{len(made)} tensors")
    except RuntimeError as e:
        judge.fact(case, "init loads, strict", False, str(e)[:300])
    kinds = {n: str(a.dtype) for n, a in made.items()}
    right = all(k == ("int64" if n.endswith("num_batches_tracked") else "float32") for n, k in kinds.items())
    judge.fact(case, "init types", right, str(sorted(set(kinds.values()))))
    count = sum(p.numel() for p in net.parameters())
    ours = sum(a.size for n, a in made.items() if n in dict(net.named_parameters()))
    judge.fact(case, "parameters", ours == count == nets.PARAMETERS[arch], f"{ours}")
    judge.fact(case, "finite, not constant", all(np.isfinite(a).all() for a in made.values())
               and made["conv1.weight"].std() > 0)

    # theirs, with and without the batch counters: same logits on both sides
    net = network(arch, classes, "names.", torch.float32).eval()
    images = fill.images("names.", BATCH, 64)
    tandem.data("one.safetensors", images, np.zeros(BATCH, np.int64))
    with torch.no_grad():
        want = net.double()(torch.from_numpy(images).double()).numpy()
    state = {n: t.float().numpy() if t.is_floating_point() else t.numpy() for n, t in net.state_dict().items()}
    for note, keep in (("theirs load", state),
                       ("… without counters", {n: a for n, a in state.items() if "num_batches" not in n})):
        assert set(keep) <= set(wanted)
        save_file({n: np.ascontiguousarray(a) for n, a in keep.items()}, tandem.file("theirs.safetensors"))
        tandem.run("evaluate", tandem.file("one.safetensors"), *common_args(arch, classes, 64),
                   "--pretrained-weights", tandem.file("theirs.safetensors"),
                   "--logits", tandem.file("logits.safetensors"))
        judge.say(case, note, off(only(tandem.out("logits.safetensors"), "logits"), want), "", 1e-4)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tandem", help="the command to judge")
    p.add_argument("--arch", action="append", choices=nets.ARCHS, help="default: all; may be repeated")
    p.add_argument("--size", action="append", type=int, help="default: 64, 97 and 224; may be repeated")
    p.add_argument("--num-classes", type=int, default=10)
    p.add_argument("--prefix", help="draw to use instead of the one in prefixes.json, e.g. 'margin0.'")
    p.add_argument("--names", action="store_true", help="only the exchange of weight files")
    p.add_argument("--no-names", action="store_true", help="leave the exchange of weight files out")
    p.add_argument("--threads", type=int, default=os.cpu_count(), help="of both programs")
    p.add_argument("--scratch", help="keep the files here instead of in a temporary folder")
    p.add_argument("--search", action="store_true", help="choose draws and rewrite their entries in prefixes.json")
    p.add_argument("--tries", type=int, default=8, help="draws to try with --search")
    p.add_argument("--first", type=int, default=0, help="first draw to try with --search")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    warnings.filterwarnings("ignore", message="TF32")
    archs, sizes = o.arch or nets.ARCHS, o.size or SIZES

    if o.search:
        for arch in archs:
            for size in sizes:
                found = search(arch, o.num_classes, size, o.tries, o.first)
                table = json.load(open(PREFIXES)) if os.path.exists(PREFIXES) else {}
                table[f"{arch}-s{size}"] = found
                with open(PREFIXES, "w") as f:
                    rows = [f'  "{k}": {json.dumps(v)}' for k, v in sorted(table.items())]
                    f.write("{\n" + ",\n".join(rows) + "\n}\n")
                print(f"{arch}-s{size}: {found}", flush=True)
        return 0
    if not o.tandem:
        p.error("--tandem is missing")

    judge = Judge()
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.abspath(o.scratch or scratch)
        os.makedirs(folder, exist_ok=True)
        tandem = Tandem(o.tandem, folder, o.threads)
        for arch in archs:
            jobs = [] if o.names else [(f"{arch}-s{s}", check_size, (arch, o.num_classes, s, o.prefix)) for s in sizes]
            if not o.no_names:
                jobs.append((f"{arch} names", check_names, (arch,)))
            for case, job, args in jobs:
                try:
                    job(judge, tandem, *args)
                except (RuntimeError, KeyError, OSError, ValueError) as e:
                    judge.fact(case, "ran", False, str(e))
    print(f"{judge.failed} checks failed" if judge.failed else "all checks passed")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())
