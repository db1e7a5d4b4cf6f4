#!/usr/bin/env python3
"""Golden values of AutoAugment: tests/golden/image/autoaugment.bin, made by Pillow.

    autoaugment.py            writes the file
    autoaugment.py --check    compares it with what this Pillow computes

Sources are images from formulas (`sources`; the test has the same). The file holds CRC-32 values of the pixels,
little endian: for every source, operation (in the order of td_augment_op), level 0 .. 10 and sign +, -; then for
every source, policy, first and second operation done (4) and their signs (4). So a wrong bit anywhere is seen.
"""

import argparse
import itertools
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "..", "golden", "image", "autoaugment.bin")
GREY = (128, 128, 128)
LEVELS = {
    "shearX": np.linspace(0, 0.3, 11), "shearY": np.linspace(0, 0.3, 11),
    "translateX": np.linspace(0, 250, 11), "translateY": np.linspace(0, 250, 11),
    "rotate": np.linspace(0, 30, 11),
    "color": np.linspace(0.1, 1.9, 11), "contrast": np.linspace(0.1, 1.9, 11),
    "brightness": np.linspace(0.1, 1.9, 11), "sharpness": np.linspace(0.1, 1.9, 11),
    "posterize": np.round(np.linspace(0, 4, 11), 0).astype(int),
    "solarize": np.linspace(0, 256, 11), "solarizeadd": np.linspace(0, 110, 11),
    "autocontrast": [0] * 11, "equalize": [0] * 11, "invert": [0] * 11,
}
OPS = list(LEVELS)
POLICIES = """
equalize 1 shearY 4, color 9 equalize 3, color 1 rotate 8, solarize 3 equalize 7, solarize 2 solarize 2,
color 0 equalize 8, equalize 8 solarizeadd 3, shearX 9 rotate 8, color 1 equalize 2, invert 9 rotate 0,
equalize 9 shearY 3, color 7 equalize 0, posterize 6 autocontrast 7, solarize 8 color 9, solarize 4 rotate 9,
rotate 7 translateY 9, shearX 0 solarize 4, shearY 0 color 4, color 0 rotate 2, equalize 4 equalize 8,
equalize 4 autocontrast 2, shearY 7 solarizeadd 7, posterize 2 solarize 10, solarize 8 equalize 1, color 6 rotate 5
"""
POLICIES = [p.split() for p in POLICIES.replace("\n", " ").split(",")]


def apply(op, im, level, sign):
    m = LEVELS[op][level]
    if op == "shearX":
        return im.transform(im.size, Image.AFFINE, (1, m * sign, 0, 0, 1, 0), Image.BICUBIC, fillcolor=GREY)
    if op == "shearY":
        return im.transform(im.size, Image.AFFINE, (1, 0, 0, m * sign, 1, 0), Image.BICUBIC, fillcolor=GREY)
    if op == "translateX":
        return im.transform(im.size, Image.AFFINE, (1, 0, m * sign, 0, 1, 0), fillcolor=GREY)
    if op == "translateY":
        return im.transform(im.size, Image.AFFINE, (1, 0, 0, 0, 1, m * sign), fillcolor=GREY)
    if op == "rotate":
        turned = im.convert("RGBA").rotate(m * sign)
        return Image.composite(turned, Image.new("RGBA", turned.size, (128,) * 4), turned).convert("RGB")
    if op == "posterize":
        if m == 0:  # refused since Pillow 13; before, the mask of no bits
            return im.point([0] * 768)
        return ImageOps.posterize(im, int(m))
    if op == "solarize":
        return ImageOps.solarize(im, m)
    if op == "solarizeadd":
        return im.point([min(i + int(m), 255) if i < 128 else i for i in range(256)] * 3)
    if op in ("autocontrast", "equalize", "invert"):
        return getattr(ImageOps, op)(im)
    return getattr(ImageEnhance, op.capitalize())(im).enhance(m)


def noise(w, h):
    i = np.arange(w * h * 3, dtype=np.uint64)
    return ((i * 2654435761 % 2**32) >> 24).astype(np.uint8).reshape(h, w, 3)


def ramp(w, h):
    """Slow colours in part of the range: autocontrast and equalize have something to do."""
    y, x, c = np.mgrid[0:h, 0:w, 0:3]
    return (40 + (3 * x + 2 * y + 17 * c + x * y // 50) % 150).astype(np.uint8)


def sources():
    flat = np.full((9, 7, 3), 77, np.uint8)
    return [Image.fromarray(a) for a in (noise(53, 41), ramp(224, 224), flat, noise(1, 1), ramp(300, 5))]


def crc(im):
    return struct.pack("<I", zlib.crc32(im.tobytes()))


def records():
    for im in sources():
        for op in OPS:
            for level in range(11):
                for sign in (1, -1):
                    yield crc(apply(op, im, level, sign))
    for im in sources():
        for a, i, b, j in POLICIES:
            for first, second, s, t in itertools.product((0, 1), (0, 1), (1, -1), (1, -1)):
                out = apply(a, im, int(i), s) if first else im
                out = apply(b, out, int(j), t) if second else out
                yield crc(out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    data = b"".join(records())
    if o.check:
        with open(FILE, "rb") as f:
            sys.exit(0 if f.read() == data else "tests/golden/image/autoaugment.bin differs")
    with open(FILE, "wb") as f:
        f.write(data)


if __name__ == "__main__":
    main()
