#!/usr/bin/env python3
"""Training and evaluation with several labels for an image, against PyTorch and scikit-learn.

    multi_label.py --tandem build/tandem

Six SGD steps of a small smooth network with `--loss bce` on multi-hot labels, from one start, against BCEWithLogitsLoss in float64,
without and with weights of the positive targets (`--pos-weight`, numbers and balanced); the loss of `evaluate`, also with
`--tta hflip`, and its mAP and F1 scores, together and by class, against scikit-learn (where it is installed; otherwise
against the definitions in NumPy below), on logits with ties and classes without images.  One line a check; exit status 1 if any
fails.
"""

import argparse
import json
import sys
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

import fill
from command import Judge, Tandem, l2, off

BATCH, ROWS, SIDE, K, STEPS = 4, 12, 64, 7, 6
LR, MOMENTUM = 0.05, 0.9
NET = """\
%images:f32[1,3,64,64] = input
%conv.weight:f32[8,3,7,7] = param {init=normal, scale=0.1}
%fc.weight:f32[7,8] = param {init=uniform, scale=0.3}
%fc.bias:f32[7] = param
%c = conv2d %images, %conv.weight {stride=4, pad=3}
%s = silu %c
%p = global_avg_pool %s
%y = linear %p, %fc.weight, %fc.bias
output logits = %y
"""


def average_precision(y, x):
    """scikit-learn's: sum of (R_i - R_(i-1)) P_i over the distinct values."""
    if not y.any():
        return 0.0
    values = np.unique(x)[::-1]
    recall = np.array([(y & (x >= v)).sum() / y.sum() for v in values])
    precision = np.array([(y & (x >= v)).sum() / (x >= v).sum() for v in values])
    return float((np.diff(recall, prepend=0) * precision).sum())


def scores(y, x, threshold):
    predicted = 1 / (1 + np.exp(-x.astype(np.float64))) >= threshold
    try:
        from sklearn.metrics import average_precision_score, f1_score

        return {"mAP": average_precision_score(y, x, average="macro"),
                "micro_f1": f1_score(y, predicted, average="micro", zero_division=0),
                "macro_f1": f1_score(y, predicted, average="macro", zero_division=0)}, "scikit-learn"
    except ImportError:
        f1 = lambda a, b: 2 * (a & b).sum() / max(1, a.sum() + b.sum())
        return {"mAP": np.mean([average_precision(y[:, c], x[:, c]) for c in range(y.shape[1])]),
                "micro_f1": f1(y, predicted),
                "macro_f1": np.mean([f1(y[:, c], predicted[:, c]) for c in range(y.shape[1])])}, "NumPy"


class Net(torch.nn.Module):
    """NET"""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 7, 4, 3, bias=False)
        self.fc = torch.nn.Linear(8, K)

    def forward(self, x):
        return self.fc(torch.nn.functional.silu(self.conv(x)).mean((2, 3)))


def class_scores(y, x, threshold):
    """The scores of each class, by scikit-learn or by the definitions."""
    return [scores(y[:, [c]], x[:, [c]], threshold)[0] for c in range(y.shape[1])]


def logits_of(state, images):
    """In float64, of the images and of their mirror images."""
    net = Net().double()
    net.load_state_dict({n: torch.from_numpy(t).double() for n, t in state.items()})
    x = torch.from_numpy(images).double()
    with torch.no_grad():
        return net(x), net(x.flip(3))


def steps(state, images, targets, dtype, weights=None):
    net = Net()
    net.load_state_dict(state)
    net = net.to(dtype).train()
    weights = None if weights is None else torch.tensor(weights, dtype=dtype)
    sgd = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    x, y = torch.from_numpy(images).to(dtype), torch.from_numpy(targets).to(dtype)
    for step in range(STEPS):
        row = step * BATCH % ROWS
        sgd.zero_grad()
        torch.nn.BCEWithLogitsLoss(pos_weight=weights)(net(x[row:row + BATCH]), y[row:row + BATCH]).backward()
        sgd.step()
    return {n: p.detach().double().numpy() for n, p in net.named_parameters()}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tandem", required=True, help="the command to judge")
    p.add_argument("--threads", type=int, default=2)
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    judge, rng = Judge(), np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        tandem = Tandem(o.tandem, folder, o.threads)
        images = fill.images("one.", ROWS, SIDE)
        targets = (rng.random((ROWS, K)) < 0.4).astype(np.float32)
        targets[:, 3] = 0
        save_file({"images": images, "labels": targets}, tandem.file("data.safetensors"))
        torch.manual_seed(1)
        state = {n: t.clone() for n, t in Net().state_dict().items()}
        with open(tandem.file("net.td"), "w", encoding="ascii") as text:
            text.write(NET)
        save_file({n: np.ascontiguousarray(t.numpy()) for n, t in state.items()}, tandem.file("start.safetensors"))
        def train(*options):
            tandem.run("train", tandem.file("data.safetensors"), "--data-backend", "tensors", "--model",
                       tandem.file("net.td"), "-b", str(BATCH), "--loss", "bce",
                       "--pretrained-weights", tandem.file("start.safetensors"), "--training-only", "--no-checkpoints",
                       "--epochs", "2", "--lr", str(LR), "--lr-schedule", "step", "--multistep", "1000", "--momentum",
                       str(MOMENTUM), "--wd", "0", "--final-weights", tandem.file("end.safetensors"), *options)
            return load_file(tandem.file("end.safetensors"))

        counts = targets.sum(0)
        shares = np.where(counts > 0, (ROWS - counts) / np.maximum(counts, 1), 1)
        plain = steps(state, images, targets, torch.float64)
        for name, option, weights in [
                ("numbers", "3,0.5,1,2,1.5,0,7", [3, 0.5, 1, 2, 1.5, 0, 7]), ("one number", "2.5", [2.5] * K),
                ("balanced", "balanced", list(shares))]:
            got = train("--pos-weight", option)
            want = steps(state, images, targets, torch.float64, weights)
            own = l2(steps(state, images, targets, torch.float32, weights), want)[0]
            judge.say(f"pos_weight, {name}", f"weights @{STEPS}", *l2(got, want), 1e-6, own)
            differs = l2(plain, want)[0]
            judge.fact(f"pos_weight, {name}", "differs from none", differs > 1e-4, f"{differs:.1e}")
        end = train()
        want = steps(state, images, targets, torch.float64)
        own = l2(steps(state, images, targets, torch.float32), want)[0]
        judge.say("six steps", f"weights @{STEPS}", *l2(end, want), 1e-6, own)
        moved = l2({n: state[n].numpy() for n in want}, want)[0]
        judge.fact("six steps", "weights have moved", moved > 1e-3, f"{moved:.1e}")

        for threshold in (0.5, 0.3, 0.7):
            ours = json.loads(tandem.run("evaluate", tandem.file("data.safetensors"), "--data-backend", "tensors",
                                         "--weights", tandem.file("end.safetensors"), "--json", "--threshold",
                                         str(threshold), "--logits", tandem.file("logits.safetensors")))
            logits = load_file(tandem.file("logits.safetensors"))["logits"]
            theirs, whose = scores(targets > 0, logits, threshold)
            for name, value in theirs.items():
                judge.say(whose, f"{name} from {threshold}", abs(ours[name] - value), "", 1e-9)
            loss = torch.nn.BCEWithLogitsLoss()(torch.from_numpy(logits).double(),
                                                torch.from_numpy(targets).double()).item()
            judge.say("PyTorch", "loss of evaluate", abs(ours["loss"] - loss) / loss, "", 1e-6)
            ours = json.loads(tandem.run("evaluate", tandem.file("data.safetensors"), "--data-backend", "tensors",
                                         "--weights", tandem.file("end.safetensors"), "--json", "--threshold",
                                         str(threshold), "--per-class"))["per_class"]
            theirs = class_scores(targets > 0, logits, threshold)
            for metric, name in (("AP", "mAP"), ("f1", "macro_f1")):
                worst = max(abs(a[metric] - b[name]) for a, b in zip(ours, theirs))
                judge.say(whose, f"{metric} of each class from {threshold}", worst, "", 1e-9)
        ours = json.loads(tandem.run("evaluate", tandem.file("data.safetensors"), "--data-backend", "tensors", "--tta",
                                     "hflip", "--weights", tandem.file("end.safetensors"), "--json", "--logits",
                                     tandem.file("logits.safetensors")))
        mean = sum(logits_of(end, images)) / 2
        got = torch.from_numpy(load_file(tandem.file("logits.safetensors"))["logits"]).double()
        judge.say("PyTorch", "logits of --tta hflip", ((got - mean).abs().max() / mean.abs().max()).item(), "", 1e-6)
        loss = torch.nn.BCEWithLogitsLoss()(mean, torch.from_numpy(targets).double()).item()
        judge.say("PyTorch", "loss of --tta hflip", abs(ours["loss"] - loss) / loss, "", 1e-6)
    print(f"{judge.failed} checks failed" if judge.failed else "all checks passed")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())
