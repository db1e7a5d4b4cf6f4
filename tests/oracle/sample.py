#!/usr/bin/env python3
"""Golden values of resizing without antialiasing: tests/golden/image/sample.bin.

    sample.py                      writes the file
    sample.py --check              compares it with what is computed here
    sample.py --tf                 asks TensorFlow whether the legacy formula is its own
    sample.py --crops              means and deviations of TensorFlow's and DALI's random crops

Linear is torch.nn.functional.interpolate (align_corners=False, antialias=False) where the box is the image, and
the same formula in float64 elsewhere; cubic the formula with a = -1/2, as DALI has it, whose twin with a = -3/4 is
compared with PyTorch's. The legacy one is TensorFlow's resize_bilinear with half_pixel_centers=False in float32.

One record per case, little endian: x, y, width, height of the box (4 doubles), kind (0 linear, 1 cubic, 2 legacy),
output width and height (3 int32), and the pixels before rounding, float32 [height, width, 3].
"""

import argparse
import math
import os
import struct
import sys

import numpy as np

from resample import HEIGHT, WIDTH, source

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "image", "sample.bin")
WHOLE = (0, 0, WIDTH, HEIGHT)
CASES = [
    (WHOLE, (53, 41)), (WHOLE, (24, 20)), (WHOLE, (13, 17)), (WHOLE, (1, 1)), (WHOLE, (3, 40)), (WHOLE, (70, 9)),
    ((7, 5, 30, 33), (16, 16)), ((40, 0, 13, 41), (20, 11)), ((7, 5, 9, 9), (24, 24)), ((52, 40, 1, 1), (4, 4)),
]


def keys(x, a):
    x = np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def axis(begin, length, out, n, weigh):
    """[out, n]: the weights of the n pixels in each output."""
    w = np.zeros((out, n))
    for i in range(out):
        at = begin + (i + 0.5) * (length / out) - 0.5
        for k in range(math.floor(at) - 1, math.floor(at) + 3):
            w[i, min(max(k, 0), n - 1)] += weigh(np.float64(at - k))
    return w


def point(px, box, size, weigh):
    x = axis(box[0], box[2], size[0], px.shape[1], weigh)
    y = axis(box[1], box[3], size[1], px.shape[0], weigh)
    return np.einsum("yh,xw,hwc->yxc", y, x, px.astype(np.float64))


def linear(x):
    return max(0.0, 1 - abs(x))


def torch_of(px, size, mode):
    import torch
    t = torch.from_numpy(px.astype(np.float64)).permute(2, 0, 1)[None]
    out = torch.nn.functional.interpolate(t, (size[1], size[0]), mode=mode, align_corners=False, antialias=False)
    return out[0].permute(1, 2, 0).numpy()


def legacy(px, size):
    f = np.float32

    def places(n, out):
        at = np.arange(out, dtype=f) * (f(n) / f(out))
        low = np.floor(at).astype(int)
        return np.minimum(low, n - 1), np.minimum(low + 1, n - 1), (at - np.floor(at)).astype(f)

    px = px.astype(f)
    x0, x1, dx = places(px.shape[1], size[0])
    y0, y1, dy = places(px.shape[0], size[1])
    dx, dy = dx[None, :, None], dy[:, None, None]
    up = px[y0][:, x0] + (px[y0][:, x1] - px[y0][:, x0]) * dx
    down = px[y1][:, x0] + (px[y1][:, x1] - px[y1][:, x0]) * dx
    return up + (down - up) * dy


def records():
    px = source()
    for box, size in CASES:
        lin = point(px, box, size, linear)
        cub = point(px, box, size, lambda x: float(keys(x, -0.5)))
        if box == WHOLE:
            assert np.abs(lin - torch_of(px, size, "bilinear")).max() < 1e-9
            twin = point(px, box, size, lambda x: float(keys(x, -0.75)))
            assert np.abs(twin - torch_of(px, size, "bicubic")).max() < 1e-9
        x, y, w, h = box
        leg = legacy(px[y:y + h, x:x + w], size)
        for kind, out in enumerate((lin, cub, leg)):
            yield struct.pack("<4d3i", *box, kind, *size) + out.astype(np.float32).tobytes()


def ask_tensorflow():
    import tensorflow as tf
    px = source()
    for (x, y, w, h), size in CASES:
        cut = px[y:y + h, x:x + w]
        theirs = tf.compat.v1.image.resize_bilinear(cut[None], (size[1], size[0])).numpy()[0]
        print(f"{w}x{h} -> {size[0]}x{size[1]}: largest difference {np.abs(theirs - legacy(cut, size)).max():g}")


def stats(boxes, w, h):
    b = np.array(boxes, float)
    v = np.stack([b[:, 2] * b[:, 3] / (w * h), np.log(b[:, 2] / b[:, 3]), b[:, 0] / w, b[:, 1] / h])
    def text(a):
        return "{ " + ", ".join(f"{x:.5f}" for x in a) + " }"
    print(f"    {{ {w}, {h}, {text(v.mean(1))}, {text(v.std(1))} }},")


def tf_crops(w, h, n):
    import tensorflow as tf

    @tf.function
    def draw(_):
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.constant([h, w, 3]), tf.zeros([1, 0, 4]), min_object_covered=0.1, aspect_ratio_range=[0.75, 1.33],
            area_range=[0.05, 1.0], max_attempts=100, use_image_if_no_bounding_boxes=True)
        return tf.stack([begin[1], begin[0], size[1], size[0]])
    return tf.map_fn(draw, tf.range(n)).numpy()


def dali_crops(w, h, n, rng=np.random.default_rng(1)):
    """classification.md 3.4, the column of DALI, with NumPy's random numbers."""
    r0, r1, a0 = 3 / 4, 4 / 3, 0.08
    out = []
    max_w, max_h = max(1, int(h * r1)), max(1, int(w / r0))
    for _ in range(n):
        if h * max_w < a0 * w * h:
            cw, ch = max_w, h
        elif w * max_h < a0 * w * h:
            cw, ch = w, max_h
        else:
            for _ in range(100):
                area = w * h * rng.uniform(a0, 1)
                ratio = math.exp(rng.uniform(math.log(r0), math.log(r1)))
                cw, ch = max(1, round(math.sqrt(area * ratio))), max(1, round(math.sqrt(area / ratio)))
                if cw <= w and ch <= h and r0 <= cw / ch <= r1:
                    break
            else:
                cw, ch = (max_w, h) if w / h > r1 else (w, max_h) if w / h < r0 else (w, h)
        out.append((rng.integers(0, w - cw + 1), rng.integers(0, h - ch + 1), cw, ch))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    p.add_argument("--tf", action="store_true")
    p.add_argument("--crops", type=int, metavar="DRAWS", help="of each image size; 20000 take a minute")
    o = p.parse_args()
    if o.tf:
        ask_tensorflow()
    elif o.crops:
        for name, draw in (("dali", dali_crops), ("tf", tf_crops)):
            print(name)
            for w, h in ((500, 375), (300, 700), (64, 64), (1000, 100), (9, 7)):
                stats(draw(w, h, o.crops), w, h)
    else:
        data = b"".join(records())
        if o.check:
            with open(FILE, "rb") as f:
                sys.exit(0 if f.read() == data else "tests/golden/image/sample.bin differs")
        with open(FILE, "wb") as f:
            f.write(data)


if __name__ == "__main__":
    main()
