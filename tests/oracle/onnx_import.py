"""ONNX files that torch.onnx writes, read by `tandem --model FILE`, judged by PyTorch and ONNX Runtime.

    python tests/oracle/onnx_import.py [--tandem build/release/tandem] [--steps 5] [--table FILE] [NAME ...]

For every network of torchvision and timm (`timm/NAME`), with random weights and statistics: exported by both of PyTorch's
exporters as for inference, which folds norms into convolutions, and once with its norms (TrainingMode.PRESERVE).

- logits: of each file against ONNX Runtime's of the same file; the largest difference over the largest logit has to be
  below 1e-4;
- steps: the file with norms trains `--steps` steps of SGD with momentum in both programs, and in PyTorch in float64: the
  difference of the weights from those, divided by the length of their way, has to be below 1e-2 or three times PyTorch's
  own in float32 (dropout and stochastic depth are off);
- by dynamo: networks without batch norms are also trained from a file of the newer exporter, written with optimize=False; otherwise
  it joins parameters of equal numbers and computes with them;
- bf16: the cosine of the first step's gradients of all weights, in bf16, and those in float64 has to be at least 0.99, or
  that of PyTorch's own autocast less 0.01;
  Where PyTorch itself misses a limit the line says "no worse than PyTorch": small images, few of them and random weights
  make a norm's gradient ill-conditioned, and such a line proves little.
- again: `tandem convert` writes the weights as an ONNX file, which ONNX Runtime computes as it does the first one.

`--table FILE` writes the numbers as rows of Markdown.

    python tests/oracle/onnx_import.py --photos cifar10.tar [--warm-up 100] [--batch 32] [--size 64] [--table FILE] [NAME ...]

judges bf16 alone, where it is well-conditioned: PyTorch first trains the network in float32 for `--warm-up` steps (SGD, rate
0.02, momentum 0.9) on batches of photos from a tar file of NAME/train/CLASS/*.jpg, and the gradients are those of the next batch.

    python tests/oracle/onnx_import.py --golden tests/golden/onnx

writes a small network with many operators in three forms, an input, its logits, and weights after three steps.

Needs torch, torchvision, timm, onnx, onnxruntime, onnxscript, safetensors and numpy.
"""
import argparse
import contextlib
import copy
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, save_file

import nets

NETWORKS = ("resnet18", "wide_resnet50_2", "resnext50_32x4d", "vgg11_bn", "densenet121", "squeezenet1_1", "googlenet",
            "inception_v3", "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "efficientnet_b0", "regnet_y_400mf",
            "shufflenet_v2_x1_0", "convnext_tiny", "vit_b_16", "swin_t", "timm/resnet50d", "timm/resnetv2_50", "timm/repvgg_a0",
            "timm/ghostnet_100", "timm/hrnet_w18_small", "timm/dla34", "timm/ese_vovnet19b_dw", "timm/res2net50_14w_8s",
            "timm/cspresnet50", "timm/mixer_b32_224", "timm/efficientnet_lite0", "timm/deit_tiny_patch16_224",
            "timm/tf_mobilenetv3_small_100", "timm/legacy_xception", "timm/rexnet_100", "timm/poolformer_s12",
            "timm/selecsls42b", "timm/mobilevit_xxs", "timm/dpn68")
SIZES = {"inception_v3": 96, "timm/mixer_b32_224": 224, "timm/legacy_xception": 96}  # others: 64
SIZED = ("vit", "swin_t", "timm/deit", "timm/convit")  # the size is an argument
LIMIT, STEP_LIMIT, COSINE = 1e-4, 1e-2, 0.99
LR, MOMENTUM = 1e-3, 0.9
HALF_LR = 1.0  # of the one step whose gradients are compared: small steps would be rounded with the weights
MEAN, STD = 0.449, 0.226


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


class More(torch.nn.Module):
    """Uneven windows, transposed convolutions, norms of groups and instances, all kinds of padding and resizing, extremes."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.row, self.column = nn.Conv2d(3, 8, (1, 7), padding=(0, 3)), nn.Conv2d(8, 8, (5, 1), (2, 1), (1, 0))
        self.groups, self.instances = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True)
        self.up = nn.ConvTranspose2d(8, 6, 3, 2, 1, 1, groups=2)
        self.fc = nn.Linear(18, 10)

    def forward(self, x):
        F = torch.nn.functional
        x = F.softplus(self.groups(self.column(F.pad(self.row(x), (2, 1, 0, 3), mode="reflect"))))
        x = F.mish(self.instances(F.pad(x, (1, 0, 2, 1), mode="replicate")))
        x = self.up(F.pad(x, (0, 2, 1, 0)))
        x = F.interpolate(x, scale_factor=2, mode="bilinear") + F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
        x = F.interpolate(x, scale_factor=0.5, mode="bicubic")
        x = torch.cat([x.amax((2, 3)), x.amin((2, 3)), F.adaptive_avg_pool2d(x, 1).flatten(1)], 1)
        return F.log_softmax(self.fc(x), 1)


class Rare(torch.nn.Module):
    """Uneven windows of pooling, six dimensions in another order, Einsum, norms of rows and signals, convolutions of signals,
    standardized filters, copies side by side, positions by sums and sines."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.filter, self.gain = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Parameter(torch.rand(8) + 0.5)
        self.qkv = nn.Linear(8, 24)
        self.signal, self.signals = nn.Conv1d(8, 8, 5, padding=2, groups=2, bias=False), nn.BatchNorm1d(8)
        self.rows, self.fc = nn.BatchNorm1d(8), nn.Linear(8, 10)

    def standardized(self):
        return torch.nn.functional.batch_norm(self.filter.reshape(1, 8, -1), None, None, weight=self.gain, training=True,
                                              momentum=0.0, eps=1e-5).reshape_as(self.filter)

    def positions(self, x):
        ones = (~torch.zeros((x.size(0), x.size(2), x.size(3)), device=x.device).bool()).float()
        down, right = ones.cumsum(1), ones.cumsum(2)
        turn = torch.stack([down.sin(), right.cos()], 1) * (x.size(2) / 8)
        return turn.repeat(1, 4, 1, 1)

    def forward(self, x):
        F = torch.nn.functional
        x = torch.relu(F.conv2d(x, self.standardized(), padding=1))
        x = F.max_pool2d(x, (2, 3), (2, 2), (1, 1)) + F.avg_pool2d(x, (4, 2), 2, (2, 0))
        x = F.avg_pool2d(F.max_pool2d(x, (3, 1), 1), (1, 3), 1, (0, 1), count_include_pad=False)[:, :, :8, :8]
        x = x + 0.1 * self.positions(x)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(n, -1, 16, c)
        q, k, v = self.qkv(x).chunk(3, -1)
        x = torch.einsum("b g i j, b g j c -> b g i c", torch.einsum("bgic,bgjc->bgij", q, k).softmax(-1), v)
        x = self.signals(self.signal(x.reshape(n, -1, c).transpose(1, 2))).transpose(1, 2)
        x = self.rows(x.flatten(0, 1)).reshape_as(x)
        return self.fc(torch.relu(x).mean(1))


class Grouped(torch.nn.Module):
    """Linear layers and attention of six dimensions in windows, and positions that are written into zeros."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.stem, self.qkv, self.places = nn.Conv2d(3, 8, 1), nn.Linear(8, 24), nn.Linear(3, 4)
        self.gate, self.fc = nn.Parameter(torch.ones(4, 1, 1)), nn.Linear(8, 10)

    def positions(self, n):
        at = torch.arange(n, dtype=torch.float32)
        apart = at.view(1, -1) - at.view(-1, 1)
        places = torch.zeros(1, n, n, 3)
        places[..., 0], places[..., 1], places[..., 2] = apart[None], apart[None].abs(), apart[None] ** 2
        return places

    def forward(self, x):
        x = self.stem(x).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        x = x.reshape(n, h // 4, 4, w // 4, 4, c).transpose(2, 3)
        qkv = self.qkv(x).reshape(n, h * w // 16, 16, 3, 2, c // 2).permute(3, 0, 1, 4, 2, 5)
        q, k, v = qkv.unbind(0)
        x = torch.softmax(q @ k.transpose(-2, -1), -1) @ v + (qkv @ qkv.transpose(-2, -1) @ qkv / 64)[2]
        x = x.transpose(2, 3).reshape(n, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(n, h * w, c)
        bias = self.places(self.positions(h * w).expand(n, -1, -1, -1)).permute(0, 3, 1, 2).softmax(-1)
        y = (bias * self.gate).sum(1) @ x
        return self.fc(torch.relu(x + y).mean(1))


class Chosen(torch.nn.Module):
    """Masks of attention, comparisons, products by Einsum of several dimensions, blocks of pixels, gates of one number, a trained
    exponent, pooling of signals, a filter that is no parameter, a norm without scale and bias."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.stem, self.qkv, self.heads = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(16, 48), nn.Parameter(torch.randn(16, 2, 4))
        self.gate, self.share, self.power = nn.Parameter(torch.tensor([0.3])), nn.Parameter(torch.tensor(0.6)), nn.Parameter(torch.ones(1) * 3)
        self.norm, self.groups, self.fc = nn.BatchNorm2d(4, affine=False), nn.GroupNorm(2, 4), nn.Linear(24, 10)
        self.register_buffer("near", torch.ones(16, 16).tril() == 0)
        self.register_buffer("far", torch.triu(torch.full((16, 16), float("-inf")), 3))
        self.blur = torch.tensor([[[1.0, 2.0, 1.0]]]).repeat(4, 1, 1)[:, :, None] / 4

    def forward(self, x):
        F = torch.nn.functional
        x = F.conv2d(self.groups(self.norm(self.stem(x))), self.blur, padding=(0, 1), groups=4)
        x = F.pixel_shuffle(torch.where(x > 0.1, x, 0.2 * x) * torch.sign(x), 2).squeeze(1)
        q, k, v = self.qkv(x).chunk(3, -1)
        a = (q @ k.transpose(1, 2) / 4).masked_fill(self.near, float("-inf")).softmax(-1)
        b = ((q @ k.transpose(1, 2)) / 4 + self.far).masked_fill(self.near.T, -1e9).softmax(-1)
        x = x + self.gate * (a @ v) + self.share * (b @ v)
        y = torch.einsum("nhts,nshd->nthd", a[:, None].expand(-1, 2, -1, -1), torch.einsum("ntc,chd->nthd", x, self.heads))
        z = F.max_pool1d(x.transpose(1, 2), 2).mean(2)
        z = z + x.clamp(min=1e-3).pow(self.power).mean(1).pow(1.0 / self.power)
        return self.fc(torch.cat([z, y.mean(1).flatten(1)], 1))


class Fresh(torch.nn.Module):
    """Batch norms that no convolution takes in and that are not yet trained: the newer exporter writes equal tensors once."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.a, self.b, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 10)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])

    def forward(self, x):
        x = self.norms[0](torch.relu(self.a(x)))
        return self.fc(self.norms[1](torch.relu(self.b(x))).mean((2, 3)))


def windows():
    """A Swin transformer of two blocks: padded and shifted windows, their mask, a trained table of position biases."""
    return torchvision.models.swin_transformer.SwinTransformer([2, 2], 8, [2], [2], [3, 3], num_classes=10, stochastic_depth_prob=0.0)


def prepare(model, seed):
    """Weights as initialised; running statistics that are not 0 and 1; no dropout."""
    torch.manual_seed(seed)
    nets.fill_zero_layers(model)
    for m in model.modules():
        if isinstance(m, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)):
            torch.nn.init.uniform_(m.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(m.running_var, 0.8, 1.2)
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
        if isinstance(m, torch.nn.MultiheadAttention):
            m.dropout = 0.0
        if isinstance(m, torchvision.ops.StochasticDepth):
            m.p = 0.0
        if isinstance(m, timm.layers.DropPath):
            m.drop_prob = 0.0
        if isinstance(getattr(m, "drop_rate", None), float):
            m.drop_rate = 0.0
    if hasattr(model, "aux_logits"):
        model.aux_logits = False
        for name in ("aux1", "aux2", "AuxLogits"):
            if hasattr(model, name):
                setattr(model, name, None)
    return model.eval()


def export(model, x, path, form, **options):
    names = dict(input_names=["input"], output_names=["output"])
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if form in ("dynamo", "raw"):
            batch = torch.export.Dim("batch", max=1024)
            torch.onnx.export(model, (x,), path, dynamo=True, external_data=False, dynamic_shapes=({0: batch},),
                              verbose=False, optimize=form == "dynamo", **names)
        else:
            keeps = form == "norms"
            torch.onnx.export(model, (x,), path, dynamo=False, dynamic_axes={"input": {0: "batch"}},
                              do_constant_folding=not keeps, **names,
                              training=torch.onnx.TrainingMode.PRESERVE if keeps else torch.onnx.TrainingMode.EVAL, **options)


def photos_of(path, n):
    """The first `n` images of a shuffled selection, the same number of each class, f32 [n, 3, H, W], and labels."""
    with tarfile.open(path) as tar:
        members = sorted((m for m in tar if m.isfile() and m.name.split("/")[-3] == "train"), key=lambda m: m.name)
        classes = sorted({m.name.split("/")[-2] for m in members})
        parts = [[m for m in members if m.name.split("/")[-2] == c] for c in classes]
        chosen = [(m, k) for k, part in enumerate(parts) for m in part[:-(-n // len(classes))]]
        pixels = [np.asarray(Image.open(io.BytesIO(tar.extractfile(m).read())).convert("RGB")) for m, _ in chosen]
    order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0))[:n]
    x = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255
    return ((x - MEAN) / STD)[order].contiguous(), torch.tensor([k for _, k in chosen])[order]


def warm_up(model, photos, size, batch, steps):
    """Train in float32; the next batch."""
    def batch_of(step):
        rows = slice(step * batch, (step + 1) * batch)
        x = torch.nn.functional.interpolate(photos[0][rows], size=(size, size), mode="bilinear")
        return x.contiguous(), photos[1][rows]

    model.train()
    sgd = torch.optim.SGD(model.parameters(), 0.02, 0.9)
    for step in range(steps):
        x, labels = batch_of(step)
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        sgd.step()
    model.zero_grad()
    model.eval()
    return batch_of(steps)


def steps_of(model, x, labels, steps, momentum=MOMENTUM, cast=False, lr=LR):
    model.train()
    sgd = torch.optim.SGD(model.parameters(), lr, momentum)
    for _ in range(steps):
        sgd.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            loss = torch.nn.functional.cross_entropy(model(x).to(x.dtype), labels)
        loss.backward()
        sgd.step()
    return {k: v.detach().clone() for k, v in model.state_dict().items() if v.is_floating_point()}


def runtime(path, x):
    """The logits of ONNX Runtime, image by image if the file fixes its batch."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = session.get_inputs()[0]
    n = found.shape[0] if isinstance(found.shape[0], int) else len(x)
    return torch.cat([torch.from_numpy(session.run(None, {found.name: x[i:i + n].numpy()})[0]) for i in range(0, len(x), n)])


class Judge:
    def __init__(self, tandem, folder):
        self.tandem, self.folder, self.bad, self.rows = tandem, folder, 0, {}
        self.unmet = 0

    def run(self, name, *args):
        done = subprocess.run([self.tandem, *map(str, args)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            print(f"{name:20} tandem {' '.join(map(str, args[:4]))}: {lines[-1] if lines else done.returncode}", flush=True)
            self.bad += 1
        return done.returncode == 0

    def say(self, name, what, found, is_good, of="", is_met=True):
        """is_met: the limit itself, not only PyTorch's own error, which leaves little to compare if it is as large."""
        self.bad += not is_good
        self.unmet += is_good and not is_met
        self.rows.setdefault(name, {})[what] = (f"{found:.4f}" if what == "bf16" else f"{found:.1e}") + of.replace("PyTorch ", "")
        shown = f"{found:.4f}" if what == "bf16" else f"{found:.2e}"
        print(f"{name:20} {what:10} {shown} {'WRONG' if not is_good else 'ok' if is_met else 'no worse than PyTorch'}{of}", flush=True)

    def compare(self, name, what, found, y):
        found = float((found - y).abs().max() / y.abs().max())
        self.say(name, what, found, found < LIMIT)

    def logits(self, name, form, x):
        if self.run(name, "evaluate", "in.safetensors", "--model", f"{form}.onnx", "--data-backend", "tensors", "-b", 2,
                    "--logits", "out.safetensors", "--precision", "fp32"):
            self.compare(name, form, next(iter(load_file(self.folder / "out.safetensors").values())),
                         runtime(self.folder / f"{form}.onnx", x))

    def train(self, name, steps, momentum, precision, form="norms", batch=4, lr=LR):
        if not self.run(name, "train", "in.safetensors", "--model", f"{form}.onnx", "--data-backend", "tensors", "-b", batch,
                        "--run-iters", steps, "--lr", lr, "--momentum", momentum, "--weight-decay", 0, "--lr-schedule", "step",
                        "--warmup", 0, "--training-only", "--no-checkpoints", "--workspace", "w",
                        "--final-weights", "trained.safetensors", "--overwrite", "--precision", precision):
            return None
        return load_file(self.folder / "trained.safetensors")

    def training(self, name, before, after, truth, steps, form="norms"):
        found = self.train(name, steps, MOMENTUM, "fp32", form)
        if not found:
            return
        missing = [k for k in after if k not in found]
        if missing:
            print(f"{name}: no {missing[:3]}")
            self.bad += 1
            return
        ours, theirs = way(truth, found, before), way(truth, after, before)
        what = f"{steps} steps" + (" by dynamo" if form == "raw" else "")
        self.say(name, what, ours, ours < max(STEP_LIMIT, 3 * theirs), f" (PyTorch {theirs:.1e})", ours < STEP_LIMIT)

    def half(self, name, model, x, labels):
        before = {k: v.detach().clone() for k, v in model.state_dict().items()}
        truth = steps_of(copy.deepcopy(model).double(), x.double(), labels, 1, 0, lr=HALF_LR)
        theirs = steps_of(copy.deepcopy(model), x, labels, 1, 0, True, HALF_LR)
        found = self.train(name, 1, 0, "bf16", batch=len(x), lr=HALF_LR)
        if found:
            ours, theirs = cosine(found, truth, before), cosine(theirs, truth, before)
            self.say(name, "bf16", ours, ours >= min(COSINE, theirs - 0.01), f" (PyTorch {theirs:.4f})", ours >= COSINE)

    def again(self, name, x):
        if self.run(name, "convert", "norms.onnx", "weights.safetensors", "--overwrite") and \
           self.run(name, "convert", "weights.safetensors", "again.onnx", "--overwrite", "--opset", 17, "--image-size", x.shape[-1]):
            for n in (1, 3, len(x)):
                self.compare(name, "again", runtime(self.folder / "again.onnx", x[:n]), runtime(self.folder / "norms.onnx", x[:n]))


def way(truth, found, before):
    """The distance of two sets of weights, divided by the length of the way from `before`."""
    def length(a, b):
        return sum(float(((a[k].double() - b[k].double()) ** 2).sum()) for k in truth) ** 0.5
    return length(found, truth) / length(truth, before)


def cosine(a, b, before):
    """Of the steps of all weights; running statistics are none."""
    names = [k for k in b if "running_" not in k]
    x, y = (torch.cat([(s[k].double() - before[k].double()).reshape(-1) for k in names]) for s in (a, b))
    return float(torch.nn.functional.cosine_similarity(x, y, dim=0))


def judge_network(judge, model, name, size, steps, forms):
    prepare(model, 1)
    x, labels = torch.randn(4, 3, size, size), torch.randint(0, 10, (4,))
    save_file({"images": x, "labels": labels}, judge.folder / "in.safetensors")
    for form in forms:
        try:
            export(copy.deepcopy(model), x[:2], str(judge.folder / f"{form}.onnx"), form)
        except Exception as e:  # the exporter's own limits
            print(f"{name:20} {form:10} torch.onnx: {str(e).strip().splitlines()[0][:100]}", flush=True)
            continue
        judge.logits(name, form, x)
    judge.again(name, x)
    before = {k: v.detach().clone() for k, v in model.state_dict().items()}
    wide = copy.deepcopy(model).double()
    judge.half(name, model, x, labels)
    if not any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules()):
        try:
            export(copy.deepcopy(model), x[:2], str(judge.folder / "raw.onnx"), "raw")
        except Exception as e:
            print(f"{name:20} raw        torch.onnx: {str(e).strip().splitlines()[0][:100]}", flush=True)
    after, truth = steps_of(model, x, labels, steps), steps_of(wide, x.double(), labels, steps)
    for form in ("norms", "raw"):
        if (judge.folder / f"{form}.onnx").exists():
            judge.training(name, before, after, truth, steps, form)


def judge_half(judge, model, name, size, photos, batch, steps):
    x, labels = warm_up(prepare(model, 1), photos, size, batch, steps)
    save_file({"images": x, "labels": labels}, judge.folder / "in.safetensors")
    export(copy.deepcopy(model), x[:2], str(judge.folder / "norms.onnx"), "norms")
    judge.half(name, model, x, labels)


def write_table(path, rows):
    columns = {what for row in rows.values() for what in row}
    steps = [what for what in columns if "steps" in what]
    order = [what for what in ("folded", "dynamo", "norms", "again", *steps, "bf16") if what in columns]
    with open(path, "w", encoding="utf-8") as f:
        f.write("| network | " + " | ".join(order) + " |\n|" + "---|" * (len(order) + 1) + "\n")
        for name, row in rows.items():
            f.write(f"| {name} | " + " | ".join(row.get(c, "") for c in order) + " |\n")


def strip(model, keeps_kinds=False):
    """Without the exporter's notes: names of functions and files; all but what kind of tensors there are."""
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, model.graph):
        kept = [p for p in part.metadata_props if keeps_kinds and p.key.endswith("InputSpec.kind")]
        part.ClearField("metadata_props")
        part.metadata_props.extend(kept)
        part.ClearField("doc_string")
    return model


def shorten(model, keeps_kinds=False):
    """Short names of nodes and of their results; no declared types, but those of tensors."""
    graph, names = model.graph, {"": ""}
    kept = {v.name for v in (*graph.output, *graph.initializer)}
    kept |= {name for node in graph.node if node.op_type == "Identity" for name in node.output}  # a parameter's name
    for i, node in enumerate(graph.node):
        node.name = f"{node.op_type}_{i}"
        node.input[:] = [names.get(name, name) for name in node.input]
        for k, name in enumerate(node.output):
            if name not in kept:
                names[name] = f"v{i}_{k}" if k else f"v{i}"
        node.output[:] = [names.get(name, name) for name in node.output]
    tensors = {t.name for t in graph.initializer}
    declared = [v for v in graph.value_info if keeps_kinds and v.name in tensors]
    graph.ClearField("value_info")
    graph.value_info.extend(declared)
    return model


def write_golden(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = prepare(Small(), 1)
    x, labels = torch.randn(4, 3, 34, 34), torch.randint(0, 10, (4,))
    save_file({"images": x, "labels": labels}, folder / "in.safetensors")
    for form in ("folded", "dynamo", "norms"):
        export(model, x[:2], str(folder / f"{form}.onnx"), form)
    export(torch.nn.Sequential(model, torch.nn.Sigmoid()), x[:2], str(folder / "sigmoid.onnx"), "folded")
    onnx.save(strip(onnx.load(folder / "dynamo.onnx")), folder / "dynamo.onnx")
    onnx.save_model(onnx.load(folder / "dynamo.onnx"), folder / "beside.onnx", save_as_external_data=True,
                    location="beside.onnx.data", size_threshold=64)
    with torch.no_grad():
        y = model(x)
    save_file({"logits": y}, folder / "logits.safetensors")
    save_file(steps_of(model, x, labels, 3), folder / "trained.safetensors")
    model = prepare(More(), 1)
    x = torch.randn(4, 3, 24, 24)
    save_file({"images": x, "labels": labels}, folder / "more_in.safetensors")
    export(model, x[:2], str(folder / "more.onnx"), "norms")
    export(model, x[:2], str(folder / "opset11.onnx"), "folded", opset_version=11)
    with torch.no_grad():
        save_file({"logits": model(x)}, folder / "more_logits.safetensors")
    save_file(steps_of(model, x, labels, 3), folder / "more_trained.safetensors")
    model = prepare(windows(), 1)
    x = torch.randn(4, 3, 16, 16)
    save_file({"images": x, "labels": labels}, folder / "windows_in.safetensors")
    for form in ("dynamo", "norms"):
        export(model, x[:2], str(folder / f"windows_{form}.onnx"), form)
        onnx.save(shorten(strip(onnx.load(folder / f"windows_{form}.onnx"))), folder / f"windows_{form}.onnx")
    with torch.no_grad():
        save_file({"logits": model(x)}, folder / "windows_logits.safetensors")
    save_file(steps_of(model, x, labels, 3), folder / "windows_trained.safetensors")
    write_case(folder, "rare", prepare(Rare(), 1), torch.randn(4, 3, 18, 18), labels, "norms")
    write_case(folder, "grouped", prepare(Grouped(), 1), torch.randn(4, 3, 8, 8), labels, "norms")
    write_chosen(folder, labels)
    write_fresh(folder, labels)


def write_chosen(folder, labels):
    torch.manual_seed(0)
    model, x = prepare(Chosen(), 1), torch.randn(4, 3, 8, 8)
    export(model, x[:2], str(folder / "chosen_raw.onnx"), "raw")
    onnx.save(shorten(strip(onnx.load(folder / "chosen_raw.onnx"), True), True), folder / "chosen_raw.onnx")
    write_case(folder, "chosen", model, x, labels, "norms")


def write_case(folder, name, model, x, labels, form):
    """A file, its images and labels, its logits and its weights after three steps; the shortened model and the weights."""
    save_file({"images": x, "labels": labels}, folder / f"{name}_in.safetensors")
    export(model, x[:2], str(folder / f"{name}.onnx"), form)
    file = shorten(strip(onnx.load(folder / f"{name}.onnx")))
    onnx.save(file, folder / f"{name}.onnx")
    with torch.no_grad():
        save_file({"logits": model(x)}, folder / f"{name}_logits.safetensors")
    trained = steps_of(model, x, labels, 3)
    save_file(trained, folder / f"{name}_trained.safetensors")
    return file, trained


def write_fresh(folder, labels):
    torch.manual_seed(1)
    file, trained = write_case(folder, "fresh", Fresh().eval(), torch.randn(4, 3, 8, 8), labels, "dynamo")
    norms = [node for node in file.graph.node if node.op_type == "BatchNormalization"]
    assert len({name for node in norms for name in node.input[1:]}) == 2, "the exporter wrote equal tensors more than once"
    for i, node in enumerate(norms):
        for part in ("weight", "bias", "running_mean", "running_var"):
            trained[f"{node.output[0]}.{part}"] = trained.pop(f"norms.{i}.{part}")
    save_file(trained, folder / "fresh_trained.safetensors")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tandem", default="build/release/tandem")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--golden", type=pathlib.Path)
    p.add_argument("--table", help="write the numbers as Markdown")
    p.add_argument("--photos", help="judge bf16 alone, after training on these: a tar file of NAME/train/CLASS/*.jpg")
    p.add_argument("--warm-up", type=int, default=100, help="steps of training with --photos")
    p.add_argument("--batch", type=int, default=32, help="with --photos")
    p.add_argument("--size", type=int, help="side of the images with --photos")
    p.add_argument("names", nargs="*")
    o = p.parse_args()
    if o.golden:
        return write_golden(o.golden)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(os.path.abspath(o.tandem), pathlib.Path(folder))
        photos = photos_of(o.photos, (o.warm_up + 1) * o.batch) if o.photos else None
        for name in o.names or (() if photos else ("small", "more", "windows")) + NETWORKS:
            torch.manual_seed(0)
            for old in judge.folder.glob("*.onnx"):
                old.unlink()
            size = o.size if photos and o.size else SIZES.get(name, 224 if name.startswith("vgg") else 64)
            if name == "small":
                model, size = Small(), 34
            elif name == "more":
                model, size = More(), 24
            elif name == "windows":
                model, size = windows(), 16
            elif name.startswith("timm/"):
                model = timm.create_model(name[5:], exportable=True, **(dict(img_size=size) if name.startswith(SIZED) else {}))
            else:
                options = dict(image_size=size) if name.startswith("vit") else {}
                options |= dict(init_weights=False) if name in ("googlenet", "inception_v3") else {}
                model = getattr(torchvision.models, name)(weights=None, **options)
            if photos:
                judge_half(judge, model, name, size, photos, o.batch, o.warm_up)
                continue
            forms = ("folded", "dynamo", "norms")
            judge_network(judge, model, name, size, o.steps, forms)
    if o.table:
        write_table(o.table, judge.rows)
    print(f"{len(judge.rows)} networks, {judge.bad} failures, {judge.unmet} limits met only by PyTorch's measure")
    sys.exit(judge.bad > 0)


if __name__ == "__main__":
    main()
