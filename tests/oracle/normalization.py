#!/usr/bin/env python3
"""`dataset stats` against torchvision.

    normalization.py --tandem build/tandem

Draws a small data set, measures it in float64 by torchvision's ImageFolder and ToTensor, of whole images and of
centre crops.  tests/e2e/normalization.sh has the numbers of the set that is drawn here.  Exit status 1 if a mean or
deviation differs by more than 1e-7.
"""

import argparse
import json
import subprocess
import sys
import tempfile

import torch
from torchvision import datasets, transforms

LIMIT = 1e-7


def of_torch(folder, size):
    steps = [transforms.ToTensor()]
    if size:
        steps = [transforms.Resize(size + 32), transforms.CenterCrop(size), *steps]
    images = datasets.ImageFolder(folder, transforms.Compose(steps))
    pixels = torch.cat([x.double().flatten(1) for x, _ in images], 1)
    return pixels.mean(1), pixels.std(1, unbiased=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tandem", required=True)
    tandem = parser.parse_args().tandem
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/set"
        draw = [tandem, "dataset", "draw", data, "--classes", "3", "--train", "24", "--val", "9", "--size", "48", "--seed", "3"]
        subprocess.run(draw, check=True, capture_output=True)
        for size in (0, 32, 40, 64):
            run = [tandem, "dataset", "stats", data, "--json", "--image-size", str(size)]
            ours = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
            for name, theirs in zip(("mean", "std"), of_torch(f"{data}/train", size)):
                error = (torch.tensor(ours[name], dtype=torch.float64) - theirs).abs().max().item()
                worst = max(worst, error)
                print(f"size {size:2}: {name:4} {[round(x, 6) for x in theirs.tolist()]} off by {error:.1e}")
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()
