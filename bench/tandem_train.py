#!/usr/bin/env python3
"""Speed of `tandem train`, on real or on synthetic images: prints one JSON object.

    tandem_train.py TANDEM -b 32 --threads 2 [--real DATA]

The whole command, decoding included, where `tandem benchmark` times steps alone.  DATA holds train/CLASS/IMAGE.  The rate is
that of all steps after the warm-up together, the waiting for images included, from the run's own report.
"""

import json
import os
import subprocess
import sys
import tempfile

import peer_common as common

parser = common.parser(__doc__, ("training",))
parser.add_argument("tandem")
parser.add_argument("--real", help="folder of train/CLASS/IMAGE; without it synthetic images")
parser.add_argument("more", nargs="*", help="after --: further options of 'tandem train'")
options = common.begin(parser)


def main(o):
    with tempfile.TemporaryDirectory() as folder:
        command = [o.tandem, "train", *([o.real] if o.real else ["--data-backend", "synthetic"]), "--arch", o.arch,
                   "--num-classes", "1000", "--image-size", str(o.image_size), "-b", str(o.batch_size),
                   "--precision", {"float32": "fp32", "bf16": "bf16"}[o.precision], "--threads", str(o.threads),
                   "--lr", "0.01", "--seed", "1", "--run-iters", str(o.warmup + o.iters), "-p", "1",
                   "--training-only", "--no-checkpoints", "--workspace", folder, "--raport-file", "report", *o.more]
        result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if result.returncode:
            sys.stderr.write(result.stderr)
            raise SystemExit(result.returncode)
        times = []
        with open(os.path.join(folder, "report")) as f:
            for line in f:
                record = json.loads(line[line.index("{"):])
                step, data = record.get("step"), record.get("data", {})
                if isinstance(step, list) and len(step) == 2 and "train.total_ips" in data:
                    times.append(o.batch_size / data["train.total_ips"])
    if len(times) != o.warmup + o.iters:
        raise SystemExit(f"{len(times)} steps in the report, wanted {o.warmup + o.iters}")
    times = times[o.warmup:]
    all_steps = o.batch_size * len(times) / sum(times)
    print(json.dumps({
        "program": "Tandem train, " + ("real images" if o.real else "synthetic images"), "arch": o.arch,
        "mode": o.mode, "precision": o.precision, "batch_size": o.batch_size, "image_size": o.image_size,
        "threads": o.threads, "iters": o.iters,
        "images_per_s": {"median": all_steps, "min": o.batch_size / max(times), "max": o.batch_size / min(times)},
        "latency_ms": {"avg": 1e3 * sum(times) / len(times)},
    }))


main(options)
