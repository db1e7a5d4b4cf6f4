#!/usr/bin/env python3
"""TensorBoard's own reader against a run's event files and its report.

    pip install tensorboard
    tensorboard_files.py --tandem build/tandem

Draws a small data set, trains two epochs, resumes for two more, and compares every scalar that EventAccumulator reads
with the record in the JSON report; so are the options' text and the steps made twice.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def records(path):
    """(step, data) of every LOG record, the later one where there are two"""
    out = {}
    with open(path) as f:
        for line in f:
            r = json.loads(line[len("DLLL "):])
            if r["type"] == "LOG" and r["step"] != "PARAMETER":
                out[tuple(r["step"])] = r["data"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="build/tandem")
    args = parser.parse_args()
    tandem = os.path.abspath(args.tandem)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)

        def run(*words):
            subprocess.run([tandem, *words], check=True, capture_output=True)

        run("dataset", "draw", "set", "--classes", "4", "--train", "64", "--val", "22", "--size", "32")
        train = ["train", "set", "--arch", "resnet18", "--image-size", "32", "-b", "8", "--epochs", "4", "--seed", "1",
                 "--print-freq", "2", "--workspace", "run", "--tensorboard", "events", "--lr", "0.01"]
        run(*train, "--run-iters", "21")                                              # two epochs and five steps
        run(*train, "--resume", "run/checkpoint.safetensors", "--checkpoint-every", "3", "--run-iters", "4")
        run(*train, "--resume", "run/checkpoint.safetensors")
        acc = EventAccumulator("events", size_guidance={"scalars": 0, "tensors": 0})
        acc.Reload()
        tags = acc.Tags()
        batches, n, bad = 8, 0, 0
        for step, data in records("run/experiment_raport.json").items():
            if len(step) not in (1, 2):  # of the whole run: would be charts of one point
                continue
            at = step[0] if len(step) == 1 else step[0] * batches + step[1]
            for name, value in data.items():
                if value is None:
                    continue
                card, _, curve = name.partition(".")
                if not curve:
                    card, curve = ["epoch", "iteration"][len(step) - 1], name
                elif card == "train" and len(step) == 1:
                    card = "train_epoch"
                tag = f"{card}/{curve}"
                found = [e.value for e in acc.Scalars(tag) if e.step == at] if tag in tags["scalars"] else []
                n += 1
                if not found or abs(found[-1] - value) > 1e-6 * max(1, abs(value)) or (step and len(found) != 1):
                    print(f"{tag} at {at}: TensorBoard {found}, report {value}")
                    bad += 1
        texts = [acc.Tensors(t)[0].tensor_proto.string_val[0].decode() for t in ("options", "model", "run")]
        if "| batch_size | 8 |" not in texts[0] or "| model.arch | resnet18 |" not in texts[1] or "run.cpu" not in texts[2]:
            print("the options are not in the texts")
            bad += 1
        files = len(os.listdir("events"))
        print(f"{n} values of {len(tags['scalars'])} scalars in {files} files, {bad} differ")
        return 1 if bad or files != 3 or n < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
