#!/usr/bin/env python3
"""Tandem against torchvision and timm, families other than the residual networks of networks.py.

    families.py --tandem build/tandem                       every network
    families.py --tandem build/tandem --arch densenet121    one of them
    families.py --tandem build/tandem --names               only the exchange of weight files

Both sides start from the same float32 numbers: PyTorch's initial values, random running statistics.  The other side
computes in float64; PyTorch's own float32 is judged by the same measure and printed beside (`torch`).  Dropout and
stochastic depth are off on both sides.  ReLU inputs lie within rounding of zero in any ordinary network, where a
gradient is another one, so all but logits and statistics are judged as one vector (L2); gradients of networks without
ReLU are judged tensor by tensor.  One line a check; exit status 1 if any fails.
"""

import argparse
import os
import sys
import tempfile

import numpy as np
import torch
import torchvision
from safetensors.numpy import save_file

import fill
import nets
import networks
from command import (DECAY, EPOCHS, LR, MOMENTUM, ROWS, STEPS, WARMUP, Judge, Tandem, l2, off, only, split_state,
                     train_args, worst)

BATCH, CLASSES = 4, 10
LIMITS = {"logits_eval": 1e-5, "logits_train": 1e-5, "gradients": 1e-5, "statistics": 1e-5, "weights": 1e-6,
          "momentum": 1e-4}

# name -> side of the images
ARCHS = {
    **{f"vgg{n}{bn}": 64 for n in (11, 13, 16, 19) for bn in ("", "_bn")},
    **{f"densenet{n}": 64 for n in (121, 169, 201)},
    "resnet50d": 97,
    "squeezenet1_1": 64,
    **{f"regnet_y_{n}": 64 for n in ("400mf", "8gf")},
    **{f"shufflenet_v2_{n}": 64 for n in ("x0_5", "x1_0", "x1_5", "x2_0")},
    **{f"convnext_{n}": 64 for n in ("tiny", "small", "base", "large")},
    **{f"vit_{n}": 64 for n in ("b_16", "b_32", "l_16", "l_32")},
    "mobilenet_v2": 64,
    **{f"mobilenet_v3_{n}": 64 for n in ("large", "small")},
    **{f"efficientnet_b{n}": 128 for n in range(5)},
    **{f"efficientnet-{kind}b{n}": 128 for kind in ("", "widese-") for n in (0, 4)},
}
TIMM = ("resnet50d",)
SMOOTH = ("convnext", "vit")  # no ReLU: gradients are judged tensor by tensor
DEEP = ("efficientnet",)  # ill-conditioned and without kinks: twice PyTorch's own error in float32 is allowed
HUGE = 32 << 20  # parameters; of larger networks only one in a family is trained, see TRAINED
TRAINED = ("vgg11", "vgg16_bn", "vit_b_16")


def build(arch, classes):
    torch.manual_seed(1)
    if arch in TIMM:
        import timm

        return timm.create_model(arch, num_classes=classes)
    if arch.startswith("efficientnet-"):
        return nvidia(arch, classes)
    sides = {"image_size": ARCHS[arch]} if arch.startswith("vit") else {}
    return getattr(torchvision.models, arch)(weights=None, num_classes=classes, **sides)


def smooth_start(net, generator):
    """PyTorch's initial values, but none of them all equal, and layer scales near 1: a scale of 1e-6 would hide its block,
    a head of zeros all that is before it."""
    for name, x in net.named_parameters():
        noise = torch.randn(x.shape, generator=generator)
        if "layer_scale" in name:
            x.data.copy_(0.5 + 0.1 * noise)
        elif x.data.std() == 0:
            x.data.add_((0.05 if x.dim() > 1 else 0.1) * noise)
    return {n: t.clone() for n, t in net.state_dict().items()}


class Nvidia(torchvision.models.EfficientNet):
    """NVIDIA's edition, built from torchvision's blocks: other norms, names and initial values, in part wider gates."""

    PARTS = {1: ("depsep", "se", "proj"), 6: ("expand", "depsep", "se", "proj")}

    def renamed(self, name):
        top, i, *rest = name.split(".")
        if top == "classifier":
            return ".".join(["classifier", "fc", *rest])
        layer = {"0": "conv", "1": "bn"}
        if int(i) in (0, 8):
            return ".".join([{"0": "stem", "8": "features"}[i], layer[rest[0]], *rest[1:]])
        k, _, part, sub, *last = rest
        part = self.PARTS[1 if i == "1" else 6][int(part)]
        sub = {"fc1": "squeeze", "fc2": "expand"}[sub] if part == "se" else layer[sub]
        return ".".join(["layers", str(int(i) - 1), f"block{k}", part, sub, *last])

    def state_dict(self, *args, **kwargs):
        return {self.renamed(n): t for n, t in super().state_dict(*args, **kwargs).items()}

    def load_state_dict(self, state, strict=True):
        own = {self.renamed(n): n for n in super().state_dict()}
        return super().load_state_dict({own.get(n, n): t for n, t in state.items()}, strict)

    def named_parameters(self, *args, **kwargs):
        return ((self.renamed(n), p) for n, p in super().named_parameters(*args, **kwargs))

    def named_buffers(self, *args, **kwargs):
        return ((self.renamed(n), b) for n, b in super().named_buffers(*args, **kwargs))


def nvidia(arch, classes):
    from functools import partial

    wide, deep, dropout = {"b0": (1.0, 1.0, 0.2), "b4": (1.4, 1.8, 0.4)}[arch[-2:]]
    shapes, _ = torchvision.models.efficientnet._efficientnet_conf("efficientnet_b0", width_mult=wide, depth_mult=deep)
    net = Nvidia(shapes, dropout, num_classes=classes, norm_layer=partial(torch.nn.BatchNorm2d, eps=1e-3, momentum=0.01))
    for module in list(net.modules()):  # before the layers that the last branch makes
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_in")
        if isinstance(module, torch.nn.Linear):
            module.reset_parameters()
        if isinstance(module, torchvision.ops.SqueezeExcitation):
            hidden = module.fc1.in_channels
            units = hidden // 4 if "widese" in arch else module.fc1.out_channels
            module.fc1 = torch.nn.Conv2d(hidden, units, 1)
            module.fc2 = torch.nn.Conv2d(units, hidden, 1)
    return net


def start(arch):
    """The network's state in float32: PyTorch's initial values, but running statistics that are not 0 and 1, and norms
    that keep most ReLU inputs away from zero: a channel's bias is 3.5 or, of one channel in four, -3.5; of one in 64 it
    is near 0.  A network without norms gets layers whose results are like that.  Inputs of hard swish keep away from -3 and 3,
    where its derivative jumps by 1/2: a channel is within them, or beyond one of them.  (Among 10^5 inputs near 3 one is
    2e-6 away, which is rounding in float32, and that jump alone moves momentum buffers by 1e-2 after four more steps.)"""
    net = build(arch, CLASSES).eval()
    generator = torch.Generator().manual_seed(2)
    if arch.startswith(SMOOTH):
        return smooth_start(net, generator)
    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    hard = {m[1] for m in net.modules() if isinstance(m, torch.nn.Sequential) and len(m) == 3
            and isinstance(m[1], torch.nn.BatchNorm2d) and isinstance(m[2], torch.nn.Hardswish)}

    def offsets(n):
        sign = torch.where(torch.rand(n, generator=generator) < 0.25, -1.0, 1.0)
        far = sign * (3.5 + 0.5 * torch.rand(n, generator=generator))
        near = 2 * torch.rand(n, generator=generator) - 1
        return torch.where(torch.arange(n) % 64 == 5, near, far)

    def offset(module, args, out):
        del args
        shape = (1, -1, 1, 1) if out.dim() == 4 else (1, -1)
        axes = (0, 2, 3) if out.dim() == 4 else (0, 1)
        scale = 0.3 / out.std(axes)
        shift = 0.3 * offsets(module.bias.numel()) - scale * out.mean(axes)
        module.weight.data.mul_(scale.view(-1, *[1] * (module.weight.dim() - 1)))
        module.bias.data.mul_(scale).add_(shift)
        return out * scale.view(shape) + shift.view(shape)

    for module in norms:
        module.bias.data.copy_(offsets(module.bias.numel()))
        module.weight.data.copy_(0.9 + 0.2 * torch.rand(module.bias.numel(), generator=generator))
        if module in hard:
            module.weight.data.mul_(0.5)
            module.bias.data.copy_(6.0 * torch.randint(-1, 2, (module.bias.numel(),), generator=generator))
    if not norms:
        layers = [m for m in net.modules() if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))][:-1]
        hooks = [m.register_forward_hook(offset) for m in layers]
        with torch.no_grad():
            net(torch.from_numpy(fill.images("one.", BATCH, ARCHS[arch])))
        for hook in hooks:
            hook.remove()
    if arch.startswith("efficientnet-"):  # its initial values grow from layer to layer unless norms have the images' statistics
        for module in norms:
            module.momentum = 1.0
        with torch.no_grad():
            net.train()(torch.from_numpy(fill.images("one.", BATCH, ARCHS[arch])))
        return {n: t.clone() for n, t in net.state_dict().items()}
    for name, x in net.named_buffers():
        if name.endswith("running_mean"):
            x.copy_(0.2 * torch.rand(x.shape, generator=generator) - 0.1)
        elif name.endswith("running_var"):
            x.copy_(0.5 + torch.rand(x.shape, generator=generator))
    return {n: t.clone() for n, t in net.state_dict().items()}


def network(arch, state, dtype):
    net = build(arch, CLASSES)
    net.load_state_dict(state)
    for module in net.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    return net.to(dtype)


def one_step(arch, state, images, labels, dtype):
    net = network(arch, state, dtype)
    x, y = torch.from_numpy(images).to(dtype), torch.from_numpy(labels)
    net.eval()
    with torch.no_grad():
        evaluated = net(x).double().numpy().copy()
    net.train()
    logits = net(x)
    networks.loss_of(logits, y).backward()
    return {"logits_eval": evaluated, "logits_train": logits.detach().double().numpy(),
            "gradients": networks.numpy_of((n, p.grad) for n, p in net.named_parameters()),
            "statistics": networks.statistics(net)}


def several_steps(arch, state, images, labels, dtype, lr):
    net = network(arch, state, dtype).train()
    named = list(net.named_parameters())
    groups = [{"params": [p for n, p in named if "bn" in n], "weight_decay": 0.0},
              {"params": [p for n, p in named if "bn" not in n], "weight_decay": DECAY}]
    sgd = torch.optim.SGD([g for g in groups if g["params"]], lr=lr, momentum=MOMENTUM)
    x, y = torch.from_numpy(images).to(dtype), torch.from_numpy(labels)
    for step in range(STEPS):
        row = step * BATCH % ROWS
        for group in sgd.param_groups:
            group["lr"] = networks.rate(step) / LR * lr
        sgd.zero_grad()
        networks.loss_of(net(x[row:row + BATCH]), y[row:row + BATCH]).backward()
        sgd.step()
    return {"weights": networks.numpy_of(named),
            "momentum": networks.numpy_of((n, sgd.state[p]["momentum_buffer"]) for n, p in named),
            "statistics": networks.statistics(net)}


def compare(judge, case, got, want, peer, stage):
    for what in want:
        if not isinstance(want[what], np.ndarray) and not want[what]:
            continue  # a network without norms has no statistics
        is_vector = what == "weights" or what in ("gradients", "momentum") and not case.startswith(SMOOTH)
        measure = l2 if is_vector else worst
        if what.startswith("logits"):
            measure = lambda a, b: (off(a, b), "")
        error, where = measure(got[what], want[what])
        own = measure(peer[what], want[what])[0]
        limit = max(LIMITS[what], 2 * own) if case.startswith(DEEP) else LIMITS[what]
        judge.say(case, f"{what} {stage}", error, where, limit, own)


def check_steps(judge, tandem, arch, options):
    side, lr, state = ARCHS[arch], 0.01, start(arch)
    case = f"{arch}-s{side}"
    names = [n for n, _ in build(arch, CLASSES).named_parameters()]
    save_file({n: np.ascontiguousarray(t.numpy()) for n, t in state.items()}, tandem.file("start.safetensors"))
    common = ["--data-backend", "tensors", "--arch", arch, "--num-classes", str(CLASSES), "--image-size", str(side),
              "-b", str(BATCH)]
    weights = ["--pretrained-weights", tandem.file("start.safetensors")]

    images, labels = fill.images("one.", ROWS, side), fill.labels("one.", ROWS, CLASSES)
    tandem.data("one.safetensors", images[:BATCH], labels[:BATCH])
    tandem.data("many.safetensors", images, labels)
    tandem.run("evaluate", tandem.file("one.safetensors"), *common, *weights, "--logits",
               tandem.file("logits.safetensors"))
    tandem.run("train", tandem.file("one.safetensors"), *common, *weights, *options,
               *train_args(1, MOMENTUM, 0.0, lr), "--train-logits", tandem.file("train.safetensors"),
               "--final-weights", tandem.file("end.safetensors"))
    end = tandem.out("end.safetensors")
    got = {"logits_eval": only(tandem.out("logits.safetensors"), "logits"),
           "logits_train": only(tandem.out("train.safetensors"), "logits"),
           "gradients": split_state(end, names), "statistics": end}
    want = one_step(arch, state, images[:BATCH], labels[:BATCH], torch.float64)
    compare(judge, case, got, want, one_step(arch, state, images[:BATCH], labels[:BATCH], torch.float32), "")

    tandem.run("train", tandem.file("many.safetensors"), *common, *weights, *options,
               *train_args(STEPS, MOMENTUM, DECAY, lr), "--final-weights", tandem.file("end.safetensors"))
    end = tandem.out("end.safetensors")
    got = {"weights": end, "momentum": split_state(end, names), "statistics": end}
    want = several_steps(arch, state, images, labels, torch.float64, lr)
    compare(judge, case, got, want, several_steps(arch, state, images, labels, torch.float32, lr), f"@{STEPS}")


def check_old_names(judge, tandem, arch, state, want):
    """NVIDIA's first files name stages layer1 .. layer7; both names, and those of several GPUs, survive `convert`."""
    def old(name):
        top, i, *rest = name.split(".")
        return ".".join([f"layer{int(i) + 1}", *rest]) if top == "layers" else name

    for kind, name in [("today's names", lambda n: n), ("first names", old), ("names of DDP", lambda n: "module." + n)]:
        torch.save({name(n): t for n, t in state.items()}, tandem.file("old.pth"))
        tandem.run("convert", "--overwrite", tandem.file("old.pth"), tandem.file("old.safetensors"))
        tandem.run("evaluate", tandem.file("one.safetensors"), "--data-backend", "tensors", "--arch", arch, "--weights",
                   tandem.file("old.safetensors"), "--image-size", str(ARCHS[arch]), "--logits",
                   tandem.file("logits.safetensors"))
        judge.say(f"{arch} names", f"{kind}, converted", off(only(tandem.out("logits.safetensors"), "logits"), want), "",
                  1e-4)


def check_names(judge, tandem, arch):
    """`init` files load strictly there, and a .pth of theirs gives the same logits here; initial values by layer."""
    case, classes = f"{arch} names", 1000
    tandem.run("init", "--overwrite", "--arch", arch, "--seed", "1", "--num-classes", str(classes),
               "--image-size", str(ARCHS[arch]), "-o", tandem.file("init.safetensors"))
    nets.check_initial(judge, case, tandem.out("init.safetensors"), build(arch, classes))

    state = start(arch)
    torch.save(state, tandem.file("theirs.pth"))
    side = ARCHS[arch]
    images = fill.images("names.", BATCH, side)
    tandem.data("one.safetensors", images, np.zeros(BATCH, np.int64))
    with torch.no_grad():
        want = network(arch, state, torch.float64).eval()(torch.from_numpy(images).double()).numpy()
    tandem.run("evaluate", tandem.file("one.safetensors"), "--data-backend", "tensors", "--arch", arch, "--weights",
               tandem.file("theirs.pth"), "--image-size", str(side), "--logits", tandem.file("logits.safetensors"))
    judge.say(case, "their .pth loads", off(only(tandem.out("logits.safetensors"), "logits"), want), "", 1e-4)
    if arch.startswith("efficientnet-"):
        check_old_names(judge, tandem, arch, state, want)
    return state


def check_onnx(judge, tandem, arch):
    """The exported file in ONNX Runtime against the command."""
    import onnxruntime

    side = ARCHS[arch]
    tandem.run("convert", "--overwrite", "--arch", arch, "--image-size", str(side), "--num-classes", str(CLASSES),
               tandem.file("theirs.pth"), tandem.file("net.onnx"))
    images = fill.images("names.", BATCH, side)
    session = onnxruntime.InferenceSession(tandem.file("net.onnx"), providers=["CPUExecutionProvider"])
    got = session.run(None, {session.get_inputs()[0].name: images})[0]
    with torch.no_grad():
        want = network(arch, start(arch), torch.float64).eval()(torch.from_numpy(images).double()).numpy()
    judge.say(f"{arch} onnx", "ONNX Runtime", off(got, want), "", 1e-4)
    tandem.run("inspect", "amp", "--arch", arch, "--image-size", str(side), "--precision", "bf16", "--training")
    judge.fact(f"{arch} bf16", "training graph", True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tandem", required=True, help="the command to judge")
    p.add_argument("--arch", action="append", choices=list(ARCHS), help="default: all; may be repeated")
    p.add_argument("--names", action="store_true", help="only the exchange of weight files")
    p.add_argument("--all-steps", action="store_true", help="train the large networks of a family, too")
    p.add_argument("--threads", type=int, default=os.cpu_count(), help="of both programs")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    judge = Judge()
    for arch in o.arch or ARCHS:
        with tempfile.TemporaryDirectory() as folder:
            tandem = Tandem(o.tandem, folder, o.threads)
            try:
                size = sum(a.numel() for a in check_names(judge, tandem, arch).values())
                if o.names:
                    continue
                check_onnx(judge, tandem, arch)
                if size <= HUGE or arch in TRAINED or o.all_steps:
                    check_steps(judge, tandem, arch, ["--dropout", "0", "--stochastic-depth", "0"])
            except (RuntimeError, KeyError, OSError, ValueError) as e:
                judge.fact(arch, "ran", False, str(e)[:400])
    print(f"{judge.failed} checks failed" if judge.failed else "all checks passed")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())
