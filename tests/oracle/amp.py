#!/usr/bin/env python3
"""Gradients of one training step in mixed precision, Tandem beside PyTorch's autocast.

    amp.py --tandem build/tandem                              the four networks at 64, batch 4
    amp.py --tandem build/tandem --arch resnet50 --size 97 --batch 8 --worst 5

Both programs start from the same float32 numbers.  The judge is PyTorch in float64; what is measured is, for
every weight of a convolution or linear layer, the cosine between its gradient and the judge's.  Columns:

    torch32    PyTorch, float32                       fp32      Tandem, float32
    autocast   PyTorch, autocast to bfloat16 (CPU)    bf16      Tandem, TensorFlow's rule
                                                      bf16-ac   Tandem, --amp-level autocast
                                                      fp16      Tandem, a static loss scale

What is left of a half gradient's digits is partly luck, in both programs: a relu input within rounding of zero
takes the other branch.  So "no worse than PyTorch" is judged twice.  Required of bf16, bf16-ac and fp16:

    every weight    a cosine of at least LEAST, or an angle of at most SLACK times PyTorch's autocast
    the network     the geometric mean over its weights of (angle / PyTorch's angle) at most SLACK_MEAN

The two layers of a squeeze-and-excitation gate are judged as a network of their own, without the first rule: of
16 hidden units one that flips turns the gradient.  Of fp32 every weight needs LEAST_FP32, or SLACK times the
angle of PyTorch's float32.  Exit status 1 if something misses it.
"""

import argparse
import os
import sys
import tempfile
import warnings

import numpy as np
import torch

import fill
import nets
import networks

ARCHS = ("resnet50", "resnext101-32x4d", "se-resnext101-32x4d", "seresnext101_32x4d")
CLASSES = 10
LEAST, LEAST_FP32, SLACK, SLACK_MEAN = 0.999, 0.999999, 1.5, 1.1
SCALE = 128  # of fp16: gradients of one step stay far below 65504 / 128

TANDEM = {
    "fp32": ["--precision", "fp32"],
    "bf16": ["--precision", "bf16"],
    "bf16-ac": ["--precision", "bf16", "--amp-level", "autocast"],
    "fp16": ["--precision", "fp16", "--static-loss-scale", str(SCALE)],
}
PEER = {"fp32": "torch32"}  # whose cosine excuses a low one; else autocast
COLUMNS = ("torch32", "fp32", "autocast", "bf16", "bf16-ac", "fp16")


def torch_step(arch, prefix, images, labels, dtype, autocast=False):
    """Gradients by name, float64 arrays, and the loss."""
    net = networks.network(arch, CLASSES, prefix, dtype).train()
    x, y = torch.from_numpy(images).to(dtype), torch.from_numpy(labels)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logits = net(x)
        loss = networks.loss_of(logits, y)
    loss.backward()
    return networks.numpy_of((n, p.grad) for n, p in net.named_parameters()), float(loss.detach())


def tandem_step(tandem, arch, size, batch, names, args):
    """The momentum after one step without decay is the gradient."""
    tandem.run("train", tandem.file("one.safetensors"), "--data-backend", "tensors", *nets.TANDEM_ARGS[arch],
               "--num-classes", str(CLASSES), "--image-size", str(size), "-b", str(batch),
               "--pretrained-weights", tandem.file("start.safetensors"),
               *networks.train_args(1, networks.MOMENTUM, 0.0), *args,
               "--final-weights", tandem.file("end.safetensors"))
    return networks.split_state(tandem.out("end.safetensors"), names)


def cosine(a, b):
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    if a.shape != b.shape or not np.isfinite(a).all():
        return -1.0
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / size) if size > 0 else float(not a.any() and not b.any())


def angle(c):
    """Of a cosine, in radians; never quite 0."""
    return float(np.sqrt(2 * max(1 - c, 1e-16)))


def peer(column, row):
    return row[PEER.get(column, "autocast")]


def is_enough(column, row):
    least = LEAST_FP32 if column == "fp32" else LEAST
    return row[column] >= least or angle(row[column]) <= SLACK * angle(peer(column, row))


def mean_ratio(column, rows):
    """How much larger the column's angles are than PyTorch's: 0.9 is a tenth better."""
    return float(np.exp(np.mean([np.log(angle(r[column]) / angle(peer(column, r))) for r in rows.values()])))


def measure(tandem, arch, size, batch, prefix):
    """Cosine by weight name and column, in the network's order."""
    images, labels = fill.images(prefix, batch, size), fill.labels(prefix, batch, CLASSES)
    shapes = nets.shapes(nets.build(arch, CLASSES))
    networks.write_start(tandem, arch, CLASSES, prefix, loose=False)
    tandem.data("one.safetensors", images, labels)
    want, _ = torch_step(arch, prefix, images, labels, torch.float64)
    weights = [n for n in want if len(shapes[n]) > 1]
    got = {"torch32": torch_step(arch, prefix, images, labels, torch.float32)[0],
           "autocast": torch_step(arch, prefix, images, labels, torch.float32, autocast=True)[0]}
    for column, args in TANDEM.items():
        got[column] = tandem_step(tandem, arch, size, batch, list(want), args)
    return {n: {c: cosine(got[c][n], want[n]) for c in COLUMNS} for n in weights}


def table(title, rows, worst):
    print(f"  {title:30s}" + "".join(f"{c:>10s}" for c in COLUMNS))
    by_column = {c: sorted((r[c] for r in rows.values())) for c in COLUMNS}
    for what, pick in (("worst", lambda v: v[0]), ("median", lambda v: v[len(v) // 2])):
        print(f"  {what:30s}" + "".join(f"{1 - pick(by_column[c]):10.1e}" for c in COLUMNS))
    print(f"  {'below ' + str(LEAST):30s}" + "".join(f"{sum(v < LEAST for v in by_column[c]):10d}" for c in COLUMNS))
    print(f"  {'mean angle / PyTorch angle':30s}" + "".join(
        f"{mean_ratio(c, rows):10.2f}" if c in TANDEM else " " * 10 for c in COLUMNS))
    for name in sorted(rows, key=lambda n: rows[n]["bf16"])[:worst]:
        print(f"  {name:30s}" + "".join(f"{1 - rows[name][c]:10.1e}" for c in COLUMNS))


def show(case, rows, worst):
    """Prints the tables; returns how many requirements are missed."""
    gates = {n: r for n, r in rows.items() if ".se." in n}
    others = {n: r for n, r in rows.items() if n not in gates}
    print(f"{case}; 1 - cosine with float64's gradient")
    table(f"{len(others)} weights", others, worst)
    misses = [f"{c} {n}: cosine {row[c]:.6f}, PyTorch's {peer(c, row):.6f}" for n, row in others.items()
              for c in TANDEM if not is_enough(c, row)]
    if gates:
        table(f"{len(gates)} weights of gates", gates, worst)
    for title, part in (("all weights", others), ("gates", gates)):
        misses += [f"{c} {title}: angles {mean_ratio(c, part):.2f} times PyTorch's" for c in TANDEM
                   if part and c != "fp32" and mean_ratio(c, part) > SLACK_MEAN]
    for miss in misses:
        print(f"FAIL {case}: {miss}")
    print(f"{'FAIL' if misses else 'ok  '} {case}", flush=True)
    return len(misses)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tandem", required=True, help="the command to judge")
    p.add_argument("--arch", action="append", choices=nets.ARCHS, help="default: four; may be repeated")
    p.add_argument("--size", type=int, default=64, help="64 (default), 97 or 224; others with --prefix")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--prefix", help="draw to use instead of the one in prefixes.json, e.g. 'margin0.'")
    p.add_argument("--worst", type=int, default=5, help="rows to print, of the weights that bf16 has worst")
    p.add_argument("--threads", type=int, default=os.cpu_count(), help="of both programs")
    p.add_argument("--scratch", help="keep the files here instead of in a temporary folder")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    warnings.filterwarnings("ignore", message="TF32")
    n_misses = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.abspath(o.scratch or scratch)
        os.makedirs(folder, exist_ok=True)
        tandem = networks.Tandem(o.tandem, folder, o.threads)
        for arch in o.arch or ARCHS:
            prefix = o.prefix or networks.prefixes(arch, o.size)["step"]
            rows = measure(tandem, arch, o.size, o.batch, prefix)
            n_misses += show(f"{arch}, {o.size} x {o.size}, batch {o.batch}", rows, o.worst)
    print(f"{n_misses} misses" if n_misses else "every weight has what is required")
    return 1 if n_misses else 0


if __name__ == "__main__":
    sys.exit(main())
