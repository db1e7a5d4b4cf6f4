#!/usr/bin/env python3
"""Tandem's evaluation images against torchvision's: resize to 256, centre crop to 224, normalise.

    images.py --tandem build/tandem [--tar imagenet-sample.tar]

Decodes every image of the archive with `tandem dataset check DIR --dump-tensors` and with Pillow and
torchvision (antialiased bilinear), and compares the pixels in units of 0..1: 1/255 on average and 4/255 at
most.  Also that no image is missing or out of order.  Exit status 1 if anything is off.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import torchvision.transforms as T
from PIL import Image
from safetensors.numpy import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get("TANDEM_SHARED", os.path.join(HERE, "..", "..", "..", "shared"))
MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
STD = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]


def images(root):
    """Files below `root`, class folder by class folder, both in order of their names' bytes."""
    found = []
    for folder, folders, files in os.walk(root):
        folders.sort(key=os.fsencode)
        found += [os.path.join(folder, f) for f in sorted(files, key=os.fsencode)]
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tandem", required=True)
    p.add_argument("--tar", default=os.path.join(SHARED, "data", "imagenet-sample.tar"))
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("-v", "--verbose", action="store_true", help="a line for every image")
    o = p.parse_args()
    size = o.image_size
    theirs = T.Compose([T.Resize(size + 32), T.CenterCrop(size), T.ToTensor()])

    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(o.tar) as tar:
            tar.extractall(scratch, filter="data")
        root = os.path.join(scratch, os.listdir(scratch)[0])
        files = images(root)
        dump = os.path.join(scratch, "dump.safetensors")
        done = subprocess.run([os.path.abspath(o.tandem), "dataset", "check", root, "--dump-tensors", dump,
                               "--image-size", str(size)], text=True, capture_output=True)
        if done.returncode != 0:
            print(f"FAIL 'tandem dataset check' ended with {done.returncode}: {done.stderr[-500:]}")
            return 1
        ours = load_file(dump)["images"]
        if ours.shape != (len(files), 3, size, size):
            print(f"FAIL {len(files)} images in the archive, tensor is {ours.shape}")
            return 1

        means, tops = [], []
        for file, tensor in zip(files, ours):
            with Image.open(file) as image:
                mode, want = image.mode, theirs(image.convert("RGB")).numpy()
            diff = np.abs(tensor * STD + MEAN - want) * 255
            means.append(float(diff.mean()))
            tops.append(float(diff.max()))
            if o.verbose or means[-1] > 1 or tops[-1] > 4:
                print(f"     {os.path.relpath(file, root)} ({mode}): mean {means[-1]:.3f}, largest {tops[-1]:.2f}")

    bad = 0
    for what, value, limit in (("mean of all", np.mean(means), 1.0), ("largest of all", max(tops), 4.0)):
        bad += not value <= limit
        print(f"{'ok  ' if value <= limit else 'FAIL'} {what:16s} {value:.3f}/255  limit {limit:.0f}/255")
    print(f"     {len(files)} images; worst image's mean {max(means):.3f}/255")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
