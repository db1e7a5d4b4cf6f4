#!/usr/bin/env python3
"""`evaluate --annotations --detections` against pycocotools: the twelve numbers, and the lines that are printed.

    coco.py --tandem build/tandem              250 random sets; every number within 1e-9, lines to the letter where
                                               a value does not lie just between two that can be printed
    coco.py --tandem build/tandem --speed      one set as large as COCO's val2017: both clocks

Wants `pip install pycocotools` only.  The sets have what makes metrics differ: crowds, images and classes without
truths, gaps in ids, ids in no order, equal scores, boxes that overlap by exactly a threshold, areas of exactly 32 x 32
and 96 x 96, boxes without area, more than 100 detections of a class in an image, detections of unknown classes, none
at all.
"""

import argparse
import contextlib
import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

KEYS = ["AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"]
LIMIT = 1e-9


# --------------------------------------------------------------------------------- sets


def truth_box(rng, whole):
    side = rng.choice([4, 20, 32, 32, 50, 96, 96, 150, 300])
    w, h = (side, side) if rng.random() < 0.4 else (side * rng.uniform(0.3, 2), side * rng.uniform(0.3, 2))
    x, y = rng.uniform(0, 300), rng.uniform(0, 300)
    if rng.random() < 0.02:
        w = 0
    box = [x, y, w, h]
    return [round(v) for v in box] if whole else box


def found_box(rng, box, whole):
    x, y, w, h = box
    if whole:
        kind = rng.random()
        if kind < 0.3:  # IoU of exactly 1, 1/2, 3/4 and 0.9 where the sides allow
            return [x, y, w, h * rng.choice([1, 0.5, 0.75, 0.9])]
        if kind < 0.5:
            return [x + rng.randint(-3, 3), y + rng.randint(-3, 3), w, h]
    spread = rng.choice([0.02, 0.1, 0.4])
    return [x + w * rng.uniform(-spread, spread), y + h * rng.uniform(-spread, spread),
            w * rng.uniform(1 - spread, 1 + spread), h * rng.uniform(1 - spread, 1 + spread)]


def score_of(rng, kind):
    if kind == "tied":
        return rng.randrange(8) / 8
    if kind == "same":
        return 0.5
    if kind == "odd":
        return rng.gauss(0, 100)
    return rng.random()


def make(seed):
    """(annotations, detections) as the files hold them"""
    rng = random.Random(seed)
    whole, scores = rng.random() < 0.5, rng.choice(["free", "tied", "same", "odd"])
    image_ids = rng.sample(range(0, 60), rng.randint(1, 12)) + rng.sample([2**31, 2**40, 10**9], rng.randint(0, 2))
    categories = rng.sample(range(1, 95), rng.randint(1, 6))
    used = rng.sample(categories, rng.randint(1, len(categories)))
    crowds = rng.choice([0, 0.1, 0.5])
    annotations, detections = [], []
    for i in range(rng.choice([0, 3, 20, 60, 120])):
        box = truth_box(rng, whole)
        area = box[2] * box[3] * rng.choice([1, 1, 0.6])
        annotations.append({"id": i + 1, "image_id": rng.choice(image_ids), "category_id": rng.choice(used),
                            "bbox": box, "area": area, "iscrowd": int(rng.random() < crowds)})
    rng.shuffle(annotations)
    for _ in range(rng.choice([0, 5, 60, 300])):
        a = rng.choice(annotations) if annotations else None
        if not a or rng.random() < 0.2:
            a = {"image_id": rng.choice(image_ids), "category_id": rng.choice(categories + [99]),
                 "bbox": truth_box(rng, whole)}
        detections.append({"image_id": a["image_id"], "category_id": a["category_id"],
                           "bbox": found_box(rng, a["bbox"], whole), "score": score_of(rng, scores)})
    if seed % 10 == 0 and annotations:  # more than an image's and class's 100
        a = rng.choice(annotations)
        for _ in range(130):
            detections.append({"image_id": a["image_id"], "category_id": a["category_id"],
                               "bbox": found_box(rng, a["bbox"], whole), "score": score_of(rng, scores)})
    rng.shuffle(detections)
    return ({"images": [{"id": i} for i in image_ids], "annotations": annotations,
             "categories": [{"id": c, "name": f"class {c}"} for c in categories]}, detections)


def make_large(seed, n_images, n_truths, n_found):
    """val2017's numbers: 5,000 images, 36,781 truths of 80 classes, 100 detections an image"""
    rng = random.Random(seed)
    categories = list(range(1, 81))
    annotations = []
    for i in range(n_truths):
        box = truth_box(rng, False)
        annotations.append({"id": i + 1, "image_id": rng.randrange(n_images), "category_id": rng.choice(categories),
                            "bbox": box, "area": box[2] * box[3], "iscrowd": int(rng.random() < 0.01)})
    detections = []
    for i in range(n_found):
        a = annotations[rng.randrange(n_truths)]
        k = rng.random() < 0.3
        detections.append({"image_id": a["image_id"] if k else rng.randrange(n_images),
                           "category_id": a["category_id"], "bbox": found_box(rng, a["bbox"], False),
                           "score": rng.random()})
    return ({"images": [{"id": i} for i in range(n_images)], "annotations": annotations,
             "categories": [{"id": c, "name": f"class {c}"} for c in categories]}, detections)


# --------------------------------------------------------------------------------- both sides


def reference(truths, detections, box_areas):
    """(twelve numbers, lines printed)"""
    truths = json.loads(json.dumps(truths))
    if box_areas:
        for a in truths["annotations"]:
            a["area"] = a["bbox"][2] * a["bbox"][3]
    out = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()):
        gt = COCO()
        gt.dataset = truths
        gt.createIndex()
        if detections:
            dt = gt.loadRes(json.loads(json.dumps(detections)))
        else:  # loadRes looks at the first
            dt = COCO()
            dt.dataset = {"images": truths["images"], "categories": truths["categories"], "annotations": []}
            dt.createIndex()
        judge = COCOeval(gt, dt, "bbox")
        judge.evaluate()
        judge.accumulate()
    with contextlib.redirect_stdout(out):
        judge.summarize()
    return [float(v) for v in judge.stats], out.getvalue()


def tandem(path, folder, *more):
    done = subprocess.run([path, "evaluate", "--annotations", os.path.join(folder, "gt.json"), "--detections",
                           os.path.join(folder, "dt.json"), *more], text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def save(folder, truths, detections):
    for name, what in (("gt", truths), ("dt", detections)):
        with open(os.path.join(folder, name + ".json"), "w") as f:
            json.dump(what, f)


# --------------------------------------------------------------------------------- verdicts


def check(path, folder, seed):
    truths, detections = make(seed)
    box_areas = seed % 4 == 3
    more = ["--box-areas"] if box_areas else []
    want, lines = reference(truths, detections, box_areas)
    save(folder, truths, detections)
    got = json.loads(tandem(path, folder, "--json", *more))
    error = max(abs(got[k] - w) for k, w in zip(KEYS, want))
    ok = error <= LIMIT
    printed = [line for line in tandem(path, folder, *more).splitlines() if line.startswith(" Average")]
    for mine, theirs, w in zip(printed, lines.splitlines(), want, strict=True):
        is_half = abs(w * 1000 % 1 - 0.5) < 1e-6  # between two printed values, the last bit decides
        if mine != theirs and not (is_half and mine[:-5] == theirs[:-5]):
            ok = False
            print(f"FAIL set {seed}: printed '{mine}', wanted '{theirs}'")
    if not ok:
        print(f"FAIL set {seed}: off by {error:.1e}; {len(truths['annotations'])} truths, {len(detections)} found")
        for k, w in zip(KEYS, want):
            print(f"     {k:6s} {got[k]:.12f}  wanted {w:.12f}")
    return ok, error, want


def compare_speed(path, folder):
    """Processor time, reading included, because other processes may run meanwhile."""
    truths, detections = make_large(1, 5000, 36781, 500000)
    save(folder, truths, detections)
    times = []
    for _ in range(5):
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        got = json.loads(tandem(path, folder, "--json"))
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime)
    start = time.process_time()
    with open(os.path.join(folder, "gt.json")) as f:
        truths = json.load(f)
    with open(os.path.join(folder, "dt.json")) as f:
        detections = json.load(f)
    want, _ = reference(truths, detections, False)
    peer = time.process_time() - start
    error = max(abs(got[k] - w) for k, w in zip(KEYS, want))
    times.sort()
    print(f"5000 images, 36781 truths, 500000 detections, seconds of processor time: tandem {times[2]:.2f} "
          f"({times[0]:.2f}-{times[-1]:.2f}), pycocotools {peer:.1f}; "
          f"off by {error:.1e}, AP {want[0]:.4f}")
    return error <= LIMIT


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--tandem", default="build/tandem")
    args.add_argument("--sets", type=int, default=250)
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--speed", action="store_true")
    o = args.parse_args()
    path = os.path.abspath(o.tandem)
    with tempfile.TemporaryDirectory() as folder:
        if o.speed:
            return 0 if compare_speed(path, folder) else 1
        failed, worst, seen = 0, 0.0, [0] * len(KEYS)
        for seed in range(o.seed, o.seed + o.sets):
            ok, error, want = check(path, folder, seed)
            failed += not ok
            worst = max(worst, error)
            seen = [n + (0 < w < 1) for n, w in zip(seen, want)]
    print(f"{o.sets} sets, {failed} differ, worst {worst:.1e}, limit {LIMIT:.0e}")
    print("sets where the value is between 0 and 1:", ", ".join(f"{k} {n}" for k, n in zip(KEYS, seen)))
    return 1 if failed or not all(seen) else 0


if __name__ == "__main__":
    sys.exit(main())
