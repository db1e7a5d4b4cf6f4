#!/usr/bin/env python3
"""Tandem's networks for gray images (`--channels 1`) against torchvision, timm and Pillow.

    gray.py --tandem build/tandem                      a network of each family
    gray.py --tandem build/tandem --arch densenet121   one of them

The networks are those of families.py with a first convolution of one channel, whose filter is timm's
adapt_input_conv(1, ..) of three; all of that script's checks but initial values are run.  Then: a file of weights for RGB images read
with `--channels 1`, and an ONNX file of a gray network that torch.onnx wrote, have PyTorch's logits; every image of
tests/data/images becomes the pixels of Pillow's convert("L"), resized and cropped by torchvision.  One line a check;
exit status 1 if any fails.
"""

import argparse
import glob
import os
import sys
import tempfile

import numpy as np
import timm.models
import torch
import torchvision.transforms as T
from PIL import Image
from safetensors.numpy import load_file, save_file

import families
import fill
import nets
from command import Judge, Tandem, off, only

HERE = os.path.dirname(os.path.abspath(__file__))
ARCHS = ("resnet18", "vgg11_bn", "densenet121", "resnet50d", "squeezenet1_1", "regnet_y_400mf", "shufflenet_v2_x0_5",
         "convnext_tiny", "vit_b_32", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "efficientnet-widese-b0")
MEAN, STD = 0.449, 0.226
families.ARCHS["resnet18"] = 64
rgb_build, rgb_images = families.build, fill.images


def gray_of(net):
    """The network with its first convolution for one channel, as timm's in_chans=1."""
    for parent in net.modules():
        for name, conv in parent.named_children():
            if isinstance(conv, torch.nn.Conv2d):
                one = torch.nn.Conv2d(1, conv.out_channels, conv.kernel_size, conv.stride, conv.padding,
                                      bias=conv.bias is not None)
                one.weight.data = timm.models.adapt_input_conv(1, conv.weight.data)
                if conv.bias is not None:
                    one.bias.data = conv.bias.data
                setattr(parent, name, one)
                return net
    raise ValueError("no convolution")


def gray_build(arch, classes):
    return gray_of(rgb_build(arch, classes))


def gray_images(*args):
    return np.ascontiguousarray(rgb_images(*args)[:, :1])


class Gray(Tandem):
    def run(self, *args):
        return super().run(*args, "--channels", "1")


def logits_of(net, images):
    with torch.no_grad():
        return net.double().eval()(torch.from_numpy(images).double()).numpy()


def check_summed(judge, tandem, arch):
    """A file for RGB images, read with --channels 1."""
    side = families.ARCHS[arch]
    net = rgb_build(arch, families.CLASSES)
    save_file({n: np.ascontiguousarray(t.numpy()) for n, t in net.state_dict().items()}, tandem.file("rgb.safetensors"))
    images = gray_images("names.", families.BATCH, side)
    tandem.data("one.safetensors", images, np.zeros(families.BATCH, np.int64))
    want = logits_of(gray_of(net), images)
    tandem.run("evaluate", tandem.file("one.safetensors"), "--data-backend", "tensors", "--arch", arch, "--weights",
               tandem.file("rgb.safetensors"), "--image-size", str(side), "--logits", tandem.file("logits.safetensors"))
    judge.say(f"{arch} summed", "weights of RGB images", off(only(tandem.out("logits.safetensors"), "logits"), want), "",
              1e-4)


def check_import(judge, tandem, arch):
    """An ONNX file of PyTorch's."""
    side, path = families.ARCHS[arch], tandem.file("theirs.onnx")
    net = gray_build(arch, families.CLASSES).eval()
    torch.onnx.export(net, (torch.zeros(1, 1, side, side),), path, dynamo=False, opset_version=17,
                      dynamic_axes={"images": {0: "N"}}, input_names=["images"], output_names=["logits"])
    images = gray_images("names.", families.BATCH, side)
    tandem.data("one.safetensors", images, np.zeros(families.BATCH, np.int64))
    Tandem.run(tandem, "evaluate", tandem.file("one.safetensors"), "--data-backend", "tensors", "--weights", path,
               "--logits", tandem.file("logits.safetensors"))
    judge.say(f"{arch} import", "ONNX file of PyTorch", off(only(tandem.out("logits.safetensors"), "logits"),
                                                            logits_of(net, images)), "", 1e-4)


def check_images(judge, tandem):
    size, worst, n = 40, 0.0, 0
    theirs = T.Compose([T.Resize(size + 32), T.CenterCrop(size), T.ToTensor(), T.Normalize(MEAN, STD)])
    for i, path in enumerate(sorted(glob.glob(os.path.join(HERE, "..", "data", "images", "*")))):
        try:
            with Image.open(path) as image:
                if image.getexif().get(0x0112, 1) != 1 or image.mode.startswith(("I", "F")):
                    continue
                want = theirs(image.convert("RGB").convert("L")).numpy()
        except (OSError, SyntaxError, ValueError):
            continue
        folder = tandem.file(f"images{i}")
        os.makedirs(os.path.join(folder, "a"))
        os.makedirs(os.path.join(folder, "b"))
        for c in "ab":
            os.symlink(os.path.abspath(path), os.path.join(folder, c, os.path.basename(path)))
        try:
            tandem.run("dataset", "check", folder, "--dump-tensors", tandem.file("dump.safetensors"), "--image-size",
                       str(size))
        except RuntimeError:
            continue
        worst = max(worst, float(np.abs(load_file(tandem.file("dump.safetensors"))["images"][0] - want).max()))
        n += 1
    judge.say("images", f"{n} files", worst * STD * 255, "in pixel values", 0.01)
    judge.fact("images", "there are some", n > 20)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tandem", required=True, help="the command to judge")
    p.add_argument("--arch", action="append", choices=ARCHS, help="default: all; may be repeated")
    p.add_argument("--threads", type=int, default=os.cpu_count(), help="of both programs")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    families.build, fill.images = gray_build, gray_images
    nets.check_initial = lambda *args: None  # the first filter's are not sums of three others
    judge = Judge()
    for arch in o.arch or ARCHS:
        with tempfile.TemporaryDirectory() as folder:
            tandem = Gray(o.tandem, folder, o.threads)
            try:
                families.check_names(judge, tandem, arch)
                families.check_onnx(judge, tandem, arch)
                if arch != "vit_b_32":
                    families.check_steps(judge, tandem, arch, ["--dropout", "0", "--stochastic-depth", "0"])
                check_summed(judge, tandem, arch)
                if not arch.startswith("efficientnet-"):
                    check_import(judge, tandem, arch)
            except (RuntimeError, KeyError, OSError, ValueError) as e:
                judge.fact(arch, "ran", False, str(e)[:400])
    with tempfile.TemporaryDirectory() as folder:
        check_images(judge, Gray(o.tandem, folder, o.threads))
    print(f"{judge.failed} checks failed" if judge.failed else "all checks passed")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())
