#!/usr/bin/env python3
"""Small images of every kind Tandem decodes, and what Pillow makes of them.

    image_files.py [NAME ...]       writes tests/data/images/NAME and tests/golden/image/NAME.rgb; all without names
    image_files.py --check          compares tandem with Pillow on more kinds of files than the tree holds
      --tandem build/tandem

NAME.rgb is Pillow's convert("RGB"), turned upright (ImageOps.exif_transpose), as rows of bytes; of 16-bit
gray the upper bytes.  Wants Pillow, numpy, and the programs cjpeg (libjpeg-turbo) and pnmtopng (netpbm).
"""

import argparse
import io
import os
import struct
import subprocess
import sys
import tempfile

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
    made.update(webp_images(im))
    made.update(tiff_images(im))
    made.update(gif_images(im))
    made.update(bmp_images(im))
    return made


def webp_images(im):
    small = im.crop((0, 0, 21, 13))
    first, second = with_alpha(im), with_alpha(im.rotate(90).resize(im.size))
    return {
        "lossy.webp": saved(im, "WEBP", quality=80),
        "lossless.webp": saved(im, "WEBP", lossless=True),
        "alpha.webp": saved(with_alpha(im), "WEBP", quality=80),
        "alpha_lossless.webp": saved(with_alpha(im), "WEBP", lossless=True, exact=True),
        "animated.webp": saved(first, "WEBP", save_all=True, append_images=[second], quality=70),
        "turn6.webp": saved(small, "WEBP", exif=exif(6)),
    }


def tiff(im, **options):
    return saved(im, "TIFF", **options)


def tiff_images(im):
    gray = im.convert("L")
    wide = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257 + 13)
    cmyk = im.convert("CMYK")
    made = {
        "gray1.tif": tiff(gray.convert("1")),
        "gray8_lzw.tif": tiff(gray, compression="tiff_lzw"),
        "gray16.tif": tiff(wide),
        "gray_fax.tif": tiff(gray.convert("1"), compression="group4"),
        "palette8.tif": tiff(im.quantize(200), compression="packbits"),
        "rgb.tif": tiff(im),
        "rgb_deflate.tif": tiff(im, compression="tiff_adobe_deflate", tiffinfo={317: 2}),
        "rgba.tif": tiff(with_alpha(im)),
        "cmyk.tif": tiff(cmyk),
        "jpeg.tif": tiff(im, compression="jpeg"),
        "tiles.tif": raw_tiff(np.asarray(im), tile=16),
        "planes.tif": raw_tiff(np.asarray(im), is_planar=True),
        "rgb16_big_endian.tif": raw_tiff(np.asarray(im).astype(np.uint16) * 257 + 31, order=">"),
        "premultiplied.tif": raw_tiff(premultiplied(im), extra=1),
        "white_is_zero.tif": raw_tiff(np.asarray(gray)[:, :, None], photometric=0),
    }
    for n in range(1, 9):
        made[f"turn{n}.tif"] = tiff(im.crop((0, 0, 21, 13)), tiffinfo={0x112: n})
    return made


def premultiplied(im):
    rgba = np.asarray(with_alpha(im)).astype(int)
    rgba[:, :, :3] = rgba[:, :, :3] * rgba[:, :, 3:] // 255
    return rgba.astype(np.uint8)


def raw_tiff(px, order="<", tile=0, is_planar=False, extra=None, photometric=None):
    """An uncompressed TIFF: [height, width, samples], in tiles or planes, of either byte order."""
    height, width, samples = px.shape
    px = px.astype(px.dtype.newbyteorder(order))
    planes = [px[:, :, i:i + 1] for i in range(samples)] if is_planar else [px]
    blocks = []
    for plane in planes:
        if not tile:
            blocks += [plane[y:y + 8].tobytes() for y in range(0, height, 8)]
            continue
        full = np.pad(plane, ((0, -height % tile), (0, -width % tile), (0, 0)), mode="edge")
        blocks += [full[y:y + tile, x:x + tile].tobytes()
                   for y in range(0, height, tile) for x in range(0, width, tile)]
    tags = {256: [width], 257: [height], 258: [8 * px.itemsize] * samples, 259: [1],
            262: [photometric if photometric is not None else 2 if samples >= 3 else 1], 277: [samples],
            284: [2 if is_planar else 1]}
    tags.update({322: [tile], 323: [tile]} if tile else {278: [8]})
    if extra is not None:
        tags[338] = [extra]
    tags[324 if tile else 273] = [0] * len(blocks)
    tags[325 if tile else 279] = [len(b) for b in blocks]
    data_at = 8 + 2 + 12 * len(tags) + 4 + 4 * sum(len(v) for v in tags.values())
    at = data_at
    for i, b in enumerate(blocks):
        tags[324 if tile else 273][i] = at
        at += len(b)
    entries, values = b"", b""
    values_at = 8 + 2 + 12 * len(tags) + 4
    for tag in sorted(tags):
        packed = struct.pack(f"{order}{len(tags[tag])}I", *tags[tag])
        entries += struct.pack(order + "HHI", tag, 4, len(tags[tag]))
        entries += packed if len(packed) == 4 else struct.pack(order + "I", values_at + len(values))
        values += packed if len(packed) > 4 else b""
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    body = head + struct.pack(order + "H", len(tags)) + entries + bytes(4) + values
    return body + bytes(data_at - len(body)) + b"".join(blocks)


def gif_images(im):
    frame = im.quantize(60)
    clear = frame.copy()
    return {
        "plain.gif": saved(frame, "GIF", interlace=0),
        "interlaced.gif": saved(frame, "GIF", interlace=1),
        "gray.gif": saved(im.convert("L"), "GIF"),
        "animated.gif": saved(frame, "GIF", save_all=True, append_images=[im.rotate(180).quantize(30)],
                              duration=50),
        "transparent.gif": saved(clear, "GIF", transparency=5),
        "part.gif": moved_frame(saved(frame, "GIF", interlace=0), 9, 4, 64, 40),
        "outside.gif": moved_frame(saved(frame, "GIF", interlace=0), 9, 4, 20, 20),
    }


def moved_frame(data, x, y, width, height):
    """The same frame at (x, y) of a screen of another size."""
    at = 13 + 3 * (2 << (data[10] & 7))
    while data[at] == 0x21:
        at += 2
        while data[at]:
            at += data[at] + 1
        at += 1
    assert data[at] == 0x2C
    return (data[:6] + struct.pack("<HH", width, height) + data[10:at + 1] + struct.pack("<HH", x, y) +
            data[at + 5:])


def bmp_images(im):
    gray = im.convert("L")
    px = np.asarray(im).astype(np.uint32)
    r, g, b = px[:, :, 0], px[:, :, 1], px[:, :, 2]
    rgb565 = ((r >> 3) << 11 | (g >> 2) << 5 | b >> 3).astype("<u2")
    rgb555 = ((r >> 3) << 10 | (g >> 3) << 5 | b >> 3).astype("<u2")
    rgba = (r << 16 | g << 8 | b | 0x7F000000).astype("<u4")
    swapped = (b << 16 | g << 8 | r | 0x7F000000).astype("<u4")
    return {
        "gray1.bmp": saved(gray.convert("1"), "BMP"),
        "gray8.bmp": saved(gray, "BMP"),
        "palette8.bmp": saved(im.quantize(200), "BMP"),
        "palette4.bmp": palette4_bmp(im),
        "rgb.bmp": saved(im, "BMP"),
        "rgb555.bmp": raw_bmp(rgb555, 16),
        "rgb565.bmp": raw_bmp(rgb565, 16, (0xF800, 0x7E0, 0x1F)),
        "rgbx.bmp": raw_bmp(rgba, 32),
        "masks32.bmp": raw_bmp(swapped, 32, (0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
        "top_down.bmp": raw_bmp(rgba, 32, is_top_down=True),
        "os2.bmp": os2_bmp(im),
    }


def bmp_rows(px, is_top_down=False):
    rows = [row.tobytes() for row in px]
    return b"".join(row + bytes(-len(row) % 4) for row in (rows if is_top_down else rows[::-1]))


def bmp_file(header, palette, rows):
    at = 14 + len(header) + len(palette)
    return b"BM" + struct.pack("<IHHI", at + len(rows), 0, 0, at) + header + palette + rows


def raw_bmp(px, bits, masks=None, is_top_down=False):
    height, width = px.shape
    size = 40 if not masks or len(masks) == 3 else 56
    header = struct.pack("<IiiHHIIiiII", size, width, -height if is_top_down else height, 1, bits,
                         3 if masks else 0, 0, 0, 0, 0, 0)
    header += struct.pack(f"<{len(masks)}I", *masks) if masks else b""
    return bmp_file(header, b"", bmp_rows(px, is_top_down))


def palette4_bmp(im):
    frame = im.quantize(13)
    px = np.asarray(frame)
    px = np.pad(px, ((0, 0), (0, px.shape[1] % 2)))
    header = struct.pack("<IiiHHIIiiII", 40, *im.size, 1, 4, 0, 0, 0, 0, 13, 0)
    colors = frame.getpalette()[:39]
    palette = b"".join(bytes((colors[i + 2], colors[i + 1], colors[i], 0)) for i in range(0, 39, 3))
    return bmp_file(header, palette, bmp_rows(px[:, ::2] << 4 | px[:, 1::2]))


def os2_bmp(im):
    frame = im.quantize(256)
    colors = (frame.getpalette() + [0] * 768)[:768]
    palette = b"".join(bytes((colors[i + 2], colors[i + 1], colors[i])) for i in range(0, 768, 3))
    return bmp_file(struct.pack("<IHHHH", 12, *im.size, 1, 8), palette, bmp_rows(np.asarray(frame)))


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


def write(names):
    for folder in (FILES, GOLDEN):
        os.makedirs(folder, exist_ok=True)
    made = images()
    for name in names or made:
        with open(os.path.join(FILES, name), "wb") as f:
            f.write(made[name])
        with open(os.path.join(GOLDEN, name + ".rgb"), "wb") as f:
            f.write(rgb(made[name]).tobytes())


def more_images(rng):
    """Files of random sizes and contents, in every way that Pillow writes them."""
    for i in range(40):
        size = rng.integers(1, 200, 2)
        px = rng.integers(0, 256, (*size, 3), np.uint8)
        im = Image.fromarray(px) if i % 2 else scene().resize((int(size[1]), int(size[0])))
        gray = im.convert("L")
        yield f"{i}lossy.webp", saved(im, "WEBP", quality=int(rng.integers(0, 101)))
        yield f"{i}lossless.webp", saved(with_alpha(im), "WEBP", lossless=True)
        for how in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", None):
            yield f"{i}{how}.tif", tiff(im, compression=how)
            yield f"{i}{how}_gray.tif", tiff(gray, compression=how)
        yield f"{i}lzma.tif", tiff(im.convert("CMYK"), compression="tiff_lzw")
        yield f"{i}tiles.tif", raw_tiff(np.asarray(im), tile=32, order="><"[i % 2])
        yield f"{i}ycbcr.tif", tiff(im.convert("YCbCr"))
        colors = int(rng.integers(2, 257))
        yield f"{i}.gif", saved(im.quantize(colors), "GIF", interlace=i % 2)
        yield f"{i}gray.gif", saved(gray, "GIF")
        yield f"{i}.bmp", saved(im.quantize(colors), "BMP")
        yield f"{i}rgb.bmp", saved(im, "BMP")
        yield f"{i}one.bmp", saved(gray.convert("1"), "BMP")


def check(tandem):
    """Pillow's pixels against those of `tandem dataset check --dump-tensors` at the image's own size."""
    from safetensors.numpy import load_file
    mean, std = np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
    size, by_kind, bad = 48, {}, 0
    with tempfile.TemporaryDirectory() as scratch:
        wanted = []
        for n, (name, data) in enumerate(more_images(np.random.default_rng(1))):
            folder = os.path.join(scratch, "set", "ab"[n % 2])
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)
            wanted.append((f"{'ab'[n % 2]}/{name}", rgb(data)))
        wanted.sort(key=lambda w: os.fsencode(w[0]))
        dump = os.path.join(scratch, "dump.safetensors")
        subprocess.run([os.path.abspath(tandem), "dataset", "check", os.path.join(scratch, "set"), "--dump-tensors",
                        dump, "--image-size", str(size)], check=True, capture_output=True)
        ours = load_file(dump)["images"]
        for (name, px), tensor in zip(wanted, ours, strict=True):
            import torchvision.transforms as T
            pil = Image.fromarray(px)
            theirs = np.asarray(T.Compose([T.Resize(size + 32), T.CenterCrop(size)])(pil)).astype(float)
            diff = np.abs(tensor.transpose(1, 2, 0) * std + mean - theirs).max()
            kind = name.rsplit(".", 1)[1]
            by_kind[kind] = max(by_kind.get(kind, 0), diff)
            # libtiff and Pillow round YCbCr differently; libtiff's own rounding is kept
            if diff > (1.01 if "ycbcr" in name else 0.01):
                bad += 1
                print(f"FAIL {name}: differs by {diff:.1f}")
    for kind, diff in sorted(by_kind.items()):
        print(f"     {kind:5s} largest difference {diff:.3f}/255 after resizing")
    print(f"{'FAIL' if bad else 'ok  '} {len(wanted)} files, {bad} differ")
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--check", action="store_true")
    p.add_argument("--tandem", default="build/tandem")
    o = p.parse_args()
    if o.check:
        return check(o.tandem)
    write(o.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
