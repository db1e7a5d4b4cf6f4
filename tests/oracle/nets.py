"""The architectures as PyTorch modules with torchvision's and timm's names.

torchvision and timm supply what they have; ResNeXt101-32x4d is torchvision's class with other numbers;
the squeeze-and-excitation networks with 16 hidden units in every block are torchvision's ResNet with
the block below.
"""

import numpy as np
import torch
import torchvision
import torchvision.models.resnet as tv


class SqueezeExcite(torch.nn.Module):
    """x * sigmoid(fc2(relu(fc1(mean of x over height and width)))), as 1x1 convolutions like timm's"""

    def __init__(self, channels, hidden):
        super().__init__()
        self.fc1 = torch.nn.Conv2d(channels, hidden, 1)
        self.relu = torch.nn.ReLU()
        self.fc2 = torch.nn.Conv2d(hidden, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.fc2(self.relu(self.fc1(x.mean((2, 3), keepdim=True)))))


class SqueezedBottleneck(tv.Bottleneck):
    """torchvision's bottleneck (stride on the 3x3), gated before the residual addition."""

    def __init__(self, inplanes, planes, *args, **kwargs):
        super().__init__(inplanes, planes, *args, **kwargs)
        self.se = SqueezeExcite(planes * self.expansion, 16)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.se(self.bn3(self.conv3(out)))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


def _resnet(block, layers, **kwargs):
    return lambda classes: tv.ResNet(block, layers, num_classes=classes, **kwargs)


def _timm(name):
    def make(classes):
        import timm  # here, because bench/ measures start-up of programs that do not need it

        return timm.create_model(name, num_classes=classes)

    return make


_GROUPED = {"groups": 32, "width_per_group": 4}
_NETS = {
    "resnet18": _resnet(tv.BasicBlock, [2, 2, 2, 2]),
    "resnet34": _resnet(tv.BasicBlock, [3, 4, 6, 3]),
    "resnet50": _resnet(tv.Bottleneck, [3, 4, 6, 3]),
    "resnet101": _resnet(tv.Bottleneck, [3, 4, 23, 3]),
    "resnet152": _resnet(tv.Bottleneck, [3, 8, 36, 3]),
    "resnext50-32x4d": _resnet(tv.Bottleneck, [3, 4, 6, 3], **_GROUPED),
    "resnext101-32x4d": _resnet(tv.Bottleneck, [3, 4, 23, 3], **_GROUPED),
    "se-resnet50": _resnet(SqueezedBottleneck, [3, 4, 6, 3]),
    "se-resnext101-32x4d": _resnet(SqueezedBottleneck, [3, 4, 23, 3], **_GROUPED),
    "seresnet50": _timm("seresnet50"),
    "seresnext101_32x4d": _timm("seresnext101_32x4d"),
}
ARCHS = list(_NETS)

# Trainable elements with 1000 classes.
PARAMETERS = {
    "resnet18": 11689512,
    "resnet34": 21797672,
    "resnet50": 25557032,
    "resnet101": 44549160,
    "resnet152": 60192808,
    "resnext50-32x4d": 25028904,
    "resnext101-32x4d": 44177704,
    "se-resnet50": 26055720,
    "se-resnext101-32x4d": 45251128,
    "seresnet50": 28088024,
    "seresnext101_32x4d": 48955416,
}

# How `tandem` is asked for each of them.
TANDEM_ARGS = {arch: ["--arch", arch] for arch in ARCHS}


def build(arch, classes):
    """A module in float32 with PyTorch's own initial weights; a name that is not listed here is torchvision's."""
    if arch in _NETS:
        return _NETS[arch](classes)
    return torchvision.models.get_model(arch, weights=None, num_classes=classes)


def fill_zero_layers(net):
    """Draw the weights of linear layers that begin at zero, as the head of torchvision's vision transformers does: such a
    layer gives the same logits whatever is before it.  Returns `net`."""
    for layer in net.modules():
        if isinstance(layer, torch.nn.Linear) and not layer.weight.any():
            torch.nn.init.normal_(layer.weight, std=0.02)
    return net


def is_basic(arch):
    """Whether the residual blocks have two convolutions, not three."""
    return arch in ("resnet18", "resnet34")


def shapes(net):
    """Canonical name -> shape of every entry of the state."""
    return {name: tuple(t.shape) for name, t in net.state_dict().items()}


def load(net, state):
    """Fill `net` from arrays, exactly its names and shapes, and return it."""
    net.load_state_dict({name: torch.from_numpy(a) for name, a in state.items()}, strict=True)
    return net


def check_initial(judge, case, made, net):
    """The tensors `made` by `init` load strictly into `net`; their mean and spread by layer are those of its initial values."""
    theirs = {n: t.numpy().copy() for n, t in net.state_dict().items()}
    try:
        load(net, made)
        judge.fact(case, "init loads, strict", True, f"{len(made)} tensors")
    except RuntimeError as e:
        judge.fact(case, "init loads, strict", False, str(e)[:300])
    wrong = []
    for n, a in theirs.items():
        if a.dtype != np.float32 or a.size < 256:
            continue
        spread, own = a.std(), made[n].std()
        if abs(own - spread) > 0.02 * spread + 4 * spread / np.sqrt(a.size) or abs(
                a.mean() - made[n].mean()) > 6 * spread / np.sqrt(a.size) + 1e-7:
            wrong.append(f"{n} {own:.4g} not {spread:.4g}")
    judge.fact(case, "initial values", not wrong, "; ".join(wrong[:4]))
