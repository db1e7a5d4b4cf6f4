"""ONNX files that torch.onnx writes, read by `tandem --model FILE`, judged by PyTorch.

    python tests/oracle/onnx_import.py [--tandem build/release/tandem] [--steps 5] [NAME ...]

For every network of torchvision, with random weights and statistics: exported by both of PyTorch's exporters as for
inference, which folds norms into convolutions, and once with its norms (TrainingMode.PRESERVE).  Logits of each file
against PyTorch's: the largest difference over the largest logit has to be below 1e-4.  The file with norms then trains
`--steps` steps of SGD with momentum in both programs, and in PyTorch in float64: the difference of the weights from
those, divided by the length of their way, has to be below 1e-2 or three times PyTorch's own in float32 (dropout and
stochastic depth are off).

    python tests/oracle/onnx_import.py --golden tests/golden/onnx

writes a small network with many operators in three forms, an input, its logits, and weights after three steps.

Needs torch, torchvision, onnx, onnxscript, safetensors and numpy.
"""
import argparse
import contextlib
import copy
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import onnx
import torch
import torchvision
from safetensors.torch import load_file, save_file

NETWORKS = ("resnet18", "wide_resnet50_2", "resnext50_32x4d", "vgg11_bn", "densenet121", "squeezenet1_1", "googlenet",
            "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "efficientnet_b0", "regnet_y_400mf",
            "shufflenet_v2_x1_0", "convnext_tiny", "vit_b_16")
LIMIT, STEP_LIMIT = 1e-4, 1e-2
LR, MOMENTUM = 1e-3, 0.9


class Small(torch.nn.Module):
    """Convolutions of all kinds, norms, pools, branches, squeeze-and-excitation, and shapes computed from shapes."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8, momentum=0.01), nn.Hardswish())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.wide = nn.Sequential(nn.Conv2d(8, 16, 1), nn.SiLU())
        self.down, self.up = nn.Conv2d(24, 4, 1), nn.Conv2d(4, 24, 1)
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.mix = nn.Conv2d(24, 16, 3, padding=2, dilation=2, groups=4)
        self.gain = nn.Parameter(torch.ones(16, 1, 1))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = self.stem(x)
        x = torch.cat([self.deep(x) + x, self.wide(x)], 1)
        x = x * torch.nn.functional.hardsigmoid(self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True)))))
        x = self.mix(self.pool(x)) * self.gain
        x = torch.nn.functional.avg_pool2d(x / 2 - 0.125, 4, 4)
        return self.fc(x.view(x.size(0), -1))


def prepare(model, seed):
    """Weights as initialised; running statistics that are not 0 and 1; no dropout."""
    torch.manual_seed(seed)
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(m.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(m.running_var, 0.8, 1.2)
        if isinstance(m, torch.nn.Linear) and not m.weight.any():  # the head of a vision transformer
            torch.nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
        if isinstance(m, torch.nn.MultiheadAttention):
            m.dropout = 0.0
        if isinstance(m, torchvision.ops.StochasticDepth):
            m.p = 0.0
    if hasattr(model, "aux_logits"):
        model.aux_logits, model.aux1, model.aux2 = False, None, None
    return model.eval()


def export(model, x, path, form):
    names = dict(input_names=["input"], output_names=["output"])
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if form == "dynamo":
            batch = torch.export.Dim("batch", max=1024)
            torch.onnx.export(model, (x,), path, dynamo=True, external_data=False, dynamic_shapes=({0: batch},),
                              verbose=False, **names)
        else:
            keeps = form == "norms"
            torch.onnx.export(model, (x,), path, dynamo=False, dynamic_axes={"input": {0: "batch"}},
                              do_constant_folding=not keeps, **names,
                              training=torch.onnx.TrainingMode.PRESERVE if keeps else torch.onnx.TrainingMode.EVAL)


def steps_of(model, x, labels, steps):
    model.train()
    sgd = torch.optim.SGD(model.parameters(), LR, MOMENTUM)
    for _ in range(steps):
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        sgd.step()
    return {k: v.detach().clone() for k, v in model.state_dict().items() if v.is_floating_point()}


class Judge:
    def __init__(self, tandem, folder):
        self.tandem, self.folder, self.bad = tandem, folder, 0

    def run(self, *args):
        done = subprocess.run([self.tandem, *map(str, args)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            print(f"tandem {' '.join(map(str, args))}: {done.stderr.strip()}")
        return done.returncode == 0

    def say(self, name, what, found, limit):
        verdict = "ok" if found < limit else "WRONG"
        self.bad += verdict != "ok"
        print(f"{name:20} {what:10} {found:.2e} {verdict}", flush=True)

    def logits(self, name, form, y):
        if not self.run("evaluate", "in.safetensors", "--model", f"{form}.onnx", "--data-backend", "tensors", "-b", 2,
                        "--logits", "out.safetensors", "--precision", "fp32"):
            self.bad += 1
            return
        found = next(iter(load_file(self.folder / "out.safetensors").values()))
        self.say(name, form, float((found - y).abs().max() / y.abs().max()), LIMIT)

    def training(self, name, before, after, truth, steps):
        if not self.run("train", "in.safetensors", "--model", "norms.onnx", "--data-backend", "tensors", "-b", 4,
                        "--run-iters", steps, "--lr", LR, "--momentum", MOMENTUM, "--weight-decay", 0, "--lr-schedule", "step",
                        "--warmup", 0, "--training-only", "--no-checkpoints", "--workspace", "w",
                        "--final-weights", "trained.safetensors", "--precision", "fp32"):
            self.bad += 1
            return
        found = load_file(self.folder / "trained.safetensors")
        missing = [k for k in after if k not in found]
        if missing:
            print(f"{name}: no {missing[:3]}")
            self.bad += 1
            return
        ours, theirs = way(truth, found, before), way(truth, after, before)
        self.say(name, f"{steps} steps", ours, max(STEP_LIMIT, 3 * theirs))


def way(truth, found, before):
    """The distance of two sets of weights, divided by the length of the way from `before`."""
    def length(a, b):
        return sum(float(((a[k].double() - b[k].double()) ** 2).sum()) for k in truth) ** 0.5
    return length(found, truth) / length(truth, before)


def judge_network(judge, model, name, size, steps, forms):
    prepare(model, 1)
    x, labels = torch.randn(4, 3, size, size), torch.randint(0, 10, (4,))
    save_file({"images": x, "labels": labels}, judge.folder / "in.safetensors")
    with torch.no_grad():
        y = model(x)
    for form in forms:
        export(model, x[:2], str(judge.folder / f"{form}.onnx"), form)
        judge.logits(name, form, y)
    before = {k: v.detach().clone() for k, v in model.state_dict().items()}
    wide = copy.deepcopy(model).double()
    judge.training(name, before, steps_of(model, x, labels, steps), steps_of(wide, x.double(), labels, steps), steps)


def write_golden(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = prepare(Small(), 1)
    x, labels = torch.randn(4, 3, 34, 34), torch.randint(0, 10, (4,))
    save_file({"images": x, "labels": labels}, folder / "in.safetensors")
    for form in ("folded", "dynamo", "norms"):
        export(model, x[:2], str(folder / f"{form}.onnx"), form)
    onnx.save_model(onnx.load(folder / "dynamo.onnx"), folder / "beside.onnx", save_as_external_data=True,
                    location="beside.onnx.data", size_threshold=64)
    with torch.no_grad():
        y = model(x)
    save_file({"logits": y}, folder / "logits.safetensors")
    save_file(steps_of(model, x, labels, 3), folder / "trained.safetensors")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tandem", default="build/release/tandem")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--golden", type=pathlib.Path)
    p.add_argument("names", nargs="*")
    o = p.parse_args()
    if o.golden:
        return write_golden(o.golden)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(os.path.abspath(o.tandem), pathlib.Path(folder))
        for name in o.names or ("small", *NETWORKS):
            torch.manual_seed(0)
            if name == "small":
                model, size = Small(), 34
            else:
                size = 224 if name.startswith("vgg") else 64
                options = dict(image_size=size) if name.startswith("vit") else {}
                model = getattr(torchvision.models, name)(weights=None, **options)
            forms = ("folded", "dynamo", "norms")
            if name.startswith("convnext"):  # its last norm reads indices of a Range over the batch: not supported
                forms = ("folded", "norms")
            judge_network(judge, model, name, size, o.steps, forms)
    sys.exit(judge.bad > 0)


if __name__ == "__main__":
    main()
