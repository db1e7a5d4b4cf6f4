#!/usr/bin/env python3
"""Checkpoints of PyTorch resumed by `tandem train --resume`, and Tandem's by PyTorch.

    resume_pth.py --tandem build/tandem                  resnet18 and se-resnet50 at 64
    resume_pth.py --tandem build/tandem --arch resnet18
    resume_pth.py --write                                make tests/data/pth/training*

Three steps in PyTorch, a checkpoint as the reference's main.py saves it, then three more steps in Tandem and,
to compare, in PyTorch: in float64 from the same checkpoint, and in float32, printed beside.  The other way
three steps in Tandem, `convert` to .pth.tar, torch.load(weights_only=True), and three more in PyTorch, compared
with Tandem's own.  Weights, statistics, momentum buffers and averages; SGD with and without Nesterov, with one
group of parameters (--bn-weight-decay), RMSprop, Adam, AdamW, and timm's LAMB.
"""

import argparse
import os
import sys
import tempfile
from collections import OrderedDict

import numpy as np
import timm.optim
import torch
from safetensors.numpy import save_file

import fill
import nets
from command import Judge, Tandem, worst

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "pth")

BATCH, STEPS, EPOCHS, CLASSES = 4, 3, 4, 4
ROWS = BATCH * STEPS  # an epoch
SMOOTHING, DECAY, EMA, ALPHA, EPS = 0.1, 1.0 / 1024, 0.9, 0.9, 0.01
BETAS, ADAM_EPS = (0.8, 0.98), 1e-5
KEPT = {"momentum": "momentum_buffer", "square_avg": "square_avg", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
ADAMS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "lamb": timm.optim.Lamb}
LIMIT = 1e-4

RUNS = {
    "sgd": dict(optimizer="sgd", lr=0.05, momentum=0.875, nesterov=False, one_group=False),
    "sgd, nesterov, one group": dict(optimizer="sgd", lr=0.05, momentum=0.9, nesterov=True, one_group=True),
    "rmsprop": dict(optimizer="rmsprop", lr=0.002, momentum=0.9, nesterov=False, one_group=False),
    "adam": dict(optimizer="adam", lr=0.002, momentum=0, nesterov=False, one_group=False),
    "adamw, one group": dict(optimizer="adamw", lr=0.002, momentum=0, nesterov=False, one_group=True),
    "lamb": dict(optimizer="lamb", lr=0.005, momentum=0, nesterov=False, one_group=False),
}


class Small(torch.nn.Module):
    """What tests/data/pth/training.td is: a stem and a block with a shortcut and squeeze-and-excitation."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(4)
        block = torch.nn.Module()
        block.conv1 = torch.nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)
        block.bn1 = torch.nn.BatchNorm2d(8)
        block.downsample = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 1, stride=2, bias=False), torch.nn.BatchNorm2d(8))
        block.se = nets.SqueezeExcite(8, 2)
        self.layer1 = torch.nn.Sequential(block)
        self.fc = torch.nn.Linear(8, CLASSES)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        block = self.layer1[0]
        x = torch.relu(block.se(block.bn1(block.conv1(x))) + block.downsample(x))
        return self.fc(x.mean((2, 3)))


def network(arch):
    net = Small() if arch == "small" else nets.build(arch, CLASSES)
    nets.load(net, fill.state("resume.", nets.shapes(net), "margin", arch == "small" or nets.is_basic(arch)))
    return net


# --------------------------------------------------------------------------------- the reference's names


def theirs(name):
    for i in range(4, 0, -1):
        name = name.replace(f"layer{i}.", f"layers.{i - 1}.", 1) if name.startswith(f"layer{i}.") else name
    return name.replace(".se.fc1.", ".squeeze.squeeze.").replace(".se.fc2.", ".squeeze.expand.")


def is_gate(name):
    return ".se." in name and name.endswith("weight")


def as_reference(sd):
    return OrderedDict((theirs(n), x.flatten(1) if is_gate(n) else x) for n, x in sd.items())


# --------------------------------------------------------------------------------- training in PyTorch


def optimizer(run, net):
    """main.py's groups, on the names that its network has."""
    named = list(net.named_parameters())
    groups = [{"params": [p for n, p in named if "bn" in n], "weight_decay": 0.0},
              {"params": [p for n, p in named if "bn" not in n], "weight_decay": DECAY}]
    if run["optimizer"] == "rmsprop":
        return torch.optim.RMSprop(groups, lr=run["lr"], momentum=run["momentum"], alpha=ALPHA, eps=EPS)
    params = [p for _, p in named] if run["one_group"] else groups
    if run["optimizer"] in ADAMS:
        return ADAMS[run["optimizer"]](params, lr=run["lr"], betas=BETAS, eps=ADAM_EPS, weight_decay=DECAY)
    return torch.optim.SGD(params, lr=run["lr"], momentum=run["momentum"], nesterov=run["nesterov"], weight_decay=DECAY)


class Trainer:
    """A network in training, with averages, and its place."""

    def __init__(self, run, net, dtype):
        self.run, self.dtype, self.net = run, dtype, net.to(dtype).train()
        self.opt = optimizer(run, self.net)
        self.averages = {n: x.clone() for n, x in self.net.state_dict().items()}
        self.epoch = 0

    def train_epoch(self, images, labels):
        x, y = torch.from_numpy(images).to(self.dtype), torch.from_numpy(labels)
        for group in self.opt.param_groups:
            group["lr"] = self.run["lr"] * (1 - self.epoch / EPOCHS)
        for i in range(STEPS):
            rows = slice(i * BATCH, (i + 1) * BATCH)
            self.opt.zero_grad()
            torch.nn.functional.cross_entropy(self.net(x[rows]), y[rows], label_smoothing=SMOOTHING).backward()
            self.opt.step()
            t = self.epoch * STEPS + i
            m = min(EMA, (1 + t) / (10 + t))
            for n, v in self.net.state_dict().items():
                if v.is_floating_point():
                    self.averages[n] = m * self.averages[n] + (1 - m) * v
        self.epoch += 1
        return self

    def checkpoint(self):
        gates = [i for i, p in enumerate(p for g in self.opt.param_groups for p in g["params"])
                 if any(p is q and is_gate(n) for n, q in self.net.named_parameters())]
        state = self.opt.state_dict()
        for i in gates:  # the reference's linear layers have matrices
            state["state"][i] = {k: x.flatten(1) if k != "step" else x for k, x in state["state"][i].items()}
        return {"epoch": self.epoch, "best_prec1": 12.5, "state_dict": as_reference(self.net.state_dict()),
                "optimizer": state, "state_dict_ema": as_reference(self.averages)}

    def resume(self, ck):
        """A checkpoint with the reference's names, as main.py loads it; keys must be the same in order."""
        shapes = {theirs(n): x.shape for n, x in self.net.state_dict().items()}
        assert list(ck["state_dict"]) == list(shapes), "other keys, or another order"
        own = lambda sd: {n: sd[theirs(n)].reshape(x.shape) for n, x in self.net.state_dict().items()}
        self.net.load_state_dict(own(ck["state_dict"]))
        state = ck["optimizer"]
        params = [p for g in self.opt.param_groups for p in g["params"]]
        for i, kept in state["state"].items():
            state["state"][i] = {k: x.reshape(params[i].shape) if k != "step" else x for k, x in kept.items()}
        self.opt.load_state_dict(state)
        self.averages = {n: x.to(self.dtype) if x.is_floating_point() else x for n, x in own(ck["state_dict_ema"]).items()}
        self.epoch = ck["epoch"]
        return self

    def result(self):
        """By kind and our names, float64."""
        numbers = lambda items: {n: x.detach().double().numpy().copy() for n, x in items}
        named = list(self.net.named_parameters())
        out = {"weights": numbers(named),
               "statistics": numbers((n, b) for n, b in self.net.named_buffers() if b.is_floating_point()),
               "ema": numbers((n, x) for n, x in self.averages.items() if x.is_floating_point())}
        for ours, key in KEPT.items():
            if any(key in self.opt.state[p] for _, p in named):
                out[ours] = numbers((n, self.opt.state[p][key]) for n, p in named)
        return out


def continued(run, arch, ck, images, labels, dtype):
    return Trainer(run, network(arch), dtype).resume(ck).train_epoch(images, labels).result()


# --------------------------------------------------------------------------------- training in Tandem


def tandem_train(tandem, args, data, *more):
    tandem.run("train", data, "--data-backend", "tensors", *args, "-b", str(BATCH), "--epochs", str(EPOCHS),
               "--run-epochs", "1", "--training-only", "--lr-schedule", "linear", "--warmup", "0",
               "--label-smoothing", repr(SMOOTHING), "--use-ema", repr(EMA), "--seed", "1", *more,
               "--final-state", "--final-weights", tandem.file("end.safetensors"))
    end = tandem.out("end.safetensors")
    pick = lambda prefix: {n.removeprefix(prefix): x for n, x in end.items() if n.startswith(prefix)}
    return {"weights": end, "statistics": end, "ema": pick("ema."), **{k: pick(k + ".") for k in KEPT}}


def optimizer_args(run):
    args = ["--lr", repr(run["lr"]), "--optimizer", run["optimizer"], "--momentum", repr(run["momentum"]),
            "--wd", repr(DECAY), "--rmsprop-alpha", repr(ALPHA), "--rmsprop-eps", repr(EPS)]
    args += ["--adam-beta1", repr(BETAS[0]), "--adam-beta2", repr(BETAS[1]), "--adam-eps", repr(ADAM_EPS)]
    return args + ["--nesterov"] * run["nesterov"] + ["--bn-weight-decay"] * run["one_group"]


def compare(judge, run, case, got, want, peer):
    """Adam divides by what may be small: there float32 itself, PyTorch's, is the measure."""
    for what in want:
        error, where = worst(got[what], want[what])
        of_peer = worst(peer[what], want[what])[0]
        limit = max(LIMIT, 3 * of_peer) if run["optimizer"] in ADAMS else LIMIT
        judge.say(case, what, error, where, limit, of_peer)


def check(judge, tandem, arch, run, note):
    size = 64
    images, labels = fill.images("resume.", ROWS, size), fill.labels("resume.", ROWS, CLASSES)
    data = tandem.data("data.safetensors", images, labels)
    args = [*nets.TANDEM_ARGS[arch], "--num-classes", str(CLASSES), "--image-size", str(size)]
    file = tandem.file("checkpoint.pth.tar")

    # ours goes on from theirs, with the optimizer's options as the file has them
    torch.save(Trainer(run, network(arch), torch.float32).train_epoch(images, labels).checkpoint(), file)
    load = lambda: torch.load(file, weights_only=True)
    got = tandem_train(tandem, args, data, "--lr", repr(run["lr"]), "--resume", file, "--no-checkpoints")
    compare(judge, run, f"{arch} {note}", got, continued(run, arch, load(), images, labels, torch.float64),
            continued(run, arch, load(), images, labels, torch.float32))

    # theirs goes on from ours
    save_file(fill.state("resume.", nets.shapes(nets.build(arch, CLASSES)), "margin", nets.is_basic(arch)),
              tandem.file("start.safetensors"))
    tandem_train(tandem, args, data, *optimizer_args(run), "--pretrained-weights", tandem.file("start.safetensors"),
                 "--workspace", tandem.file("run"), "--overwrite")
    ours = tandem.file("run/checkpoint.safetensors")
    tandem.run("convert", "--overwrite", ours, file)
    tandem.run("convert", "--overwrite", ours, tandem.file("again.pth.tar"))
    same = open(file, "rb").read() == open(tandem.file("again.pth.tar"), "rb").read()
    judge.fact(f"{arch} {note}", "converted twice", same, "the same bytes")
    got = tandem_train(tandem, args, data, "--resume", ours, "--no-checkpoints")
    compare(judge, run, f"{arch} {note}, converted", got, continued(run, arch, load(), images, labels, torch.float64),
            continued(run, arch, load(), images, labels, torch.float32))
    again = tandem_train(tandem, args, data, "--lr", repr(run["lr"]), "--resume", file, "--no-checkpoints")
    bits = all(np.array_equal(again[k][n], x) for k in got for n, x in got[k].items())
    judge.fact(f"{arch} {note}", "read back", bits, "resumed to the same bits")


# --------------------------------------------------------------------------------- files for the tests


def write():
    side = 12
    path = lambda name: os.path.join(DATA, name)
    images, labels = fill.images("resume.", ROWS, side), fill.labels("resume.", ROWS, CLASSES)
    save_file({"images": images, "labels": labels}, path("training-data.safetensors"))
    for name in ("sgd", "rmsprop", "adamw"):
        run = RUNS[name] if name in RUNS else RUNS["adamw, one group"]
        torch.save(Trainer(run, network("small"), torch.float32).train_epoch(images, labels).checkpoint(),
                   path(f"training-{name}.pth.tar"))
        want = continued(run, "small", torch.load(path(f"training-{name}.pth.tar"), weights_only=True), images, labels,
                         torch.float64)
        prefixes = {"ema": "ema.", **{k: k + "." for k in KEPT}}
        save_file({prefixes.get(k, "") + n: x.astype(np.float32) for k in want for n, x in want[k].items()},
                  path(f"training-{name}.safetensors"))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--tandem", default="build/tandem")
    p.add_argument("--arch", action="append", help="resnet18 and se-resnet50 unless given")
    p.add_argument("--run", action="append", choices=sorted(RUNS))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--write", action="store_true")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    if o.write:
        return write()
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        tandem = Tandem(o.tandem, folder, o.threads)
        for arch in o.arch or ["resnet18", "se-resnet50"]:
            for note in o.run or RUNS:
                check(judge, tandem, arch, RUNS[note], note)
    sys.exit(1 if judge.failed else 0)


if __name__ == "__main__":
    main()
