#!/usr/bin/env python3
"""Fine-tuning of a network from an ONNX file on CIFAR-10, by Tandem and by PyTorch.

    finetune_onnx.py OUT [--tandem build/release/tandem] [--only pretrain|torch|tandem] [options of cifar_torch.py]

torchvision's MobileNetV2 is trained by PyTorch to tell the first five classes apart (--pretrain-epochs) and exported
to OUT/pretrained.onnx with its norms.  Both programs then train it on all ten classes with a new last layer, by the
recipe that cifar_torch.py describes:

    tandem train DATA --model OUT/pretrained.onnx --num-classes 10 --image-size 32 -b 128 --lr 0.05 --lr-schedule cosine
        --warmup 1 --epochs 3 --momentum 0.9 --wd 1e-4 --label-smoothing 0.1 --val-resize 32 --seed S

Validation sees whole images.  No name contains 'bn', so all parameters are decayed in both.  Prints one JSON object
with the validation top-1 of every seed; a run whose result is in OUT already is not repeated.
"""

import json
import os
import re
import subprocess
import sys
import tarfile

import torch
import torchvision

import cifar_torch

PRETRAINED_CLASSES = 5


class FirstClasses(torch.utils.data.Dataset):
    """The images of the first five classes."""

    def __init__(self, data):
        self.data, self.classes = data, PRETRAINED_CLASSES
        self.rows = [i for i, label in enumerate(data.labels) if label < self.classes]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.data[self.rows[i]]


def mobilenet(classes):
    return torchvision.models.mobilenet_v2(num_classes=classes).to(memory_format=torch.channels_last)


def pretrain(o, data, val, weights, onnx):
    epochs, o.epochs = o.epochs, o.pretrain_epochs
    _, net = cifar_torch.train(o, 0, FirstClasses(data), FirstClasses(val), mobilenet)
    o.epochs = epochs
    size = o.image_size
    torch.onnx.export(net, (torch.zeros(2, 3, size, size),), onnx, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, input_names=["input"],
                      output_names=["logits"], dynamic_axes={"input": {0: "batch"}, "logits": {0: "batch"}})
    torch.save(net.state_dict(), weights + ".part")
    os.replace(weights + ".part", weights)


def from_pretrained(weights):
    """The network with a new last layer, as both programs begin it."""
    def make(classes):
        net = mobilenet(classes)
        saved = {k: v for k, v in torch.load(weights).items() if not k.startswith("classifier.1.")}
        missing = net.load_state_dict(saved, strict=False).missing_keys
        assert sorted(missing) == ["classifier.1.bias", "classifier.1.weight"], missing
        return net
    return make


def run_tandem(o, seed, folder, onnx):
    if not os.path.isdir(os.path.join(o.out, "data")):
        with tarfile.open(o.tar) as archive:
            archive.extractall(os.path.join(o.out, "data.part"), filter="data")
        os.rename(os.path.join(o.out, "data.part"), os.path.join(o.out, "data"))
    data = os.path.join(o.out, "data")
    inner = os.listdir(data)
    data = os.path.join(data, inner[0]) if len(inner) == 1 else data
    command = [o.tandem, "train", data, "--model", onnx, "--num-classes", "10", "--image-size", o.image_size, "-b",
               o.batch_size, "--lr", o.lr, "--lr-schedule", "cosine", "--warmup", o.warmup, "--epochs", o.epochs,
               "--momentum", o.momentum, "--wd", o.wd, "--label-smoothing", o.label_smoothing, "--seed", seed,
               "--val-resize", o.val_resize, "--threads", o.threads, "--workspace", folder, "--no-checkpoints"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    with open(os.path.join(folder, "output.txt"), "w", encoding="utf-8") as file:
        file.write(done.stdout)
    top1 = re.search(r"^top1 +([0-9.]+) %", done.stdout, re.MULTILINE)
    if not top1:
        sys.exit(f"{folder}/output.txt: no top1")
    return float(top1[1]) / 100


def once(path, compute):
    """What `path` has in JSON, or is computed and kept there."""
    if not os.path.exists(path):
        result = compute()
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main():
    p = cifar_torch.parser(__doc__)
    p.add_argument("out")
    p.add_argument("--tandem", default="build/release/tandem")
    p.add_argument("--only", choices=["pretrain", "torch", "tandem"])
    p.add_argument("--pretrain-epochs", type=int, default=3)
    p.set_defaults(epochs=3, image_size=32, val_resize=32, lr=0.05)
    o = p.parse_args()
    os.makedirs(o.out, exist_ok=True)
    torch.set_num_threads(o.threads)
    weights, onnx = os.path.join(o.out, "pretrained.pt"), os.path.join(o.out, "pretrained.onnx")
    data, val = cifar_torch.datasets(o)
    if not os.path.exists(weights):
        pretrain(o, data, val, weights, onnx)
    result = {"torch": torch.__version__, "options": vars(o)}
    for seed in o.seed or [1, 2, 3]:
        if o.only in (None, "torch"):
            result[f"torch {seed}"] = once(
                os.path.join(o.out, f"torch.{seed}.json"),
                lambda seed=seed: cifar_torch.train(o, seed, data, val, from_pretrained(weights))[0][-1])
        if o.only in (None, "tandem"):
            folder = os.path.join(o.out, f"tandem.{seed}")
            os.makedirs(folder, exist_ok=True)
            result[f"tandem {seed}"] = once(os.path.join(o.out, f"tandem.{seed}.json"),
                                            lambda seed=seed, folder=folder: run_tandem(o, seed, folder, onnx))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
