#!/usr/bin/env python3
"""Images and boxes of detectors' training rows, made again by NumPy and Pillow from a description of the two recipes
and from the random numbers that Tandem drew.

    PY tests/oracle/detector_images.py --tandem build/tandem [--images 240] [--draws 10000]

The first part takes random images with random boxes and compares every row: which boxes are left, where they are, and
every pixel.  What a draw means is thereby checked one by one; the second part counts what 10,000 samples draw, against
the probabilities of the description, within four standard deviations.  Wants numpy and Pillow only, and
`tests/object_rows` of the build folder.

The order in which numbers are drawn is ours and is no part of the description:

    SSD320  flip | each try: ratio, height if there is a choice, top and left if there is room
    SSD300  each option: which | width, height | left, top if the shape fits;  then flip
    colours hue, saturation, contrast, brightness (a shift in SSD320)
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image

MEAN_320 = np.array([123.68, 116.779, 103.939], np.float32)
MEAN_300, DEV_300 = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
F = np.float32


class Draws:
    """64-bit numbers as fractions and integers."""

    def __init__(self, numbers):
        self.numbers, self.at = numbers, 0

    def next(self):
        self.at += 1
        return int(self.numbers[self.at - 1])

    def fraction(self, low=0.0, high=1.0):
        return low + (high - low) * ((self.next() >> 11) * 2.0**-53)

    def below(self, n):
        """Uniform in 0 .. n - 1: the high half of a product, drawn again where that would favour some."""
        while True:
            product = self.next() * n
            if product % 2**64 >= 2**64 % n:
                return product >> 64


# --------------------------------------------------------------------------------- SSD320


def round_even(x):
    return int(np.rint(x))


def window_320(d, width, height, boxes, n_tries=100):
    """Top, left, height, width in pixels, and how many tries it took (None: the whole image)."""
    whole = (0, 0, height, width)

    def covers_a_pixel(b):
        ymin, xmin, ymax, xmax = (int(np.clip(F(v), 0, 1) * F(s)) for v, s in zip(b, (height, width) * 2))
        return ymax > ymin and xmax > xmin

    if len(boxes) and not any(covers_a_pixel(b) for b in boxes):
        return whole, None
    least, most = 0.75 * width * height, 1.0 * width * height
    for n_try in range(n_tries):
        a = d.fraction(0.75, 3.0)
        low, high = round_even(np.sqrt(least / a)), round_even(np.sqrt(most / a))
        high = min(high, height)
        while high > 0 and round_even(high * a) > width:
            high -= 1
        low = min(low, high)
        h = low + d.below(high - low + 1) if low < high else high
        if h * round_even(h * a) < least:
            h += 1
        if h * round_even(h * a) > most:
            h -= 1
        w = round_even(h * a)
        if not (least <= h * w <= most and 1 <= w <= width and 1 <= h <= height):
            continue
        y = d.below(height - h) if h < height else 0
        x = d.below(width - w) if w < width else 0
        return (y, x, h, w), n_try + 1
    return whole, None


def mirrored(boxes):
    return [(y0, 1 - x1, y1, 1 - x0) for y0, x0, y1, x1 in boxes]


def relative(box, window):
    y0, x0, y1, x1 = window
    return tuple(np.clip([(box[0] - y0) / (y1 - y0), (box[1] - x0) / (x1 - x0), (box[2] - y0) / (y1 - y0),
                          (box[3] - x0) / (x1 - x0)], 0, 1))


def kept_320(boxes, window):
    y0, x0, y1, x1 = window
    left = []
    for i, b in enumerate(boxes):
        outside = b[0] >= y1 or b[1] >= x1 or b[2] <= y0 or b[3] <= x0
        if not outside and (b[2] - b[0]) * (b[3] - b[1]) != 0:
            left.append((i, relative(b, window)))
    return left


def legacy_resize(px, side):
    """Float32, source = destination * in / out."""

    def taps(n):
        s = F(n) / F(side)
        p = np.arange(side, dtype=F) * s
        low = np.floor(p).astype(int)
        return low, np.minimum(low + 1, n - 1), p - low.astype(F)

    (y0, y1, fy), (x0, x1, fx) = taps(px.shape[0]), taps(px.shape[1])
    px, fx, fy = px.astype(F), fx[None, :, None], fy[:, None, None]
    top = px[y0][:, x0] + (px[y0][:, x1] - px[y0][:, x0]) * fx
    bottom = px[y1][:, x0] + (px[y1][:, x1] - px[y1][:, x0]) * fx
    return top + (bottom - top) * fy


# --------------------------------------------------------------------------------- SSD300


def iou(a, b):
    h, w = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(h, 0) * max(w, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def holds_centre(window, b):
    y, x = (b[0] + b[2]) / 2, (b[1] + b[3]) / 2
    return window[0] <= y <= window[2] and window[1] <= x <= window[3]


OPTIONS = (None, 0, 0.1, 0.3, 0.5, 0.7, 0.9)


def window_300(d, boxes):
    """Shares of the image, and the option that gave it."""
    whole = (0.0, 0.0, 1.0, 1.0)
    if not len(boxes):
        return whole, None
    for _ in range(1000):
        option = OPTIONS[d.below(7)]
        if option is None:
            return whole, option
        w, h = d.fraction(0.3, 1), d.fraction(0.3, 1)
        if not 0.5 <= w / h <= 2:
            continue
        x, y = (1 - w) * d.fraction(), (1 - h) * d.fraction()
        window = (y, x, y + h, x + w)
        if all(iou(b, window) >= option for b in boxes) and any(holds_centre(window, b) for b in boxes):
            return window, option
    return whole, None


# --------------------------------------------------------------------------------- colours

# NTSC's, to DALI's three places: the two are not quite each other's inverse
TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
TO_RGB = np.array([[1, 0.956, 0.621], [1, -0.272, -0.647], [1, -1.107, 1.705]])


def twisted(px, hue, saturation, contrast, brightness, shift):
    """Hue in degrees; contrast about 128."""
    c, s = np.cos(np.radians(hue)), np.sin(np.radians(hue))
    turn = np.array([[1, 0, 0], [0, saturation * c, saturation * s], [0, -saturation * s, saturation * c]])
    m = TO_RGB @ turn @ TO_YIQ
    return np.clip(brightness * (128 + contrast * (px @ m.T - 128)) + shift, 0, 255)


def jitter_320(d):
    hue, saturation, contrast = d.fraction(-72, 72), d.fraction(0.5, 1.5), d.fraction(0.5, 1.5)
    return hue, saturation, contrast, 1.0, d.fraction(-32, 32)


def colours_300(d):
    hue, saturation, contrast = d.fraction(-0.5, 0.5), d.fraction(0.5, 1.5), d.fraction(0.5, 1.5)
    return hue, saturation, contrast, d.fraction(0.875, 1.125), 0.0


# --------------------------------------------------------------------------------- rows


def row_320(px, boxes, place, colour, side):
    height, width = px.shape[:2]
    if place.fraction() > 0.5:
        px, boxes = px[:, ::-1], mirrored(boxes)
    (y, x, h, w), _ = window_320(place, width, height, boxes)
    left = kept_320(boxes, (y / height, x / width, (y + h) / height, (x + w) / width))
    values = legacy_resize(px[y:y + h, x:x + w], side)
    if colour:
        values = twisted(values.astype(np.float64), *jitter_320(colour))
    return left, values - MEAN_320


def row_300(px, boxes, place, colour, side):
    height, width = px.shape[:2]
    window, _ = window_300(place, boxes)
    left = [(i, relative(b, window)) for i, b in enumerate(boxes) if holds_centre(window, b)]
    y0, y1 = round_even(window[0] * height), min(round_even(window[2] * height), height)
    x0, x1 = round_even(window[1] * width), min(round_even(window[3] * width), width)
    px = px[min(y0, y1 - 1):y1, min(x0, x1 - 1):x1]
    if place.fraction() < 0.5:
        px = px[:, ::-1]
        left = [(i, mirrored([b])[0]) for i, b in left]
    # columns first, as all versions of Pillow up to 12 do; later ones begin with what is cheaper
    wide = Image.fromarray(np.ascontiguousarray(px)).resize((side, px.shape[0]), Image.BILINEAR)
    sized = np.asarray(wide.resize((side, side), Image.BILINEAR))
    levels = np.floor(twisted(sized.astype(np.float64), *colours_300(colour)) + 0.5)
    return left, (levels / 255 - MEAN_300) / DEV_300


def random_scene(rng, folder, i):
    """A smooth image with noise, and boxes of which some have no size or leave the image."""
    width, height = (int(v) for v in rng.integers(20, 200, 2))
    if i % 16 == 0:
        width = 5 * height  # no window fits
    coarse = rng.integers(0, 256, (int(rng.integers(2, 9)), int(rng.integers(2, 9)), 3), dtype=np.uint8)
    px = np.asarray(Image.fromarray(coarse).resize((width, height), Image.BICUBIC)).astype(int)
    px = np.clip(px + rng.integers(-20, 21, px.shape), 0, 255).astype(np.uint8)
    path = os.path.join(folder, f"{i}.png")
    Image.fromarray(px).save(path)
    boxes = []
    for _ in range(int(rng.integers(0, 7))):
        y, x = np.sort(rng.random(2)), np.sort(rng.random(2))
        if rng.random() < 0.2:
            y, x = np.array([0.1, 0.9]), np.array([0.05, 0.97])
        if rng.random() < 0.05:
            x = np.array([x[0], x[0]])
        boxes.append(tuple(float(F(v)) for v in (y[0], x[0], y[1], x[1])))
    return path, px, boxes


def take(data, at, kind, n):
    size = np.dtype(kind).itemsize * n
    return np.frombuffer(data, kind, n, at), at + size


def compare(tool, detector, side, is_jittered, scenes):
    request = "".join(f"{i % 5} {i % 3} {i} {path} {len(boxes)}" +
                      "".join(f" {k + 1} " + " ".join(repr(v) for v in b) for k, b in enumerate(boxes)) + "\n"
                      for i, (path, _, boxes) in enumerate(scenes))
    done = subprocess.run([tool, detector, str(side), str(int(is_jittered))], input=request.encode(),
                          stdout=subprocess.PIPE, check=True)
    data, at = done.stdout, 0
    worst_box = worst_pixel = 0.0
    n_boxes = n_exact = n_pixels = n_cropped = 0
    for i, (_, px, boxes) in enumerate(scenes):
        n, at = take(data, at, np.int32, 1)
        found = []
        for _ in range(n[0]):
            label, at = take(data, at, np.int32, 1)
            box, at = take(data, at, np.float32, 4)
            found.append((int(label[0]) - 1, box))
        row, at = take(data, at, np.float32, 3 * side * side)
        place, at = take(data, at, np.uint64, 4096)
        colour, at = take(data, at, np.uint64, 8)
        has_colours = is_jittered or detector == "ssd300"
        make = row_300 if detector == "ssd300" else row_320
        left, wanted = make(px, boxes, Draws(place), Draws(colour) if has_colours else None, side)
        if [k for k, _ in found] != [k for k, _ in left]:
            sys.exit(f"{detector}, image {i}: boxes {[k for k, _ in found]} are left, wanted {[k for k, _ in left]}")
        for (_, a), (_, b) in zip(found, left):
            worst_box = max(worst_box, float(np.abs(a - np.array(b)).max()))
        n_boxes += len(found)
        n_cropped += len(left) != len(boxes) or any(np.abs(np.array(b) - boxes[k]).max() > 1e-3 for k, b in left)
        off = np.abs(row.reshape(3, side, side).transpose(1, 2, 0) - wanted)
        if detector == "ssd300":
            off = off * DEV_300 * 255
        worst_pixel = max(worst_pixel, float(off.max()))
        n_exact += int((off < 1e-3).sum())
        n_pixels += off.size
    if at != len(data):
        sys.exit(f"{detector}: {len(data) - at} bytes too many")
    print(f"{detector}{', jittered' if is_jittered else ''}: {len(scenes)} images, {n_cropped} changed, {n_boxes} "
          f"boxes, off by {worst_box:.1e}; pixels off by {worst_pixel:.2e} levels, {100 * n_exact / n_pixels:.3f} % equal")
    # a byte on the verge may round either way
    limit, share = {"ssd320": (1e-3 if is_jittered else 0, 1), "ssd300": (1.001, 0.9999)}[detector]
    return worst_box < 2e-6 and worst_pixel <= limit and n_exact >= share * n_pixels


# --------------------------------------------------------------------------------- how often

verdicts = []


def expect_share(what, n_found, n, p, slack=0.0):
    deviation = np.sqrt(p * (1 - p) / n)
    z = max(abs(n_found / n - p) - slack, 0) / deviation
    verdicts.append(z <= 4)
    print(f"  {what}: {n_found / n:.4f}, wanted {p:.4f}, {z:.1f} deviations")


def expect_uniform(what, values, low, high):
    v = (np.array(values) - low) / (high - low)
    if v.min() < 0 or v.max() >= 1:
        sys.exit(f"{what} leaves its range")
    z = abs(v.mean() - 0.5) / (1 / np.sqrt(12 * len(v)))
    tenths = np.histogram(v, 10, (0, 1))[0]
    worst = np.abs(tenths - len(v) / 10).max() / np.sqrt(len(v) * 0.09)
    verdicts.append(z <= 4 and worst <= 4)
    print(f"  {what}: {low} .. {high}, mean {z:.1f}, tenths up to {worst:.1f} deviations")


class Fresh:
    """The same questions, answered by NumPy's generator."""

    def __init__(self, rng):
        self.rng = rng

    def fraction(self, low=0.0, high=1.0):
        return self.rng.uniform(low, high)

    def below(self, n):
        return int(self.rng.integers(n))


def count(tool, n):
    each = 1024
    raw = subprocess.run([tool, "draws", str(n), str(each)], stdout=subprocess.PIPE, check=True).stdout
    numbers = np.frombuffer(raw, np.uint64).reshape(n, each + 8)
    print(f"{n} samples")
    expect_share("SSD320: mirrored", sum(Draws(r).fraction() > 0.5 for r in numbers), n, 0.5)
    whole_box = [(0.0, 0.0, 1.0, 1.0)]
    for width, height in ((500, 500), (800, 500), (500, 800), (500, 1000), (2050, 500)):
        r = width / height
        interval = max(min(r / 0.75, 3) - max(0.75 * r, 0.75), 0) / 2.25
        first = never = 0
        some = numbers if interval else numbers[:n // 20]  # a hundred tries each
        for draws in some:
            d = Draws(draws)
            d.fraction()
            _, tries = window_320(d, width, height, whole_box, 1 if interval else 100)
            first += tries == 1
            never += tries is None
        if interval == 0:
            verdicts.append(never == len(some))
            print(f"  SSD320, {width} x {height}: never cropped: {never} of {len(some)}")
        else:  # whole pixels move the ends of the interval by some thousandths
            expect_share(f"SSD320, {width} x {height}: first try succeeds", first, n, interval, 0.003)
    first_options = [Draws(r).below(7) for r in numbers]
    for i, option in enumerate(OPTIONS):
        expect_share(f"SSD300: option {'none' if option is None else option}", first_options.count(i), n, 1 / 7)
    rng = np.random.default_rng(5)
    for name, boxes in (("one large thing", [(0.1, 0.1, 0.9, 0.9)]),
                        ("two small ones", [(0.1, 0.1, 0.3, 0.3), (0.6, 0.5, 0.8, 0.9)])):
        ours = [window_300(Draws(r), boxes)[0] for r in numbers]
        fresh = [window_300(Fresh(rng), boxes)[0] for _ in range(n)]
        shares = [sum(w == (0.0, 0.0, 1.0, 1.0) for w in ws) / n for ws in (ours, fresh)]
        z = abs(shares[0] - shares[1]) / np.sqrt(2 * shares[1] * (1 - shares[1]) / n)
        areas = [np.array([(w[2] - w[0]) * (w[3] - w[1]) for w in ws]) for ws in (ours, fresh)]
        z_area = abs(areas[0].mean() - areas[1].mean()) / np.sqrt(areas[0].var() / n + areas[1].var() / n)
        verdicts.append(z <= 4 and z_area <= 4)
        print(f"  SSD300, {name}: not cropped {shares[0]:.4f}, by NumPy's draws {shares[1]:.4f}, {z:.1f} deviations; "
              f"area {areas[0].mean():.4f} and {areas[1].mean():.4f}, {z_area:.1f}")
    flips = []
    for r in numbers:
        d = Draws(r)
        window_300(d, whole_box)
        flips.append(d.fraction() < 0.5)
    expect_share("SSD300: mirrored", sum(flips), n, 0.5)
    ranges = (("hue", -0.5, 0.5), ("saturation", 0.5, 1.5), ("contrast", 0.5, 1.5), ("brightness", 0.875, 1.125))
    colours = np.array([colours_300(Draws(r[each:])) for r in numbers])
    for i, (what, low, high) in enumerate(ranges):
        expect_uniform(f"SSD300: {what}", colours[:, i], low, high)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tandem", required=True)
    p.add_argument("--images", type=int, default=240)
    p.add_argument("--draws", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    tool = os.path.join(os.path.dirname(os.path.realpath(o.tandem)), "tests", "object_rows")
    rng = np.random.default_rng(o.seed)
    with tempfile.TemporaryDirectory() as folder:
        scenes = [random_scene(rng, folder, i) for i in range(o.images)]
        good = [compare(tool, "ssd320", 160, False, scenes), compare(tool, "ssd320", 160, True, scenes),
                compare(tool, "ssd300", 150, False, scenes)]
    count(tool, o.draws)
    if not all(good + verdicts):
        sys.exit("FAILED")
    print("all as described")


if __name__ == "__main__":
    main()
