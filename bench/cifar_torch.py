#!/usr/bin/env python3
"""PyTorch's side of the comparison on real images: torchvision's ResNet-18 on CIFAR-10, 64x64 inputs.

    cifar_torch.py [--tar cifar10.tar] [--seed 1 --seed 2 --seed 3] [--epochs 5]

The recipe, equal to `tandem train DATA --arch resnet18 --image-size 64 -b 128 --lr 0.1 --lr-schedule cosine
--warmup 1 --epochs 5 --momentum 0.9 --wd 1e-4 --label-smoothing 0.1 --num-classes 10`:

  training    random resized crop to 64 (area 8-100 %, ratio 3/4-4/3, bilinear, antialiased), flip 1/2
  validation  short side to 64 + 32 = 96, centre crop 64
  pixels      (x - mean) / std with ImageNet's constants
  weights     convolutions normal, sigma = sqrt(2 / fan_in); the rest as PyTorch makes it
  optimiser   SGD; names containing 'bn' are not decayed; the last, incomplete batch of an epoch is dropped
  schedule    by epoch: lr (e + 1) / warmup, then lr (1 + cos(pi (e - warmup) / (epochs - warmup))) / 2

Prints a line an epoch and at the end one JSON object with the validation top-1 of every seed.
"""

import argparse
import io
import json
import math
import os
import sys
import tarfile
import time

import numpy as np
import torch
import torchvision
import torchvision.transforms as T
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get("TANDEM_SHARED", os.path.join(HERE, "..", "..", "shared"))
NORMALISE = T.Compose([T.ToTensor(), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


class Images(torch.utils.data.Dataset):
    """One split of the archive, decoded once; class index = rank of the folder's name."""

    def __init__(self, tar, split, transform, limit=0):
        self.transform, self.pixels, self.labels = transform, [], []
        found = []
        with tarfile.open(tar) as archive:
            for member in archive:
                parts = member.name.split("/")
                if member.isfile() and parts[-3] == split:
                    found.append((parts[-2], parts[-1], archive.extractfile(member).read()))
        found.sort(key=lambda f: f[:2])
        classes = sorted({f[0] for f in found})
        if limit:
            found = found[::max(1, len(found) // limit)][:limit]
        for folder, _, data in found:
            self.pixels.append(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
            self.labels.append(classes.index(folder))
        self.classes = len(classes)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(Image.fromarray(self.pixels[i])), self.labels[i]


def rate(o, epoch):
    if epoch < o.warmup:
        return o.lr * (epoch + 1) / o.warmup
    return o.lr * 0.5 * (1 + math.cos(math.pi * (epoch - o.warmup) / (o.epochs - o.warmup)))


def network(classes):
    net = torchvision.models.resnet18(num_classes=classes)
    for module in net.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
    return net.to(memory_format=torch.channels_last)


def evaluate(net, loader):
    net.eval()
    right = total = 0
    with torch.inference_mode():
        for x, y in loader:
            right += int((net(x.to(memory_format=torch.channels_last)).argmax(1) == y).sum())
            total += len(y)
    return right / total


def restore(state, net, sgd):
    """Go on behind the last epoch that --state has; the curve so far."""
    if not state or not os.path.exists(state):
        return []
    saved = torch.load(state)
    net.load_state_dict(saved["net"])
    sgd.load_state_dict(saved["sgd"])
    torch.set_rng_state(saved["random"])
    return saved["curve"]


def train(o, seed, data, val, make=network):
    """The validation top-1 after each epoch, and the network that `make(classes)` began."""
    torch.manual_seed(seed)
    state = f"{o.state}.{seed}" if o.state else None
    net = make(data.classes)
    named = list(net.named_parameters())
    sgd = torch.optim.SGD([{"params": [p for n, p in named if "bn" in n], "weight_decay": 0.0},
                           {"params": [p for n, p in named if "bn" not in n], "weight_decay": o.wd}],
                          lr=o.lr, momentum=o.momentum)
    loss = torch.nn.CrossEntropyLoss(label_smoothing=o.label_smoothing)
    loader = torch.utils.data.DataLoader(data, o.batch_size, shuffle=True, drop_last=True, num_workers=o.workers)
    checks = torch.utils.data.DataLoader(val, 250, num_workers=o.workers)
    curve = restore(state, net, sgd)
    for epoch in range(len(curve), o.epochs):
        start, total = time.perf_counter(), 0.0
        for group in sgd.param_groups:
            group["lr"] = rate(o, epoch)
        net.train()
        for x, y in loader:
            sgd.zero_grad(set_to_none=True)
            value = loss(net(x.to(memory_format=torch.channels_last)), y)
            value.backward()
            sgd.step()
            total += value.item()
        spent = time.perf_counter() - start
        curve.append(evaluate(net, checks))
        print(f"seed {seed} epoch {epoch + 1}/{o.epochs}: lr {rate(o, epoch):.4f}, loss {total / len(loader):.4f}, "
              f"val top-1 {100 * curve[-1]:.2f} %, {len(loader) * o.batch_size / spent:.0f} images/s", file=sys.stderr,
              flush=True)
        if state:
            torch.save({"net": net.state_dict(), "sgd": sgd.state_dict(), "curve": curve,
                        "random": torch.get_rng_state()}, state + ".tmp")
            os.replace(state + ".tmp", state)
    return curve, net


def parser(description):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tar", default=os.path.join(SHARED, "data", "cifar10.tar"))
    p.add_argument("--seed", type=int, action="append", help="may be repeated; default 1, 2 and 3")
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--image-size", type=int, default=64)
    p.add_argument("-b", "--batch-size", type=int, default=128)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--wd", type=float, default=1e-4)
    p.add_argument("--label-smoothing", type=float, default=0.1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--val-resize", type=int, help="short side before the centre crop; default: 32 above --image-size")
    p.add_argument("--state", help="FILE: keep FILE.SEED after every epoch, and go on from it")
    p.add_argument("--limit", type=int, default=0, help="train on this many images only, to try the script")
    return p


def datasets(o):
    """What is trained on and what is validated on."""
    size = o.image_size
    crop = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), NORMALISE])
    centre = T.Compose([T.Resize(o.val_resize or size + 32), T.CenterCrop(size), NORMALISE])
    return Images(o.tar, "train", crop, o.limit), Images(o.tar, "val", centre, o.limit)


def main():
    o = parser(__doc__).parse_args()
    torch.set_num_threads(o.threads)
    data, val = datasets(o)
    print(f"{len(data)} images to train on, {len(val)} to validate, {data.classes} classes", file=sys.stderr)
    curves = {seed: train(o, seed, data, val)[0] for seed in o.seed or [1, 2, 3]}
    last = [c[-1] for c in curves.values()]
    print(json.dumps({"torch": torch.__version__, "options": vars(o), "val_top1": curves,
                      "mean": float(np.mean(last)), "min": min(last), "max": max(last)}))


if __name__ == "__main__":
    main()
