#!/usr/bin/env python3
"""Speed of DALI's input pipeline on the CPU: prints one JSON object.

    peer_dali.py DATA/train -b 64 --threads 2

JPEG files -> random crop of 8 to 100 % of the area at a ratio of 3/4 to 4/3 (10 attempts), decoded only where the crop is ->
224x224, bilinear with antialiasing -> flip 1/2 -> float32 NCHW, normalised.  --fast adds the decoder's fast IDCT.
"""

import peer_common as common

parser = common.data_parser(__doc__)
parser.add_argument("--fast", action="store_true")
parser.add_argument("--label", default="", help="what the images are, for the result's name")
options = common.begin(parser)


def main(o):
    import nvidia.dali as dali
    from nvidia.dali import fn, types

    imported = common.resident()

    @dali.pipeline_def(batch_size=o.batch_size, num_threads=o.threads, device_id=None, seed=0)
    def pipeline():
        files, labels = fn.readers.file(file_root=o.data, random_shuffle=True, name="files")
        x = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, random_area=[0.08, 1],
                                          random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10,
                                          use_fast_idct=o.fast)
        x = fn.resize(x, resize_x=o.image_size, resize_y=o.image_size, interp_type=types.INTERP_LINEAR,
                      antialias=True)
        x = fn.crop_mirror_normalize(x, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
                                     mean=[255 * m for m in common.MEAN], std=[255 * s for s in common.STD])
        return x, labels

    source = pipeline()
    source.build()
    last = None

    def take():
        nonlocal last
        last, labels = source.run()
        return len(labels)

    first, rates = common.run_batches(o, take)
    pixels = last.as_array()
    label = (f", {o.label}" if o.label else "") + (", fast IDCT" if o.fast else "")
    common.show_batches(o, f"DALI {dali.__version__}{label}", first, rates,
                        memory_after_import_bytes=imported, batch_shape=list(pixels.shape),
                        batch_dtype=str(pixels.dtype), mean=float(pixels.mean()), std=float(pixels.std()))


main(options)
