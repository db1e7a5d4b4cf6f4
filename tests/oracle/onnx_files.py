"""ONNX files that `tandem convert` writes, judged by the onnx checker and by ONNX Runtime.

    python tests/oracle/onnx_files.py [--tandem build/release/tandem] [--shared ../shared] [--arch NAME ...]

For an architecture of every family: random weights (`tandem init`) whose norms get random scales, shifts and statistics, so
that every branch counts; the file as opset 13 and as the newest one; onnx.checker with full_check and strict shape
inference; logits of ONNX Runtime on 64 real images against `tandem evaluate --logits`, at batch 64 and, for a few
images, at batch 1.  The largest difference over the largest logit has to be below 1e-4.  A file for images of any size is
compared at two more sizes, too, with `tandem evaluate --image-size`, and at one that is not square it has to run.

Besides, for one network each: preprocessing in the graph (bytes, float), probabilities, linear squeeze-and-excitation,
half weights, a fixed batch, and a user's graph with every op that has a counterpart in ONNX.

Detectors (`--detectors` alone, or NAME/BACKBONE of --arch): SSD320 with every backbone, SSD300 with two; the file's
detections by ONNX Runtime at batch 3 and 1 against those of `tandem evaluate --detections` of the same tensors: each has
to have its counterpart of the same class, score and box within 1e-4, but for ties.  And boxes and scores of --no-nms, put
through the rules of the post-processing here, against the file's own detections, without exception.

Needs onnx, onnxruntime, safetensors and numpy; the images are $TANDEM_SHARED/data/imagenet-sample.tar.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

LIMIT = 1e-4
NEWEST = 21
CLASSIFIERS = ("resnet18", "resnet50", "resnext50-32x4d", "se-resnet50", "resnet50d", "wide_resnet50_2", "vgg11_bn", "densenet121",
               "squeezenet1_1", "regnet_y_400mf", "shufflenet_v2_x1_0", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0",
               "convnext_tiny", "vit_b_32")
TENSORFLOW = ("resnet18", "resnext50-32x4d")
DETECTORS = ("ssd320/resnet50", "ssd320/resnet18", "ssd320/resnet34", "ssd320/resnet101", "ssd320/resnet152",
             "ssd300/resnet18", "ssd300/resnet50")
MEAN = np.array([123.675, 116.28, 103.53], np.float32).reshape(1, 3, 1, 1)
STD = np.array([58.395, 57.12, 57.375], np.float32).reshape(1, 3, 1, 1)


class Bench:
    def __init__(self, tandem, folder):
        self.tandem, self.folder, self.bad = tandem, folder, 0

    def run(self, *args):
        done = subprocess.run([self.tandem, *map(str, args)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            sys.exit(f"tandem {' '.join(map(str, args))}: {done.stderr}")
        return done.stdout

    def judge(self, name, what, ours, theirs, limit=LIMIT):
        d = float(np.abs(ours - theirs).max() / np.abs(ours).max())
        verdict = "ok" if d < limit and np.isfinite(d) else "WRONG"
        self.bad += verdict != "ok"
        print(f"{name:22} {what:34} {d:.2e} {verdict}", flush=True)
        return d


def session(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def logits(path, images, output="logits"):
    return session(path).run([output], {"images": images})[0]


def unsettle(path, seed):
    """Norms with scales, shifts, means and variances of their own; the metadata stays."""
    rng = np.random.default_rng(seed)
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    meta = {k: v for k, v in head["__metadata__"].items() if not k.startswith("digest")}
    tensors = load_file(path)
    for name, t in tensors.items():
        if name.endswith("running_mean"):
            tensors[name] = rng.normal(0, 0.2, t.shape).astype(np.float32)
        elif name.endswith("running_var"):
            tensors[name] = rng.uniform(0.6, 1.6, t.shape).astype(np.float32)
        elif t.ndim == 1 and t.dtype == np.float32:
            around = 0.8 if name.endswith("weight") else 0.0
            tensors[name] = (around + rng.normal(0, 0.15, t.shape)).astype(np.float32)
    save_file(tensors, path, metadata=meta)


def judge_arch(bench, arch, data, images, *more):
    bench.run("init", "--overwrite", "--arch", arch, *more, "--seed", "5", "--num-classes", "100", "-o", "w.safetensors")
    unsettle(bench.folder / "w.safetensors", 7)
    bench.run("evaluate", data, "--weights", "w.safetensors", "-b", "32", "--labels-by-order", "--logits", "l.safetensors",
              "--precision", "fp32")
    ours = load_file(bench.folder / "l.safetensors")["logits"]
    for opset in (17 if "convnext" in arch or "vit" in arch else 13, NEWEST):
        bench.run("convert", "--overwrite", "w.safetensors", "w.onnx", "--opset", opset)
        path = str(bench.folder / "w.onnx")
        n = len(images)
        bench.judge(arch, f"opset {opset}, batch {n}", ours, logits(path, images))
        one, some = session(path), [0, n // 2, n - 1]
        rows = [one.run(["logits"], {"images": images[i:i + 1]})[0] for i in some]
        bench.judge(arch, f"opset {opset}, batch 1", ours[some], np.concatenate(rows))
    judge_sizes(bench, arch, path, images.shape[-1])


def judge_sizes(bench, arch, path, side):
    """Two other sizes, against `tandem evaluate`, and one that is not square."""
    if onnx.load(path).graph.input[0].type.tensor_type.shape.dim[2].dim_value:
        print(f"{arch:22} fixed size", flush=True)
        return
    rng = np.random.default_rng(4)
    for other in (side - 45, side + 32):
        x = rng.normal(0, 1, (3, 3, other, other)).astype(np.float32)
        save_file({"images": x, "labels": np.zeros(3, np.int64)}, bench.folder / "sized.safetensors")
        bench.run("evaluate", "sized.safetensors", "--data-backend", "tensors", "--weights", "w.safetensors", "-b", "3",
                  "--image-size", other, "--logits", "s.safetensors", "--precision", "fp32")
        bench.judge(arch, f"size {other}, batch 3", load_file(bench.folder / "s.safetensors")["logits"], logits(path, x))
    wide = logits(path, rng.normal(0, 1, (2, 3, side - 45, side + 32)).astype(np.float32))
    if wide.shape != (2, 100) or not np.isfinite(wide).all():
        bench.bad += 1
        print(f"{arch:22} a size that is not square: {wide.shape} WRONG")


def judge_options(bench, images, raw):
    path = str(bench.folder / "o.onnx")
    bench.run("init", "--overwrite", "--arch", "se-resnet50", "--seed", "6", "--num-classes", "10", "-o", "o.safetensors")
    unsettle(bench.folder / "o.safetensors", 8)
    bench.run("convert", "--overwrite", "o.safetensors", "o.onnx")
    ours = logits(path, images[:4])
    for what, args, fed, limit in (
            ("preprocessing bytes", ["--export-preprocessing", "bytes"], raw[:4], LIMIT),
            ("preprocessing float", ["--export-preprocessing", "float"],
             raw[:4].astype(np.float32).transpose(0, 3, 1, 2), LIMIT),
            ("squeeze-excite linear", ["--se-layers", "linear"], images[:4], LIMIT),
            ("fixed batch 4", ["--batch-size", "4"], images[:4], LIMIT),
            ("half weights", ["--half-weights"], images[:4], 2e-2)):
        bench.run("convert", "--overwrite", "o.safetensors", "o.onnx", *args)
        bench.judge("se-resnet50", what, ours, logits(path, fed), limit)
    bench.run("convert", "--overwrite", "o.safetensors", "o.onnx", "--probabilities")
    e = np.exp(ours - ours.max(1, keepdims=True))
    bench.judge("se-resnet50", "probabilities", e / e.sum(1, keepdims=True), logits(path, images[:4], "probabilities"))
    names = {i.name for i in onnx.load(path).graph.initializer}
    missing = set(k for k in load_file(bench.folder / "o.safetensors") if "tracked" not in k) - names
    if missing:
        bench.bad += 1
        print("weights without an initialiser:", missing)


def detections(path, images):
    """Of each image what is found: rows of class, score, ymin, xmin, ymax, xmax."""
    boxes, scores, classes, n = session(path).run(
        ["detection_boxes", "detection_scores", "detection_classes", "num_detections"], {"images": images})
    rows = [np.concatenate([classes[i, :k, None], scores[i, :k, None], boxes[i, :k]], 1) for i, k in enumerate(n)]
    if any(np.abs(a[i, k:]).max(initial=0) for a in (boxes, scores, classes) for i, k in enumerate(n)):
        sys.exit(f"{path}: there is something behind the detections")
    return rows


def ours_of(path, n_images, side):
    rows = [[] for _ in range(n_images)]
    for d in json.loads(path.read_text()):
        x, y, w, h = np.array(d["bbox"]) / side
        rows[d["image_id"]].append([d["category_id"], d["score"], y, x, y + h, x + w])
    return [np.array(r).reshape(-1, 6) for r in rows]


def iou(a, b):
    low, high = np.maximum(a[:2], b[:, :2]), np.minimum(a[2:], b[:, 2:])
    common = np.prod(np.maximum(high - low, 0), 1)
    return common / (np.prod(a[2:] - a[:2]) + np.prod(b[:, 2:] - b[:, :2], 1) - common)


def suppressed(boxes, scores, is_320, limits):
    """The rules of the post-processing over boxes [A, 4] and scores [A, C] of one image."""
    score_min, overlap, per_class, total = limits
    found = []
    for c in range(scores.shape[1]):
        order = np.argsort(-scores[:, c], kind="stable")
        order = order[scores[order, c] > score_min]
        kept = []
        for a in order if is_320 else order[:per_class]:
            o = iou(boxes[a], boxes[kept]) if kept else np.zeros(1)
            if not ((o > np.float32(overlap)) if is_320 else (o >= np.float32(overlap))).any():
                kept.append(a)
            if is_320 and len(kept) == per_class:
                break
        for a in kept:
            box = boxes[a].clip(0, 1) if is_320 else boxes[a]
            if not is_320 or np.prod(box[2:] - box[:2]) > 0:
                found.append([c + 1, scores[a, c], *box, a])
    found.sort(key=lambda d: (-d[1], d[0], d[6]))
    return np.array([d[:6] for d in found[:total]]).reshape(-1, 6)


def judge_found(bench, name, what, ours, theirs, raw=None):
    """Every row of ours has its counterpart in theirs, and there are as many.

    With all boxes and scores of the file, raw, one row in ten may be another one, as neighbours whose scores differ by
    rounding suppress each other this way or that: the file then has its box with its score, before suppression.
    """
    lost = ties = total = 0
    for i, (a, b) in enumerate(zip(ours, theirs)):
        total += len(a)
        lost += abs(len(a) - len(b))
        free = np.ones(len(b), bool)
        for row in a:
            near = free & (b[:, 0] == row[0]) & (np.abs(b[:, 1:] - row[1:]).max(1) < LIMIT)
            free[np.flatnonzero(near)[:1]] = False
            if raw and not near.any():
                boxes, scores = raw[0][i], raw[1][i][:, int(row[0]) - 1]
                near = (np.abs(scores - row[1]) < LIMIT) & (np.abs(boxes - row[2:]).max(1) < LIMIT)
                ties += near.any()
            lost += not near.any()
    good = total and not lost and ties <= total // 10
    bench.bad += not good
    print(f"{name:22} {what:34} {total} found, {ties} ties, {lost} lost {'ok' if good else 'WRONG'}", flush=True)


def judge_detector(bench, arch, backbone, side, n_classes, seed):
    name, w = f"{arch}/{backbone}", bench.folder / "d.safetensors"
    rng = np.random.default_rng(seed)
    is_320 = arch == "ssd320"
    images = rng.normal(0, 2 if is_320 else 1, (3, 3, side, side)).astype(np.float32)
    save_file({"images": images, "boxes": np.tile(np.array([.1, .1, .5, .5], np.float32), (3, 1, 1)),
               "labels": np.ones((3, 1), np.int64), "n_boxes": np.ones(3, np.int64)}, bench.folder / "p.safetensors")
    bench.run("init", "--overwrite", "--arch", arch, "--backbone", backbone, "--image-size", side, "--num-classes", n_classes,
              "--seed", seed, "-o", w)
    settle_heads(w, rng)
    limits = (0.3, 0.45, 30, 60) if is_320 else (0.1, 0.45, 50, 70)
    options = [x for pair in zip(("--min-score", "--nms-iou", "--max-per-class", "--max-boxes"), limits) for x in pair]
    bench.run("evaluate", "p.safetensors", "--data-backend", "tensors", "--weights", w, "-b", 3, "--precision", "fp32",
              "--detections", "found.json", *options)
    ours = ours_of(bench.folder / "found.json", 3, side)
    bench.run("convert", "--overwrite", w, "raw.onnx", "--no-nms")
    boxes, scores = session(str(bench.folder / "raw.onnx")).run(["boxes", "scores"], {"images": images})
    clipped = boxes.clip(0, 1) if is_320 else boxes
    path = str(bench.folder / "d.onnx")
    for opset in (13, NEWEST):
        bench.run("convert", "--overwrite", w, "d.onnx", "--opset", opset, *options)
        theirs = detections(path, images)
        judge_found(bench, name, f"opset {opset}, batch 3", ours, theirs, (clipped, scores))
        judge_found(bench, name, f"opset {opset}, batch 1", ours[1:2], detections(path, images[1:2]),
                    (clipped[1:2], scores[1:2]))
    here = [suppressed(boxes[i], scores[i], is_320, limits) for i in range(3)]
    judge_found(bench, name, "--no-nms, suppressed here", here, theirs)
    raw = rng.integers(0, 256, (3, side, side, 3)).astype(np.uint8)
    mean = np.array([123.68, 116.779, 103.939], np.float32).reshape(1, 3, 1, 1) if is_320 else MEAN
    plain = (raw.transpose(0, 3, 1, 2).astype(np.float32) - mean) / (1 if is_320 else STD)
    bench.run("convert", "--overwrite", w, "bytes.onnx", "--no-nms", "--export-preprocessing", "bytes", "--batch-size", 3)
    of_bytes = session(str(bench.folder / "bytes.onnx")).run(["boxes", "scores"], {"images": raw})
    of_plain = session(str(bench.folder / "raw.onnx")).run(["boxes", "scores"], {"images": plain})
    for what, a, b in zip(("boxes", "scores"), of_plain, of_bytes):
        bench.judge(name, f"{what} of bytes, batch 3", a, b)


def settle_heads(path, rng):
    """Heads whose scores differ and whose boxes are of the anchors' size, as after training."""
    unsettle(path, 11)
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    tensors = load_file(path)
    for name, t in tensors.items():
        is_head = name.startswith(("heads.box.", "heads.class.", "loc.", "conf."))
        if is_head and t.ndim == 4:
            tensors[name] = (rng.normal(0, 0.5, t.shape) / np.sqrt(t[0].size)).astype(np.float32)
        elif name.endswith("running_var"):
            tensors[name] = t * 4
    save_file(tensors, path, metadata={k: v for k, v in head["__metadata__"].items() if not k.startswith("digest")})


def judge_all_ops(bench):
    net = pathlib.Path(__file__).resolve().parents[1] / "data/onnx_ops.td"
    rng = np.random.default_rng(9)
    images = rng.normal(0, 1, (8, 3, 24, 24)).astype(np.float32)
    save_file({"images": images, "labels": np.zeros(8, np.int64)}, bench.folder / "d.safetensors")
    bench.run("init", "--overwrite", "--model", net, "--seed", "4", "-o", "a.safetensors")
    unsettle(bench.folder / "a.safetensors", 3)
    bench.run("evaluate", "d.safetensors", "--data-backend", "tensors", "--model", net, "--weights", "a.safetensors",
              "-b", "8", "--logits", "l.safetensors", "--precision", "fp32")
    ours = load_file(bench.folder / "l.safetensors")["logits"]
    for opset in range(13, NEWEST + 1):
        bench.run("convert", "--overwrite", "a.safetensors", "a.onnx", "--opset", opset)
        bench.judge("all ops", f"opset {opset}", ours, logits(str(bench.folder / "a.onnx"), images))


def prepare_images(bench, shared, n):
    """Images as a folder of one class each, and as the network is fed them."""
    with tarfile.open(shared / "data/imagenet-sample.tar") as tar:
        tar.extractall(bench.folder / "all", filter="data")
    files = sorted(p for p in (bench.folder / "all").rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    for i, p in enumerate(files[:n]):
        target = bench.folder / f"set/val/c{i:02}" / f"0{p.suffix.lower()}"
        target.parent.mkdir(parents=True)
        target.symlink_to(p)
    bench.run("dataset", "check", "set", "--dump-tensors", "t.safetensors", "--split", "val")
    images = load_file(bench.folder / "t.safetensors")["images"]
    raw = np.rint(images * STD + MEAN).clip(0, 255).astype(np.uint8).transpose(0, 2, 3, 1)
    return bench.folder / "set", images, np.ascontiguousarray(raw)


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", default=here / "build/release/tandem", type=pathlib.Path)
    parser.add_argument("--shared", default=os.environ.get("TANDEM_SHARED", here.parent / "shared"), type=pathlib.Path)
    parser.add_argument("--arch", nargs="*")
    parser.add_argument("--detectors", action="store_true")
    parser.add_argument("--images", type=int, default=64, help="4 or more")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(str(args.tandem.resolve()), pathlib.Path(folder))
        for i, name in enumerate(DETECTORS):
            if not args.arch or name in args.arch:
                arch, backbone = name.split("/")
                judge_detector(bench, arch, backbone, 300 if arch == "ssd300" else 160 if i else 320, 3 + i, i)
        classifiers = [a for a in args.arch or () if a not in DETECTORS]
        if args.detectors or (args.arch and not classifiers):
            sys.exit(bench.bad != 0)
        judge_all_ops(bench)
        data, images, raw = prepare_images(bench, args.shared, args.images)
        judge_options(bench, images, raw)
        for arch in classifiers or CLASSIFIERS:
            judge_arch(bench, arch, data, images)
        for arch in TENSORFLOW:
            if not classifiers or arch in classifiers:
                judge_arch(bench, arch, data, images, "--variant", "tensorflow")
        sys.exit(bench.bad != 0)


main()
