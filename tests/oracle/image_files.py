#!/usr/bin/env python3
"""Small images of every kind Tandem decodes, and what Pillow makes of them.

    image_files.py       writes tests/data/images/NAME and tests/golden/image/NAME.rgb

NAME.rgb is Pillow's convert("RGB"), turned upright (ImageOps.exif_transpose), as rows of bytes; of 16-bit
gray the upper bytes.  Wants Pillow, numpy, and the programs cjpeg (libjpeg-turbo) and pnmtopng (netpbm).
"""

import io
import os
import subprocess

import numpy as np
from PIL import Image, ImageOps

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = os.path.join(HERE, "..", "data", "images")
GOLDEN = os.path.join(HERE, "..", "golden", "image")
WIDTH, HEIGHT = 43, 29


def scene():
    """Colours that change slowly, with a few hard edges: something a codec has to work for."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(float)
    red = 128 + 100 * np.sin(x / 5) * np.cos(y / 7)
    green = 255 * x / WIDTH
    blue = np.where((x - 20) ** 2 + (y - 14) ** 2 < 80, 230, 40 + 3 * y)
    return Image.fromarray(np.stack([red, green, blue], 2).clip(0, 255).astype(np.uint8))


def cjpeg(im, *options):
    ppm = io.BytesIO()
    im.save(ppm, "PPM")
    return subprocess.run(["cjpeg", *options], input=ppm.getvalue(), capture_output=True, check=True).stdout


def pnmtopng(im, *options):
    ppm = io.BytesIO()
    im.save(ppm, "PPM")
    return subprocess.run(["pnmtopng", *options], input=ppm.getvalue(), capture_output=True, check=True).stdout


def saved(im, kind, **options):
    b = io.BytesIO()
    im.save(b, kind, **options)
    return b.getvalue()


def without(data, marker):
    """A JPEG without its segments of this marker."""
    out, at = data[:2], 2
    while data[at + 1] != 0xDA:
        n = 2 + int.from_bytes(data[at + 2:at + 4], "big")
        if data[at + 1] != marker:
            out += data[at:at + n]
        at += n
    return out + data[at:]


def ycck(im):
    """Adobe's four colours with the first three as YCbCr: an RGB-like CMYK file, relabelled."""
    cmyk = saved(im.convert("CMYK"), "JPEG", quality=85)
    at = cmyk.index(b"Adobe")
    assert cmyk[at + 11] in (0, 2)
    return cmyk[:at + 11] + b"\2" + cmyk[at + 12:]


def exif(n):
    block = Image.Exif()
    block[0x112] = n
    return block.tobytes()


def images():
    im = scene()
    gray = im.convert("L")
    made = {
        "420.jpg": cjpeg(im, "-sample", "2x2"),
        "422.jpg": cjpeg(im, "-sample", "2x1"),
        "440.jpg": cjpeg(im, "-sample", "1x2"),
        "444.jpg": cjpeg(im, "-sample", "1x1"),
        "411.jpg": cjpeg(im, "-sample", "4x1"),
        "odd_sampling.jpg": cjpeg(im, "-sample", "2x2,2x1,1x2"),
        "progressive.jpg": cjpeg(im, "-progressive"),
        "restart.jpg": cjpeg(im, "-restart", "1"),
        "arithmetic.jpg": cjpeg(im, "-arithmetic"),
        "rgb.jpg": cjpeg(im, "-rgb"),
        "gray.jpg": cjpeg(im, "-grayscale"),
        "cmyk.jpg": saved(im.convert("CMYK"), "JPEG", quality=85),
        "cmyk_plain.jpg": without(saved(im.convert("CMYK"), "JPEG", quality=85), 0xEE),
        "ycck.jpg": ycck(im),
        "one_pixel.jpg": saved(im.crop((0, 0, 1, 1)), "JPEG"),
        "gray1.png": saved(gray.convert("1"), "PNG"),
        "gray8.png": saved(gray, "PNG"),
        "gray16.png": saved(Image.fromarray(np.asarray(gray).astype(np.uint16) * 257 + 13), "PNG"),
        "gray_alpha.png": saved(gray.convert("LA"), "PNG"),
        "palette4.png": saved(im.quantize(13), "PNG", bits=4),
        "palette8.png": saved(im.quantize(200), "PNG"),
        "palette_clear.png": saved(im.quantize(13), "PNG", transparency=3),
        "rgb.png": saved(im, "PNG"),
        "rgb16.png": pnmtopng_16(im),
        "rgba.png": saved(with_alpha(im), "PNG"),
        "interlaced.png": pnmtopng(im, "-interlace"),
        "one_pixel.png": saved(im.crop((0, 0, 1, 1)), "PNG"),
    }
    for n in range(1, 9):
        made[f"turn{n}.jpg"] = saved(im.crop((0, 0, 21, 13)), "JPEG", exif=exif(n), quality=60)
    made["turn6.png"] = saved(im.crop((0, 0, 21, 13)), "PNG", exif=exif(6))
    return made


def with_alpha(im):
    rgba = im.convert("RGBA")
    rgba.putalpha(im.convert("L"))
    return rgba


def pnmtopng_16(im):
    wide = np.asarray(im).astype(">u2") * 257 + 31 * np.arange(3, dtype=">u2")
    ppm = b"P6 %d %d 65535\n" % im.size + np.minimum(wide, 65535).astype(">u2").tobytes()
    return subprocess.run(["pnmtopng"], input=ppm, capture_output=True, check=True).stdout


def rgb(data):
    im = Image.open(io.BytesIO(data))
    if im.mode.startswith("I"):
        return np.repeat((np.asarray(im) >> 8).astype(np.uint8)[:, :, None], 3, 2)
    return np.asarray(ImageOps.exif_transpose(im).convert("RGB"))


def main():
    for folder in (FILES, GOLDEN):
        os.makedirs(folder, exist_ok=True)
    for name, data in images().items():
        with open(os.path.join(FILES, name), "wb") as f:
            f.write(data)
        with open(os.path.join(GOLDEN, name + ".rgb"), "wb") as f:
            f.write(rgb(data).tobytes())


if __name__ == "__main__":
    main()
