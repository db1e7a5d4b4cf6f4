#!/usr/bin/env python3
"""Golden values of resampling: tests/golden/image/resample.bin, made by Pillow (9 .. 12).

    resample.py            writes the file
    resample.py --check    compares it with what this Pillow computes

The source is 53 x 41 pixels from a formula (`source`; the test has the same one).  One record per case, little
endian: x, y, width, height of the box (4 doubles), filter (0 bilinear, 1 bicubic), output width and height
(3 int32), and the pixels as rows of RGB bytes.
"""

import argparse
import os
import struct
import sys

import numpy as np
import PIL
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "..", "golden", "image", "resample.bin")
WIDTH, HEIGHT = 53, 41
FILTERS = [Image.BILINEAR, Image.BICUBIC]

# box, output size; each with both filters
CASES = [
    ((0, 0, 53, 41), (53, 41)),
    ((0, 0, 53, 41), (24, 20)),
    ((0, 0, 53, 41), (53, 17)),
    ((0, 0, 53, 41), (19, 41)),
    ((0, 0, 53, 41), (60, 50)),
    ((0, 0, 53, 41), (1, 1)),
    ((0, 0, 53, 41), (3, 40)),
    ((7, 5, 30, 30), (30, 30)),
    ((7, 5, 30, 33), (16, 16)),
    ((7.25, 5.5, 20.125, 17.75), (32, 24)),
    ((0.3, 0.7, 52.1, 39.9), (21, 23)),
    ((51.5, 39.5, 1.5, 1.5), (9, 9)),
    ((10, 0, 1, 41), (8, 8)),
    ((12.6, 9.1, 0.4, 0.3), (5, 4)),
]


def source():
    i = np.arange(WIDTH * HEIGHT * 3, dtype=np.uint64)
    return ((i * 2654435761 % 2**32) >> 24).astype(np.uint8).reshape(HEIGHT, WIDTH, 3)


def records():
    im = Image.fromarray(source())
    for (x, y, w, h), size in CASES:
        for n, filter in enumerate(FILTERS):
            out = im.resize(size, filter, box=(x, y, x + w, y + h))
            yield struct.pack("<4d3i", x, y, w, h, n, *size) + out.tobytes()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    o = p.parse_args()
    if int(PIL.__version__.split(".")[0]) > 12:
        sys.exit(f"Pillow {PIL.__version__} orders the two passes differently; take 9 .. 12")
    data = b"".join(records())
    if o.check:
        with open(FILE, "rb") as f:
            sys.exit(0 if f.read() == data else "tests/golden/image/resample.bin differs")
    os.makedirs(os.path.dirname(FILE), exist_ok=True)
    with open(FILE, "wb") as f:
        f.write(data)


if __name__ == "__main__":
    main()
