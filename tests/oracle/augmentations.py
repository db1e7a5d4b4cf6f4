#!/usr/bin/env python3
"""Golden values of torchvision's augmentations: tests/golden/image/rand_augment.bin and color_jitter.bin.

    augmentations.py            writes the files
    augmentations.py --check    compares them with what this torchvision computes
    augmentations.py --erase    prints how 100,000 boxes of RandomErasing are distributed

All by torchvision on PIL images. Sources are images from formulas (`sources`; the tests have the same).
rand_augment.bin, little endian: for every kind (AutoAugment's 10 strengths, RandAugment's and TrivialAugmentWide's 31),
operation and strength: the amount on 96 pixels as a float32, then for every source, filter (bilinear; bicubic for
geometry) and sign (+, -, where it has one) the CRC-32 of the pixels. color_jitter.bin: CRC-32 for every hue shift of an
image of 140,608 colors, then of `JITTERS` on every source.
"""

import argparse
import os
import struct
import sys
import zlib

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden", "image")
SIZE = 96
GEOMETRY = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
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
    o = p.parse_args()
    if o.erase:
        return erase()
    for name, records in (("rand_augment.bin", rand_records), ("color_jitter.bin", jitter_records)):
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
