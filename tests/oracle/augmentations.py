#!/usr/bin/env python3
"""Golden values of torchvision's and timm's augmentations: rand_augment.bin, color_jitter.bin and timm_augment.bin in
tests/golden/image.

    augmentations.py            writes the files
    augmentations.py --check    compares them with what this torchvision computes
    augmentations.py --erase    prints how 100,000 boxes of RandomErasing are distributed
    augmentations.py --timm     prints how 200,000 images are changed by rand-m7-mstd0.5-inc1 and rand-m10-mstd0.5

All on PIL images. Sources are images from formulas (`sources`; the tests have the same).
rand_augment.bin, little endian: for every kind (AutoAugment's 10 strengths, RandAugment's and TrivialAugmentWide's 31),
operation and strength: the amount on 96 pixels as a float32, then for every source, filter (bilinear; bicubic for
geometry) and sign (+, -, where it has one) the CRC-32 of the pixels. color_jitter.bin: CRC-32 for every hue shift of an
image of 140,608 colors, then of `JITTERS` on every source. timm_augment.bin: for inc0 and inc1, every operation of
timm's RandAugment, magnitude and sign (both, whether it has one or not): the amount as a float64, then for every source
and filter (as above) the CRC-32 of the pixels, with the fill of ImageNet's mean.
"""

import argparse
import os
import random
import struct
import sys
import zlib

import numpy as np
import torch
from PIL import Image
from timm.data import auto_augment as timm_ops
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden", "image")
SIZE = 96
GEOMETRY = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
FILL = (124, 116, 104)
MAGNITUDES = (0, 0.25, 1, 2.4, 3, 4.5, 5, 6.999, 7.5, 8, 9.1, 10, 13.37, 20, 30)
HUES = (0, 0.004, -0.004, 0.1, -0.1, 0.25, -0.37, 0.5, -0.5)
JITTERS = [  # order of brightness 0, contrast 1, saturation 2, hue 3, and their amounts
    ((0, 1, 2, 3), (0.7, 1.3, 0.6, 0.1)), ((3, 2, 1, 0), (1.4, 0.61, 1.39, -0.1)), ((1, 0, 3, 2), (0.9, 1.9, 0.1, 0.5)),
    ((2, 3, 0, 1), (1.05, 0.95, 1.8, -0.31)), ((3, 0, 2, 1), (0.0, 0.0, 0.0, 0.02)),
]


def noise(w, h):
    i = np.arange(w * h * 3, dtype=np.uint64)
    return ((i * 2654435761 % 2**32) >> 24).astype(np.uint8).reshape(h, w, 3)


def ramp(w, h):
    y, x, c = np.mgrid[0:h, 0:w, 0:3]
    return (40 + (3 * x + 2 * y + 17 * c + x * y // 50) % 150).astype(np.uint8)


def sources():
    return [Image.fromarray(a) for a in (noise(53, 41), ramp(SIZE, SIZE), noise(1, 1))]


def crc(im):
    return struct.pack("<I", zlib.crc32(im.tobytes()))


def spaces():
    ops = T.RandAugment()._augmentation_space(31, (SIZE, SIZE))
    policies = T.AutoAugment()._augmentation_space(10, (SIZE, SIZE))
    names = list(ops) + ["Invert"]
    assert names[1:] == list(policies)
    wide = T.TrivialAugmentWide()._augmentation_space(31)
    assert list(wide) == list(ops)
    zero = (torch.tensor(0.0), False)
    return [[(name, *space.get(name, zero)) for name in names] for space in (policies, ops, wide)]


def rand_records():
    images = sources()
    for space in spaces():
        for name, amounts, is_signed in space:
            for amount in amounts.reshape(-1):
                m = float(amount.item())
                yield struct.pack("<f", m)
                filters = [InterpolationMode.BILINEAR] + [InterpolationMode.BICUBIC] * (name in GEOMETRY)
                for im in images:
                    for f in filters:
                        for sign in (1, -1)[: 1 + is_signed]:
                            yield crc(autoaugment._apply_op(im, name, m * sign, interpolation=f, fill=None))


def jitter_records():
    v = np.arange(0, 256, 5, dtype=np.uint8)
    cube = Image.fromarray(np.stack(np.meshgrid(v, v, v, indexing="ij"), -1).reshape(52, 52 * 52, 3))
    for hue in HUES:
        yield crc(F.adjust_hue(cube, hue))
    change = [F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue]
    for im in sources():
        for order, amounts in JITTERS:
            out = im
            for i in order:
                out = change[i](out, amounts[i])
            yield crc(out)


def timm_argument(name, magnitude, sign):
    """timm's argument of an operation, with one of its two signs."""
    make = timm_ops.LEVEL_TO_ARG[name]
    negate, timm_ops._randomly_negate = timm_ops._randomly_negate, lambda v: sign * v
    try:
        return make(magnitude, {}) if make else ()
    finally:
        timm_ops._randomly_negate = negate


def timm_pixels(name, im, argument, resample):
    if name.startswith("Posterize") and argument[0] < 1:
        return Image.new("RGB", im.size)  # no bit is kept, for which the latest Pillow has an error
    return timm_ops.NAME_TO_OP[name](im, *argument, fillcolor=FILL, resample=resample)


def timm_records():
    images = sources()
    filters = [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC]
    for names in (timm_ops._RAND_TRANSFORMS, timm_ops._RAND_INCREASING_TRANSFORMS):
        for name in names:
            is_geometry = name.startswith(("Shear", "Translate", "Rotate"))
            for magnitude in MAGNITUDES:
                for sign in 1, -1:
                    argument = timm_argument(name, magnitude, sign)
                    amount = float(argument[0]) if argument else 0.0
                    yield struct.pack("<d", max(0.0, amount) if name.startswith("Posterize") else amount)
                    for im in images:
                        for resample in filters[: 1 + is_geometry]:
                            yield crc(timm_pixels(name, im, argument, resample))


def timm_draws():
    """What is drawn, not what is done to an image: the arguments of all operations."""
    n = 200000
    for policy in "rand-m7-mstd0.5-inc1", "rand-m10-mstd0.5":
        done, numbers = [], []

        def note(name):
            def apply(im, *argument, resample, **_):
                done.append(name)
                if name == "Rotate":
                    numbers.append((argument[0], random.choice(resample) == Image.Resampling.BICUBIC))
                return im
            return apply

        augment = timm_ops.rand_augment_transform(policy)
        for op in augment.ops:
            op.aug_fn = note(op.name)
        for _ in range(n):
            augment(None)
        a = np.array(numbers, float)
        shares = {name: done.count(name) / n for name in dict.fromkeys(op.name for op in augment.ops)}
        print(f"{policy}: {len(done) / n:.4f} operations on an image, of each {min(shares.values()):.4f} to "
              f"{max(shares.values()):.4f}; magnitude of Rotate {np.abs(a[:, 0]).mean() / 3:.4f} deviation "
              f"{np.abs(a[:, 0]).std() / 3:.4f}, at its bound {(np.abs(a[:, 0]) == 30).mean():.4f}, negative "
              f"{(a[:, 0] < 0).mean():.4f}, bicubic {a[:, 1].mean():.4f}")


def erase():
    n, size = 100000, 224
    img = torch.empty(3, size, size)
    boxes = []
    for _ in range(n):
        i, j, h, w, v = T.RandomErasing.get_params(img, (0.02, 0.33), (0.3, 3.3), [0.0])
        if v is not img:
            boxes.append((i, j, h, w))
    b = np.array(boxes, float)
    print(f"{n} draws at {size}: {len(b)} boxes, mean height {b[:, 2].mean():.2f} width {b[:, 3].mean():.2f} "
          f"area {(b[:, 2] * b[:, 3]).mean():.1f}, y {b[:, 0].mean():.2f} x {b[:, 1].mean():.2f}, "
          f"log ratio {np.log(b[:, 2] / b[:, 3]).mean():.4f}, its deviation {np.log(b[:, 2] / b[:, 3]).std():.4f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    p.add_argument("--erase", action="store_true")
    p.add_argument("--timm", action="store_true")
    o = p.parse_args()
    if o.timm:
        return timm_draws()
    if o.erase:
        return erase()
    for name, records in (("rand_augment.bin", rand_records), ("color_jitter.bin", jitter_records),
                          ("timm_augment.bin", timm_records)):
        path, data = os.path.join(GOLDEN, name), b"".join(records())
        if not o.check:
            with open(path, "wb") as f:
                f.write(data)
            continue
        with open(path, "rb") as f:
            if f.read() != data:
                sys.exit(f"tests/golden/image/{name} differs")


if __name__ == "__main__":
    main()
