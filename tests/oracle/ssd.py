#!/usr/bin/env python3
"""Tandem against PyTorch, detectors: heads in training and evaluation form, losses, every gradient, running statistics.

    ssd.py --tandem build/tandem [--step build/tests/detector_step]

PyTorch's side is written from the published description of the two networks (SSD320 v1.2, SSD300 v1.1), not from
Tandem's: backbone, pyramid, shared heads, anchors, matching and losses.  Both get the same weights (`tandem init`, with
norms drawn anew) and the same batch.  Checks against float64, PyTorch's own float32 printed beside (`torch`).  Exit
status 1 if any check fails.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file

from command import Judge, Tandem, off, worst

LIMITS = {"heads": 1e-4, "loss": 1e-5, "gradients": 1e-3, "statistics": 1e-5}
LAYERS = {"resnet18": ([2, 2, 2, 2], False), "resnet34": ([3, 4, 6, 3], False), "resnet50": ([3, 4, 6, 3], True),
          "resnet101": ([3, 4, 23, 3], True), "resnet152": ([3, 8, 36, 3], True)}


# --------------------------------------------------------------------------------- networks


class Net:
    """Layers that take their parameters from a dictionary, by name."""

    def __init__(self, p, training, backbone):
        self.p, self.training, self.backbone = p, training, backbone

    def conv(self, x, name, stride=1, pad=None, bias=False):
        w = self.p[f"{name}.weight"]
        if pad is None:
            pad = (w.shape[2] - 1) // 2
        return F.conv2d(x, w, self.p[f"{name}.bias"] if bias else None, stride, pad)

    def norm(self, x, name, eps, rate):
        p = self.p
        return F.batch_norm(x, p[f"{name}.running_mean"], p[f"{name}.running_var"], p[f"{name}.weight"],
                            p[f"{name}.bias"], self.training, rate, eps)

    def block(self, x, name, stride, act, bn):
        if LAYERS[self.backbone][1]:
            y = act(bn(self.conv(x, f"{name}.conv1"), f"{name}.bn1"))
            y = act(bn(self.conv(y, f"{name}.conv2", stride), f"{name}.bn2"))
            y = bn(self.conv(y, f"{name}.conv3"), f"{name}.bn3")
        else:
            y = act(bn(self.conv(x, f"{name}.conv1", stride), f"{name}.bn1"))
            y = bn(self.conv(y, f"{name}.conv2"), f"{name}.bn2")
        if f"{name}.downsample.0.weight" in self.p:
            x = bn(self.conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
        return F.relu(x + y)


def same(x, kernel, stride, value=0.0):
    """SAME padding: total = max((out - 1) s + k - in, 0), the smaller half before."""
    total = max((math.ceil(x.shape[2] / stride) - 1) * stride + kernel - x.shape[2], 0)
    before = total // 2
    return F.pad(x, (before, total - before, before, total - before), value=value)


class Ssd320(Net):
    def __call__(self, x):
        def bn(y, name):
            return self.norm(y, name, 1e-5, 0.003)

        def head_bn(y, name):
            return self.norm(y, name, 1e-3, 0.0030000209808349609)

        act = F.relu6
        x = act(bn(self.conv(x, "backbone.conv1", 2, 3), "backbone.bn1"))
        x = F.max_pool2d(same(x, 3, 2, -math.inf), 3, 2)
        c = []
        for i, n in enumerate(LAYERS[self.backbone][0]):
            if i:
                x = x[:, :, ::2, ::2]
            for k in range(n):
                x = self.block(x, f"backbone.layer{i + 1}.{k}", 1, act, bn)
            c.append(x)

        def smooth(y, name, stride=1):
            y = self.conv(same(y, 3, stride), f"fpn.{name}.conv", stride, 0)
            return act(head_bn(y, f"fpn.{name}.bn"))

        def up(y):
            return y.repeat_interleave(2, 2).repeat_interleave(2, 3)

        p5 = self.conv(c[3], "fpn.lateral5", bias=True)
        p4 = self.conv(c[2], "fpn.lateral4", bias=True) + up(p5)
        p3 = self.conv(c[1], "fpn.lateral3", bias=True) + up(p4)
        p6 = smooth(p5, "down6", 2)
        levels = [smooth(p3, "smooth3"), smooth(p4, "smooth4"), p5, p6, smooth(p6, "down7", 2)]
        out = []
        for name, columns in (("box", 4), ("class", None)):
            rows = []
            for level, y in enumerate(levels, 3):
                for k in range(4):
                    y = act(head_bn(self.conv(y, f"heads.{name}_tower.{k}.conv"), f"heads.{name}_tower.{k}.bn{level}"))
                y = self.conv(y, f"heads.{name}", bias=True)
                rows.append(y.permute(0, 2, 3, 1).reshape(len(y), -1, columns or y.shape[1] // 6))
            out.append(torch.cat(rows, 1))
        return out


def shapes320(backbone, classes):
    """Names and shapes of the weights and statistics of Ssd320."""
    blocks, is_bottleneck = LAYERS[backbone]
    out = {}

    def conv(name, k, c, side, bias=False):
        out[f"{name}.weight"] = (k, c, side, side)
        if bias:
            out[f"{name}.bias"] = (k,)

    def bn(name, c):
        out.update({f"{name}.{part}": (c,) for part in ("weight", "bias", "running_mean", "running_var")})

    def conv_bn(conv_name, bn_name, k, c, side):
        conv(conv_name, k, c, side)
        bn(bn_name, k)

    conv_bn("backbone.conv1", "backbone.bn1", 64, 3, 7)
    c, ends = 64, []
    for i, n in enumerate(blocks):
        width = 64 << i
        for k in range(n):
            name = f"backbone.layer{i + 1}.{k}"
            plan = [(width, c, 1), (width, width, 3), (4 * width, width, 1)] if is_bottleneck else [
                (width, c, 3), (width, width, 3)]
            for at, row in enumerate(plan, 1):
                conv_bn(f"{name}.conv{at}", f"{name}.bn{at}", *row)
            if k == 0 and c != plan[-1][0]:
                conv_bn(f"{name}.downsample.0", f"{name}.downsample.1", plan[-1][0], c, 1)
            c = plan[-1][0]
        ends.append(c)
    for level, end in zip((5, 4, 3), ends[:0:-1]):
        conv(f"fpn.lateral{level}", 256, end, 1, bias=True)
    for name in ("smooth3", "smooth4", "down6", "down7"):
        conv_bn(f"fpn.{name}.conv", f"fpn.{name}.bn", 256, 256, 3)
    for head, columns in (("box", 4), ("class", classes + 1)):
        for k in range(4):
            name = f"heads.{head}_tower.{k}"
            conv(f"{name}.conv", 256, 256, 3)
            for level in range(3, 8):
                bn(f"{name}.bn{level}", 256)
        conv(f"heads.{head}", 6 * columns, 256, 3, bias=True)
    return out


class Ssd300(Net):
    def __call__(self, x):
        def bn(y, name):
            return self.norm(y, name, 1e-5, 0.1)

        root = "feature_extractor.feature_extractor"
        x = F.max_pool2d(F.relu(bn(self.conv(x, f"{root}.0", 2, 3), f"{root}.1")), 3, 2, 1)
        for i, stride in enumerate((1, 2, 1)):
            for k in range(LAYERS[self.backbone][0][i]):
                x = self.block(x, f"{root}.{i + 4}.{k}", stride if k == 0 else 1, F.relu, bn)
        maps = [x]
        for i in range(5):
            name = f"additional_blocks.{i}"
            x = F.relu(bn(self.conv(x, f"{name}.0"), f"{name}.1"))
            x = F.relu(bn(self.conv(x, f"{name}.3", *((2, 1) if i < 3 else (1, 0))), f"{name}.4"))
            maps.append(x)
        out = []
        for name, columns in (("loc", 4), ("conf", None)):
            rows = []
            for i, m in enumerate(maps):
                y = self.conv(m, f"{name}.{i}", 1, 1, bias=True)
                rows.append(y.reshape(len(y), columns or y.shape[1] // (4, 6, 6, 6, 4, 4)[i], -1))
            out.append(torch.cat(rows, 2).transpose(1, 2))
        return out


# --------------------------------------------------------------------------------- anchors, matching, targets


def anchors320():
    """Centre form: y, x, h, w, in units of the image."""
    rows = []
    for level in range(3, 8):
        stride, side = 2 ** level, math.ceil(320 / 2 ** level)
        off_ = stride / 2 if 320 % stride == 0 else 0
        for y in range(side):
            for x in range(side):
                for ratio in (1, 2, 0.5):
                    for scale in (1, 2 ** 0.5):
                        base = 4 * stride * scale
                        rows.append((y * stride + off_, x * stride + off_, base / ratio ** 0.5, base * ratio ** 0.5))
    return np.array(rows) / 320


def anchors300():
    rows = []
    scales, ratios = [21, 45, 99, 153, 207, 261, 315], [[2], [2, 3], [2, 3], [2, 3], [2], [2]]
    for k, (side, step) in enumerate(zip((38, 19, 10, 5, 3, 1), (8, 16, 32, 64, 100, 300))):
        s, big = scales[k] / 300, math.sqrt(scales[k] * scales[k + 1]) / 300
        sizes = [(s, s), (big, big)]
        for a in ratios[k]:
            w, h = s * math.sqrt(a), s / math.sqrt(a)
            sizes += [(h, w), (w, h)]  # (height, width): the wide one first
        for h, w in sizes:
            for y in range(side):
                for x in range(side):
                    rows.append(((y + .5) * step / 300, (x + .5) * step / 300, h, w))
    return np.clip(np.array(rows), 0, 1)


def corners(c):
    return np.concatenate([c[:, :2] - c[:, 2:] / 2, c[:, :2] + c[:, 2:] / 2], 1)


def overlaps(a, b):
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(2)
    return both / ((a[:, 2:] - a[:, :2]).prod(1)[:, None] + (b[:, 2:] - b[:, :2]).prod(1)[None] - both)


def assign(arch, anchors, truths, classes):
    iou = overlaps(truths, corners(anchors))
    match = iou.argmax(0)
    best = iou.max(0)
    positive = best >= 0.5 if arch == "ssd320" else best > 0.5
    order = range(len(truths))
    for row in (reversed(order) if arch == "ssd320" else order):
        anchor = iou[row].argmax()
        match[anchor], positive[anchor] = row, True
    labels = np.where(positive, classes[match], 0)
    t = truths[match]
    size, centre = t[:, 2:] - t[:, :2], (t[:, :2] + t[:, 2:]) / 2
    codes = np.concatenate([10 * (centre - anchors[:, :2]) / anchors[:, 2:], 5 * np.log(size / anchors[:, 2:])], 1)
    if arch == "ssd300":  # x before y
        codes = codes[:, [1, 0, 3, 2]]
    return labels.astype(np.int64), np.where(positive[:, None], codes, 0).astype(np.float32)


# --------------------------------------------------------------------------------- losses


def losses320(codes, scores, targets, labels):
    n = max(int((labels > 0).sum()), 1)
    z = F.one_hot(labels, scores.shape[2]).to(scores.dtype)
    z[..., 0] = 0
    p = torch.sigmoid(scores)
    ce = F.binary_cross_entropy_with_logits(scores, z, reduction="none")
    pt = z * p + (1 - z) * (1 - p)
    of_class = ((1 - pt) ** 2 * (0.25 * z + 0.75 * (1 - z)) * ce).sum() / n
    of_box = (F.smooth_l1_loss(codes, targets, reduction="none") * (labels > 0)[..., None]).sum() / (4 * n)
    return of_class, of_box


def losses300(codes, scores, targets, labels):
    positive = labels > 0
    n = positive.sum(1)
    of_box = (F.smooth_l1_loss(codes, targets, reduction="none").sum(2) * positive).sum(1)
    ce = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none")
    rank = ce.detach().masked_fill(positive, 0).sort(dim=1, descending=True, stable=True)[1].sort(dim=1)[1]
    mined = rank < torch.clamp(3 * n, max=labels.shape[1])[:, None]
    of_class = (ce * (positive | mined)).sum(1)
    share = (n > 0) / n.clamp(min=1).to(ce.dtype)
    return (of_class * share).mean(), (of_box * share).mean()


# --------------------------------------------------------------------------------- both sides


def draw(rng, arch, backbone, classes, batch, tandem):
    """Weights as `tandem init` has them, norms drawn so that statistics and relu6 matter; images, targets."""
    tandem.run("init", "--overwrite", "--arch", arch, "--backbone", backbone, "--num-classes", str(classes), "--seed", "3", "-o",
               tandem.file("init.safetensors"))
    w = load_file(tandem.file("init.safetensors"))
    for name in w:
        n = w[name].shape
        if w[name].ndim == 4 and ("heads." in name or "fpn." in name):
            w[name] = w[name] * np.float32(3)  # 0.01 would leave the towers all but silent
        elif name.endswith("running_mean"):
            w[name] = rng.uniform(-.2, .2, n).astype(np.float32)
        elif name.endswith("running_var"):
            w[name] = rng.uniform(.5, 1.5, n).astype(np.float32)
        elif w[name].ndim == 1 and f"{name.rsplit('.', 1)[0]}.running_mean" in w:
            low, high = (.15, .45) if name.endswith("weight") else (2.8, 3.2)
            w[name] = rng.uniform(low, high, n).astype(np.float32)
    w = {k: v for k, v in w.items() if not k.endswith("num_batches_tracked")}
    side = 320 if arch == "ssd320" else 300
    anchors = anchors320() if arch == "ssd320" else anchors300()
    labels, targets = [], []
    for _ in range(batch):
        count = rng.integers(1, 9)
        size, = rng.uniform(.05, .6, (1, count, 2))
        low = rng.uniform(0, 1, (count, 2)) * (1 - size)
        one = assign(arch, anchors, np.concatenate([low, low + size], 1), rng.integers(1, classes + 1, count))
        labels.append(one[0])
        targets.append(one[1])
    images = rng.normal(0, 60 if arch == "ssd320" else 1, (batch, 3, side, side)).astype(np.float32)
    batch = {"images": images, "labels": np.stack(labels), "targets": np.stack(targets)}
    return w, {k: np.ascontiguousarray(v) for k, v in batch.items()}  # save_file writes memory as it lies


def torch_side(arch, backbone, weights, batch, dtype):
    kind, losses = (Ssd320, losses320) if arch == "ssd320" else (Ssd300, losses300)
    is_stat = {n: "running_" in n for n in weights}
    p = {n: torch.from_numpy(v).to(dtype).requires_grad_(not is_stat[n]) for n, v in weights.items()}
    images = torch.from_numpy(batch["images"]).to(dtype)
    out = {}
    with torch.no_grad():
        out["codes_eval"], out["scores_eval"] = kind(p, False, backbone)(images)
    codes, scores = kind(p, True, backbone)(images)
    of_class, of_box = losses(codes, scores, torch.from_numpy(batch["targets"]).to(dtype),
                              torch.from_numpy(batch["labels"]))
    (of_class + of_box).backward()
    out.update(codes=codes, scores=scores, loss=of_class + of_box, loss_class=of_class, loss_box=of_box)
    out = {n: v.detach().double().numpy() for n, v in out.items()}
    out.update({f"grad.{n}": v.grad.double().numpy() for n, v in p.items() if not is_stat[n]})
    out.update({f"stat.{n}": v.detach().double().numpy() for n, v in p.items() if is_stat[n]})
    return out


def tandem_side(tandem, step, arch, backbone, classes, weights, batch):
    save_file(weights, tandem.file("w.safetensors"))
    save_file(batch, tandem.file("batch.safetensors"))
    done = subprocess.run([step, arch, backbone, str(classes), "w.safetensors", "batch.safetensors", "out.safetensors"],
                          cwd=tandem.folder, env=tandem.env, text=True, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return {n: v for n, v in tandem.out("out.safetensors").items() if not n.startswith("found.")}


def compare(judge, case, got, want, peer):
    judge.fact(case, f"{len(want)} tensors", set(got) == set(want))
    for name in ("codes_eval", "scores_eval", "codes", "scores"):
        judge.say(case, name, off(got[name], want[name]), "", LIMITS["heads"], off(peer[name], want[name]))
    for name in ("loss_class", "loss_box", "loss"):
        judge.say(case, name, off(got[name], want[name]), f"{float(want[name]):.6g}", LIMITS["loss"],
                  off(peer[name], want[name]))
    top = max(np.linalg.norm(v) for n, v in want.items() if n.startswith("grad."))
    grads = {n: v for n, v in want.items() if n.startswith("grad.")}
    tiny = {n for n, v in grads.items() if np.linalg.norm(v) < 1e-6 * top}  # a later norm takes it away: rounding
    real = {n: v for n, v in grads.items() if n not in tiny}
    error, where = worst(got, real)
    judge.say(case, f"{len(real)} gradients", error, where, LIMITS["gradients"], worst(peer, real)[0])
    judge.fact(case, f"{len(tiny)} gradients of 0", all(np.linalg.norm(got[n]) < 1e-5 * top for n in tiny))
    stats = {n: v for n, v in want.items() if n.startswith("stat.")}
    error, where = worst(got, stats)
    judge.say(case, f"{len(stats)} statistics", error, where, LIMITS["statistics"], worst(peer, stats)[0])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tandem", default="build/tandem")
    p.add_argument("--step", help="tests/detector_step; default: beside the command")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--case", action="append", help="ssd320:resnet50:90:2 and the like, instead of the usual")
    o = p.parse_args()
    step = os.path.abspath(o.step or os.path.join(os.path.dirname(o.tandem), "tests", "detector_step"))
    torch.set_num_threads(o.threads)
    judge = Judge()
    cases = o.case or ["ssd320:resnet50:90:2", "ssd320:resnet18:5:3", "ssd300:resnet50:80:4", "ssd300:resnet18:20:3",
                       "ssd300:resnet34:3:3"]
    with tempfile.TemporaryDirectory() as folder:
        tandem = Tandem(o.tandem, folder, o.threads)
        for case in cases:
            arch, backbone, classes, n = case.split(":")
            rng = np.random.default_rng(7)
            weights, batch = draw(rng, arch, backbone, int(classes), int(n), tandem)
            got = tandem_side(tandem, step, arch, backbone, classes, weights, batch)
            want = torch_side(arch, backbone, weights, batch, torch.float64)
            peer = torch_side(arch, backbone, weights, batch, torch.float32)
            compare(judge, f"{arch} {backbone} {classes}", got, want, peer)
    sys.exit(1 if judge.failed else 0)


if __name__ == "__main__":
    main()
