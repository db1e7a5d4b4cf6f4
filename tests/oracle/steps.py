#!/usr/bin/env python3
"""Makes tests/golden/steps: five steps of SGD on one rank and on two, by PyTorch.

    steps.py [--out tests/golden/steps] [--case resnet18-2ranks]
    steps.py --check      make them again in memory and compare with the files that are there

Networks: resnet18, se-resnext101-32x4d, and ssd320 with resnet18 as its backbone.  Weights, images and labels are
those of fill.py; the objects of ssd320 are in the case file.  A rank has a batch, and batch norms with statistics, of
its own; gradients are means over the ranks.  Stored are the losses (means over the ranks, before each update) in
float64, and after steps 1 and 5 summaries of weights, momentum buffers and rank 0's running statistics, in the format
of tests/golden/classification.

`agreement` has what other runs of PyTorch are away from float64: float32, and autocast to float16 and bfloat16 with
float32 weights and gradients of 128 * loss.  A half-precision run of another program is judged by it.

The prefix of a case is the first of margin0., margin1., ... with which float32's momentum after five steps is within
DRIFT of float64's: no relu's input is within rounding of zero.
"""

import argparse
import json
import os
import sys

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

import fill
import nets
import ssd

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "steps")
STEPS, STORED, SCALE, DRIFT, SAMPLES = 5, (1, 5), 128.0, 5e-4, 8
RUNS = {"float32": None, "float16": torch.float16, "bfloat16": torch.bfloat16}
NETWORKS = {
    "resnet18": dict(arch="resnet18", num_classes=10, batch=4, image_size=64, fill="margin", lr=0.05, momentum=0.875,
                     weight_decay=1 / 32768, label_smoothing=0.1),
    "se-resnext101-32x4d": dict(arch="se-resnext101-32x4d", num_classes=10, batch=4, image_size=64, fill="margin",
                                lr=0.05, momentum=0.875, weight_decay=1 / 32768, label_smoothing=0.1),
    "ssd320-resnet18": dict(arch="ssd320", backbone="resnet18", num_classes=5, batch=1, image_size=320, fill="calm",
                            lr=2e-4, momentum=0.9, weight_decay=4e-4, label_smoothing=0.0),
}
CASES = {f"{name}-{n}rank{'s' * (n > 1)}": dict(network, ranks=n) for name, network in NETWORKS.items() for n in (1, 2)}


def is_statistic(name):
    return name.endswith(("running_mean", "running_var"))


# --------------------------------------------------------------------------------- networks


class Classifier:
    def __init__(self, case):
        self.case = case
        self.net = nets.build(case["arch"], case["num_classes"]).train()
        shapes = nets.shapes(self.net)
        self.shapes = {n: s for n, s in shapes.items() if not n.endswith("num_batches_tracked")}
        self.decayed = {n for n in self.shapes if "bn" not in n}

    def batch(self, prefix, step, rank):
        c, name = self.case, f"{step}.{rank}"
        return {"images": fill.images(prefix, c["batch"], c["image_size"], f"images.{name}"),
                "labels": fill.labels(prefix, c["batch"], c["num_classes"], f"labels.{name}")}

    def loss(self, state, batch):
        logits = torch.func.functional_call(self.net, state, (batch["images"],))
        return torch.nn.functional.cross_entropy(logits, batch["labels"], label_smoothing=self.case["label_smoothing"])


class Detector:
    def __init__(self, case):
        self.case, self.anchors = case, ssd.anchors320()
        self.shapes = ssd.shapes320(case["backbone"], case["num_classes"])
        self.decayed = {n for n, s in self.shapes.items() if len(s) > 1}
        rng = np.random.default_rng(11)
        case["objects"] = [[[self.draw(rng) for _ in range(case["batch"])] for _ in range(case["ranks"])]
                           for _ in range(STEPS)]

    def draw(self, rng):
        """Objects of an image: [class, ymin, xmin, ymax, xmax], exact in float32."""
        rows = []
        for _ in range(rng.integers(1, 6)):
            size = rng.uniform(.1, .6, 2)
            low = rng.uniform(0, 1, 2) * (1 - size)
            box = np.round(np.concatenate([low, low + size]) * 1024) / 1024
            rows.append([int(rng.integers(1, self.case["num_classes"] + 1)), *box.tolist()])
        return rows

    def batch(self, prefix, step, rank):
        c, labels, targets = self.case, [], []
        for rows in c["objects"][step][rank]:
            rows = np.array(rows)
            one = ssd.assign("ssd320", self.anchors, rows[:, 1:], rows[:, 0].astype(np.int64))
            labels.append(one[0])
            targets.append(one[1])
        n = c["batch"] * 3 * c["image_size"] ** 2
        images = 127.5 * (2 * fill.uniform(f"{prefix}images.{step}.{rank}", n) - 1)
        return {"images": images.astype(np.float32).reshape(c["batch"], 3, c["image_size"], c["image_size"]),
                "labels": np.stack(labels), "targets": np.stack(targets)}

    def loss(self, state, batch):
        codes, scores = ssd.Ssd320(state, True, self.case["backbone"])(batch["images"])
        return sum(ssd.losses320(codes, scores, batch["targets"], batch["labels"]))


# --------------------------------------------------------------------------------- steps


def run(network, prefix, dtype, half=None):
    """Losses, and after steps 1 and 5 {"params", "momentum", "buffers"} of float64 arrays by name."""
    case = network.case
    start = fill.state(prefix, network.shapes, case["fill"], nets.is_basic(case["arch"]))
    start = {n: torch.from_numpy(v).to(dtype) for n, v in start.items()}
    weights = {n: v.requires_grad_() for n, v in start.items() if not is_statistic(n)}
    statistics = [{n: v.clone() for n, v in start.items() if is_statistic(n)} for _ in range(case["ranks"])]
    momentum = {n: torch.zeros_like(v) for n, v in weights.items()}
    losses, stored = [], {}
    scale = SCALE if half else 1.0
    for step in range(STEPS):
        total = 0.0
        for rank in range(case["ranks"]):
            batch = {n: torch.from_numpy(v) for n, v in network.batch(prefix, step, rank).items()}
            batch = {n: v if v.dtype == torch.int64 else v.to(dtype) for n, v in batch.items()}
            with torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None):
                loss = network.loss({**weights, **statistics[rank]}, batch)
            (loss * (scale / case["ranks"])).backward()
            total += float(loss.detach())
        losses.append(total / case["ranks"])
        with torch.no_grad():
            for n, w in weights.items():
                decay = case["weight_decay"] if n in network.decayed else 0.0
                momentum[n].mul_(case["momentum"]).add_(w.grad / scale + decay * w)
                w -= case["lr"] * momentum[n]
                w.grad = None
        if step + 1 in STORED:
            groups = {"params": weights, "momentum": momentum, "buffers": statistics[0]}
            stored[step + 1] = {key: {n: v.detach().double().numpy().copy() for n, v in group.items()}
                                for key, group in groups.items()}
    return losses, stored


def summarise(group):
    """[n, 3]: norm, sum, largest magnitude; [n, 8]: samples."""
    flat = [v.ravel() for v in group.values()]
    at = [[k * 2654435761 % len(v) for k in range(SAMPLES)] for v in flat]
    return (np.array([[np.linalg.norm(v), v.sum(), np.abs(v).max()] for v in flat]),
            np.array([v[i] for v, i in zip(flat, at)]))


def differences(group, wanted):
    """As tests/support/measure.h has them, of summaries and samples."""
    (a, b), (c, d) = summarise(group), summarise(wanted)
    size = np.array([v.size for v in wanted.values()])
    norm, _, largest = c.T
    rows = [(np.abs(a[:, 2] - largest), largest), (np.abs(b - d).max(1), largest), (np.abs(a[:, 0] - norm), norm),
            (np.abs(a[:, 1] - c[:, 1]), norm * np.sqrt(size))]
    errors = np.max([off / np.where(off > 0, of, 1) for off, of in rows], 0)
    total = np.sqrt((norm ** 2).sum())
    l2 = max(np.sqrt((((b - d) ** 2).sum(1) * size / SAMPLES).sum()), abs(np.sqrt((a[:, 0] ** 2).sum()) - total)) / total
    return {"max": float(errors.max()), "median": float(np.sort(errors)[len(errors) // 2]), "l2": float(l2)}


def agreement(found, wanted):
    losses = [abs(a - b) / max(1, abs(b)) for a, b in zip(found[0], wanted[0])]
    steps = {f"step{s}": {key: differences(found[1][s][key], wanted[1][s][key]) for key in wanted[1][s]} for s in STORED}
    return rounded({"losses": losses, **steps})


def rounded(v):
    if isinstance(v, dict):
        return {k: rounded(x) for k, x in v.items()}
    return [rounded(x) for x in v] if isinstance(v, list) else float(f"{v:.2e}")


def make(name):
    case = dict(CASES[name])
    network = (Detector if case["arch"] == "ssd320" else Classifier)(case)
    for i in range(100):
        prefix = f"margin{i}."
        wanted, single = run(network, prefix, torch.float64), run(network, prefix, torch.float32)
        drift = agreement(single, wanted)["step5"]["momentum"]["l2" if case["fill"] == "calm" else "max"]
        print(f"{name} {prefix}: losses {wanted[0]}, drift {drift:.1e}", flush=True)
        if drift <= DRIFT:
            break
    found = {n: single if half is None else run(network, prefix, torch.float32, half) for n, half in RUNS.items()}
    last = wanted[1][STORED[-1]]
    doc = {"type": "steps", **network.case, "prefix": prefix, "steps": STEPS, "losses": {"float64": wanted[0]},
           "agreement": {n: agreement(f, wanted) for n, f in found.items()},
           "parameters": [[n, list(v.shape)] for n, v in last["params"].items()],
           "buffers": [[n, list(v.shape)] for n, v in last["buffers"].items()]}
    tensors = {}
    for step, groups in wanted[1].items():
        for key, group in groups.items():
            where = f"float64.step{step}.{key}"
            tensors[f"{where}.summary"], tensors[f"{where}.samples"] = summarise(group)
    return doc, tensors


def text_of(doc):
    rows = [f' {json.dumps(k)}: ' + ("[\n  " + ",\n  ".join(json.dumps(x) for x in v) + "\n ]" if isinstance(v, list)
                                     else json.dumps(v)) for k, v in doc.items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", default=OUT)
    p.add_argument("--case", action="append", choices=list(CASES))
    p.add_argument("--check", action="store_true")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    failed = False
    for name in o.case or CASES:
        doc, tensors = make(name)
        json_path, path = (os.path.join(o.out, f"{name}.{e}") for e in ("json", "safetensors"))
        for run_name, a in doc["agreement"].items():
            print(name, run_name, json.dumps(a))
        if not o.check:
            os.makedirs(o.out, exist_ok=True)
            with open(json_path, "w", encoding="utf-8") as f:
                f.write(text_of(doc))
            save_file(tensors, path)
            continue
        there = load_file(path)
        with open(json_path, encoding="utf-8") as f:
            losses = json.load(f)["losses"]["float64"]
        worst = max(float((np.abs(there[n] - v) / np.abs(v).max()).max()) for n, v in tensors.items())
        worst = max(worst, max(abs(a - b) / abs(b) for a, b in zip(losses, doc["losses"]["float64"])))
        print(f"{name}: {len(tensors)} tensors, largest difference {worst:.1e}")
        failed |= there.keys() != tensors.keys() or worst > 1e-7
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
