#!/usr/bin/env python3
"""A copy of a folder of CLASS/IMAGE with larger images shrunk, so that peers get what a pack file's --short-side gives.

    shrink.py FROM TO SHORT_SIDE QUALITY
"""

import os
import shutil
import sys

from PIL import Image

source, target, side, quality = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for name in sorted(os.listdir(source)):
    os.makedirs(os.path.join(target, name), exist_ok=True)
    for file in sorted(os.listdir(os.path.join(source, name))):
        path, copy = os.path.join(source, name, file), os.path.join(target, name, file)
        with Image.open(path) as image:
            scale = side / min(image.size)
            if scale >= 1:
                shutil.copyfile(path, copy)
                continue
            size = [max(side, round(scale * n)) for n in image.size]
            small = image.convert("RGB").resize(size, Image.Resampling.BILINEAR, reducing_gap=None)
            small.save(copy, "JPEG", quality=quality)
